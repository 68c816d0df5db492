"""The optimizer loop that SFT, OPSD and GRPO share: collect a batch, accumulate its gradient, step, log, checkpoint.

All randomness is a function of (seed, step), so a run resumed from a checkpoint continues to the same numbers, bit for bit on CPU.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from papergym.checkpoint import check_identity, latest_checkpoint
from papergym.config import to_mapping
from papergym.errors import InputError
from papergym.files import append_jsonl, atomic_directory, exclusive, read_json, remove_directory, remove_leftovers, write_json
from papergym.metrics import MetricsWriter, reopen_steps
from papergym.model.decoder import CausalLM
from papergym.model.lora import (
    LoraConfig,
    adapter_state_dict,
    apply_lora,
    check_adapter,
    initialise_adapters,
    load_adapter,
    lora_parameters,
    read_adapter_config,
    save_adapter,
)
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model
from papergym.progress import progress_bar
from papergym.seeds import derive_seed, seed_generators
from papergym.training.aggregate import BatchCounts
from papergym.training.config import ModelTable, TrainingConfig, check_lora
from papergym.training.distributed import ONE, Ranks, full, process_group, reduce_gradients, shard, shared_out, with_head
from papergym.training.guards import save_for_replay, stop_requests
from papergym.training.identity import flat, input_hashes, plain
from papergym.training.optim import build_optimizer, learning_rate
from papergym.training.packing import Trainable
from papergym.training.profiling import profiled_steps
from papergym.training.replay import replay_step
from papergym.training.saving import CHECKPOINTS, Saver

CONFIG, ADAPTER = "config.json", "adapter"  # in a run directory
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class Policy:
    """The model that is trained, with its LoRA adapter, and its tokenizer."""

    model: CausalLM
    tokenizer: Tokenizer
    ranks: Ranks = ONE


@dataclass(frozen=True)
class Batch:
    """The sequences of one optimizer step, numbers about them, and the rollouts to write down."""

    samples: Sequence[Trainable]
    metrics: Mapping[str, float]
    rollouts: Sequence[Mapping[str, Any]] = ()


class Algorithm(Protocol):
    """What distinguishes one trainer from another."""

    def collect(self, step: int, phases: "Phases") -> Batch:
        """Draws and scores the batch of a step (from 1), the same on all ranks; every choice follows from the seed and the step."""

    def sample_from(self, fields: Mapping[str, Any]) -> Any:
        """The sample whose fields a JSON object holds, as a failed step leaves it."""

    def loss(self, samples: Sequence[Any], counts: BatchCounts) -> tuple[Tensor, dict[str, Tensor]]:
        """This micro-batch's share of the loss, a scalar with gradient, and per-token metrics summed over its tokens."""


