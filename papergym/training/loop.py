"""The optimizer loop that SFT, OPSD and GRPO share: collect a batch, accumulate its gradient, step, log, checkpoint.

All randomness is a function of (seed, step), so a run resumed from a checkpoint continues to the same numbers, bit for bit on CPU.
"""

import hashlib
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from papergym.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from papergym.config import to_mapping
from papergym.errors import InputError
from papergym.files import exclusive, write_json
from papergym.metrics import JsonLines, MetricsWriter
from papergym.model.decoder import CausalLM
from papergym.model.lora import LoraConfig, adapter_state_dict, apply_lora, load_adapter, lora_config, lora_parameters, save_adapter
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model
from papergym.progress import progress_bar
from papergym.seeds import derive_seed
from papergym.training.aggregate import BatchCounts
from papergym.training.config import ModelTable, TrainingConfig
from papergym.training.optim import build_optimizer, learning_rate
from papergym.training.packing import Trainable, micro_batches

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Policy:
    """The model that is trained, with its LoRA adapter, and its tokenizer."""

    model: CausalLM
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Batch:
    """The sequences of one optimizer step, numbers about them, and the rollouts to write down."""

    samples: Sequence[Trainable]
    metrics: Mapping[str, float]
    rollouts: Sequence[Mapping[str, Any]] = ()


class Algorithm(Protocol):
    """What distinguishes one trainer from another."""

    def collect(self, step: int, phases: "Phases") -> Batch:
        """Draws and scores the batch of a step (from 1); every choice follows from the seed and the step."""

    def loss(self, samples: Sequence[Any], counts: BatchCounts) -> tuple[Tensor, dict[str, Tensor]]:
        """This micro-batch's share of the loss, a scalar with gradient, and per-token metrics summed over its tokens."""


class Phases:
    """Seconds spent in each phase of a step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def load_policy(config: TrainingConfig, resume: bool = False) -> Policy:
    """Loads the base model, freezes it, and puts a fresh or a stored LoRA adapter on it; after a look at run.dir, see train."""
    table: ModelTable = config.model
    _check_directory(Path(config.run.dir), resume)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: this trainer runs in one process, launch it with one")
    model = load_model(table.path, dtype=DTYPES[table.dtype], device=table.device)
    model.activation_checkpointing = table.checkpoint_activations
    torch.manual_seed(derive_seed(config.run.seed, 0))
    if table.adapter is None:
        apply_lora(model, config.lora or LoraConfig())
    else:
        load_adapter(model, table.adapter)
        if config.lora is not None and replace(config.lora, dropout=0.0) != replace(lora_config(model), dropout=0.0):
            raise InputError(
                f"{table.adapter}: this adapter is {lora_config(model)}, and the [lora] table asks for {config.lora}; leave it out"
            )
    return Policy(model, Tokenizer(table.path))


def train(config: TrainingConfig, policy: Policy, algorithm: Algorithm, title: str, resume: bool = False) -> Path:
    """Runs the configured steps and returns the directory of the trained adapter (PEFT layout).

    resume: continue from the newest checkpoint of run.dir, or from the start if it holds none. Raises InputError when run.dir
    already holds a run and resume is False, or is in use; FloatingPointError before a step on a non-finite loss or gradient.
    """
    directory = Path(config.run.dir)
    with run_lock(directory):
        _check_directory(directory, resume)
        parameters = lora_parameters(policy.model)
        optimizer = build_optimizer(config.optim, parameters)
        done = _restore(directory, config, policy, optimizer)
        write_json(directory / "config.json", to_mapping(config))
        metrics, rollouts = MetricsWriter(directory, done), JsonLines(directory / "rollouts.jsonl", done)
        with progress_bar(title, config.run.steps) as bar:
            bar.advance(done)
            for step in range(done + 1, config.run.steps + 1):
                values, records = _step(step, config, algorithm, policy, optimizer, parameters)
                rollouts.write({"step": step, **record} for record in records)
                metrics.write(step, time.time(), values)
                if step % config.run.checkpoint_every == 0 or step == config.run.steps:
                    _save(directory, step, config, policy, optimizer)
                bar.advance(note=" ".join(f"{name} {values[name]:.3f}" for name in ("divergence", "reward/mean", "loss") if name in values))
        metrics.close()
        rollouts.close()
        return _write_adapter(directory, policy)


def _step(
    step: int,
    config: TrainingConfig,
    algorithm: Algorithm,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
) -> tuple[dict[str, float], Sequence[Mapping[str, Any]]]:
    """One optimizer step; returns its metrics and rollouts."""
    phases = Phases()
    with phases("step"):
        batch = algorithm.collect(step, phases)
        with phases("train"):
            counts = BatchCounts.of([len(sample.completion_ids) for sample in batch.samples])
            torch.manual_seed(derive_seed(config.run.seed, step))  # dropout
            policy.model.train()
            loss, sums = 0.0, dict[str, float]()
            for samples in micro_batches(batch.samples, config.data.tokens_per_micro_batch):
                share, token_sums = algorithm.loss(samples, counts)
                share.backward()
                loss += share.item()
                for name, value in token_sums.items():
                    sums[name] = sums.get(name, 0.0) + value.item()
            grad_norm = torch.nn.utils.clip_grad_norm_(parameters, config.optim.max_grad_norm).item()
            if not math.isfinite(loss) or not math.isfinite(grad_norm):
                raise FloatingPointError(f"step {step}: loss {loss}, gradient norm {grad_norm}; stopped before the optimizer step")
            rate = learning_rate(config.optim, step, config.run.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    values = {"loss": loss, "grad_norm": grad_norm, "lr": rate, **batch.metrics}
    values |= {name: value / max(1, counts.tokens) for name, value in sums.items()}
    values |= {f"time/{name}": seconds for name, seconds in phases.seconds.items()}
    return values, batch.rollouts


def run_lock(directory: Path) -> AbstractContextManager[None]:
    """Holds a run directory for this process. Raises InputError when another process has it."""
    message = f"{directory}: another process is writing this run; wait for it or choose another run.dir"
    return exclusive(directory / ".lock", message)


def _check_directory(directory: Path, resume: bool) -> None:
    """Refuses a directory in which something was trained, unless it is to be resumed."""
    metrics = directory / "metrics.jsonl"
    if not resume and (latest_checkpoint(directory / "checkpoints") is not None or (metrics.exists() and metrics.stat().st_size)):
        raise InputError(f"{directory}: already holds a run; add --resume to continue it or choose another run.dir")


def _identity(config: TrainingConfig, policy: Policy) -> dict[str, Any]:
    """What a resumed run must share with the run it continues. The number of steps matters only to a decaying learning rate."""
    settings = to_mapping(config)
    for name in ("dir", "checkpoint_every", "keep_checkpoints", *(["steps"] if config.optim.schedule == "constant" else [])):
        del settings["run"][name]
    settings["lora"] = to_mapping(lora_config(policy.model))
    identity = {f"{table}.{key}": value for table, values in settings.items() for key, value in values.items()}
    identity["model configuration"] = to_mapping(policy.model.config)
    identity["model weights"] = _fingerprint(policy.model)
    identity["content of data.train"] = hashlib.sha256(Path(config.data.train).read_bytes()).hexdigest()
    return _plain(identity)


def _fingerprint(model: CausalLM) -> str:
    """A hash of some numbers of every base weight: enough to tell checkpoints apart without reading gigabytes."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            digest.update(parameter.detach().flatten()[:16].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON reads them back."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _save(directory: Path, step: int, config: TrainingConfig, policy: Policy, optimizer: torch.optim.Optimizer) -> None:
    state = {"adapter": adapter_state_dict(policy.model), "optimizer": optimizer.state_dict()}
    save_checkpoint(directory / "checkpoints", step, state, _identity(config, policy), keep=config.run.keep_checkpoints)


def _restore(directory: Path, config: TrainingConfig, policy: Policy, optimizer: torch.optim.Optimizer) -> int:
    """Puts the newest checkpoint's state back and returns its step; 0 without one. Nothing is changed when it belongs to another run."""
    path = latest_checkpoint(directory / "checkpoints")
    if path is None:
        shutil.rmtree(directory / "tensorboard", ignore_errors=True)
        return 0
    state = load_checkpoint(path, _identity(config, policy))
    done = int(path.name.removeprefix("step_"))
    if done > config.run.steps:
        raise InputError(f"{path}: this run is at step {done} already, beyond run.steps = {config.run.steps}")
    for name, tensor in adapter_state_dict(policy.model).items():
        tensor.copy_(state["adapter"][name])
    optimizer.load_state_dict(state["optimizer"])
    return done


def _write_adapter(directory: Path, policy: Policy) -> Path:
    """Writes the adapter beside its final place and renames it, so that a reader never sees half of it."""
    final, temporary = directory / "adapter", directory / ".adapter.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    save_adapter(policy.model, temporary)
    shutil.rmtree(final, ignore_errors=True)
    os.rename(temporary, final)
    return final