class Phases:
    """Seconds spent in each phase of a step; ranges of these names are what a profiler shows."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        with torch.profiler.record_function(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run_training(
    config: TrainingConfig, algorithm: Callable[[Any, Policy], Algorithm], title: str, resume: bool = False, replay: Path | None = None
) -> Path:
    """Trains as configured and returns the directory of the adapter (PEFT layout).

    The same configuration again continues an unfinished run from its newest checkpoint, and has nothing to do for a finished one.
    resume: continue also where the configuration differs in what a checkpoint does not depend on, such as a larger run.steps.
    replay: a failed step's directory, whose loss and gradients are computed again and described; run.dir is not touched then.
    Raises InputError when run.dir is in use or holds another run; FloatingPointError before a step on a non-finite loss or gradient.
    """
    directory, table = Path(config.run.dir), config.distributed
    if replay is not None:
        policy = load_policy(config)
        for line in replay_step(replay, config, policy.model, algorithm(config, policy)):
            print(line)
        return replay
    with process_group(config.model.device, table.timeout) as ranks, ExitStack() as held:
        ranks.on_first(lambda: _hold(held, directory))
        if ranks.on_first(lambda: _is_finished(directory, config, resume)):
            if ranks.first:
                print(f"{directory}: this run is finished; to train again, choose another run.dir or remove it", file=sys.stderr)
            return directory / ADAPTER
        policy = load_policy(config, ranks)
        return train(config, policy, algorithm(config, policy), title)


def _hold(held: ExitStack, directory: Path) -> None:
    held.enter_context(run_lock(directory))


def load_policy(config: TrainingConfig, ranks: Ranks = ONE) -> Policy:
    """Loads the base model, freezes it, and puts a fresh or a stored LoRA adapter on it; over several ranks, sharded."""
    table: ModelTable = config.model
    adapter = config.lora or LoraConfig()
    if table.adapter is not None:
        adapter = read_adapter_config(table.adapter)
        check_lora(adapter, f"{table.adapter}: lora")
        if config.lora is not None and replace(config.lora, dropout=0.0) != replace(adapter, dropout=0.0):
            raise InputError(f"{table.adapter}: this adapter is {adapter}, and the [lora] table asks for {config.lora}; leave it out")

    def prepare(model: CausalLM) -> None:
        shard(apply_lora(model, adapter), table.device, config.distributed.cpu_offload)

    several = ranks.size > 1
    device = "cpu" if several and config.distributed.cpu_offload else table.device
    model = load_model(table.path, dtype=DTYPES[table.dtype], device=device, prepare=prepare if several else None)
    model.activation_checkpointing = table.activation_checkpointing
    torch.manual_seed(derive_seed(config.run.seed, 0))
    if table.adapter is not None:
        load_adapter(model, table.adapter)
    elif several:
        initialise_adapters(model)
    else:
        apply_lora(model, adapter)
    return Policy(model, Tokenizer(table.path), ranks)


def train(config: TrainingConfig, policy: Policy, algorithm: Algorithm, title: str) -> Path:
    """Runs the steps that run.dir lacks and returns the adapter's directory; the caller holds run_lock.

    Raises FloatingPointError before a step on a non-finite loss or gradient; SystemExit when the step in which SIGTERM or Ctrl-C came
    is done and saved, with 0 and 130.
    """
    directory, ranks = Path(config.run.dir), policy.ranks
    parameters = lora_parameters(policy.model)
    optimizer = build_optimizer(config.optim, parameters)
    saver = Saver(config, policy.model, optimizer, ranks)
    done = saver.restore(config.run.steps)
    with closing(saver), stop_requests(talks=ranks.size == 1) as has_come, ExitStack() as stack:
        recorders: list[Callable[..., None]] = []  # one on the first rank, none on the others
        ranks.on_first(lambda: recorders.append(stack.enter_context(_recorder(directory, config, title, done))))
        for step in range(done + 1, config.run.steps + 1):
            values, records = _step(step, config, algorithm, policy, optimizer, parameters)
            for record in recorders:
                record(step, values, records)
            saver.note(values)
            told = ranks.sum({number.name: has_come(number) for number in (signal.SIGTERM, signal.SIGINT)})
            stopped = any(told.values())
            if stopped or step % config.run.checkpoint_every == 0 or step == config.run.steps:
                saver.save(step)
            if stopped and step < config.run.steps:
                saver.wait()
                if ranks.first:
                    print(f"{directory}: told to stop; saved at step {step}, the same command goes on from there", file=sys.stderr)
                raise SystemExit(128 + signal.SIGINT if told["SIGINT"] else 0)
    adapter = saver.whole_adapter()
    ranks.on_first(lambda: _write_adapter(directory, policy, adapter))
    return directory / ADAPTER


@contextmanager
def _recorder(directory: Path, config: TrainingConfig, title: str, done: int) -> Iterator[Callable[..., None]]:
    """Opens the files of a run after `done` steps; yields record(step, metrics, rollouts), for every step that follows."""
    rollouts = directory / "rollouts.jsonl"
    reopen_steps(rollouts, done, several=True)
    metrics = MetricsWriter(directory, done)
    remove_directory(directory / ADAPTER)  # its presence says that the run is finished
    write_json(directory / CONFIG, to_mapping(config))
    with progress_bar(title, config.run.steps) as bar, profiled_steps(directory / "profile", config.run.profile) as step_is_done:
        bar.advance(done)

        def record(step: int, values: Mapping[str, float], records: Sequence[Mapping[str, Any]]) -> None:
            append_jsonl(rollouts, ({"step": step, **record} for record in records))
            metrics.write(step, time.time(), values)
            step_is_done()
            bar.advance(note=" ".join(f"{name} {values[name]:.3f}" for name in ("divergence", "reward/mean", "loss") if name in values))

        yield record
    metrics.close()


def _write_adapter(directory: Path, policy: Policy, state: Mapping[str, Tensor]) -> None:
    with atomic_directory(directory / ADAPTER) as temporary:
        save_adapter(policy.model, temporary, state)


def _step(
    step: int,
    config: TrainingConfig,
    algorithm: Algorithm,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
) -> tuple[dict[str, float], Sequence[Mapping[str, Any]]]:
    """One optimizer step; returns its metrics and rollouts."""
    phases, model, ranks = Phases(), policy.model, policy.ranks
    seed_generators(derive_seed(config.run.seed, step, 3))  # a judge or loss of one's own may draw from them
    with phases("step"):
        batch = algorithm.collect(step, phases)
        ranks.meet()  # a rank that does not come is named here; in FSDP's calls it would not be
        with phases("train"), with_head(model):
            counts = BatchCounts.of([len(sample.completion_ids) for sample in batch.samples])
            torch.manual_seed(derive_seed(config.run.seed, step, *([2, ranks.rank] if ranks.rank else [])))  # dropout
            model.train()
            loss, sums = 0.0, dict[str, float]()
            work = shared_out(batch.samples, config.data.tokens_per_micro_batch, ranks)
            for number, (samples, factor) in enumerate(work, 1):
                reduce_gradients(model, now=number == len(work))
                share, token_sums = algorithm.loss(samples, counts)
                share = factor * share
                share.backward()
                loss += share.item()
                for name, value in token_sums.items():
                    sums[name] = sums.get(name, 0.0) + factor * value.item()
            loss, *totals = ranks.sum({"loss": loss, **sums}).values()
            grad_norm = full(torch.nn.utils.clip_grad_norm_(parameters, config.optim.max_grad_norm)).item()
            if not math.isfinite(loss) or not math.isfinite(grad_norm):
                adapter = {name: full(tensor) for name, tensor in adapter_state_dict(model).items()}
                place = ranks.on_first(lambda: save_for_replay(Path(config.run.dir), step, model, adapter, batch.samples))
                what = f"step {step}: loss {loss}, gradient norm {grad_norm}"
                raise FloatingPointError(f"{what}; stopped before the optimizer step; the batch and the adapter are in {place}")
            rate = learning_rate(config.optim, step, config.run.steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    values = {"loss": loss, "grad_norm": grad_norm, "lr": rate, **batch.metrics}
    values |= {name: total / max(1, counts.tokens) for name, total in zip(sums, totals, strict=True)}
    values |= {f"time/{name}": seconds for name, seconds in phases.seconds.items()}
    return values, batch.rollouts


def run_lock(directory: Path) -> AbstractContextManager[Any]:
    """Holds a run directory for this process. Raises InputError when another process has it."""
    message = f"{directory}: another process is writing this run; wait for it or choose another run.dir"
    return exclusive(directory / ".lock", message)


def _is_finished(directory: Path, config: TrainingConfig, resume: bool) -> bool:
    """Whether the directory holds this run, whole. Raises InputError when it holds another one that is not to be resumed."""
    finished, newest = (directory / ADAPTER).exists(), latest_checkpoint(directory / CHECKPOINTS)
    metrics = directory / "metrics.jsonl"
    if not finished and newest is None and not (metrics.exists() and metrics.stat().st_size):
        return False
    written, now = read_json(directory / CONFIG), flat(plain(to_mapping(config)))
    if not isinstance(written, dict) or not all(isinstance(table, dict | None) for table in written.values()):
        raise InputError(f"{directory / CONFIG}: not the tables of a run's configuration; choose another run.dir or remove {directory}")
    before = flat(written)
    if differing := [name for name in now if before.get(name) != now[name]]:
        if not resume:
            name = differing[0]
            raise InputError(
                f"{directory}: already holds a run; add --resume to continue it or choose another run.dir: "
                f"its {name} is {before.get(name)!r}, not {now[name]!r}"
            )
        if finished and newest is None:
            raise InputError(f"{directory}: its checkpoints are gone, so the finished run cannot be continued; choose another run.dir")
        return False
    if newest is not None:
        check_identity(newest, input_hashes(config))
    if finished:
        remove_leftovers(directory / ADAPTER)
        check_adapter(directory / ADAPTER)
    return finished
