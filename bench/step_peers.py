"""What `papergym bench step` compares: this package, the Hugging Face model with PEFT in a plain loop, TRL's trainers, and vLLM.

Each takes the same weights, adapter and tokens, and returns its figures: entries {"seconds", "shortest", "longest",
"tokens_per_second"}, and the most memory in use above what was in use before. Each phase runs in a process of its own.

- training ("forward", "backward", "optimizer" and "step"): supervised fine-tuning of the adapter on B sequences. "optimizer" clips the
  gradient first.
- sampling ("sampling N"): groups of n samples, N completions in all.
- GRPO: one group sampled, rewarded, and an update from it. The reward is the mean token id over V, which costs nothing.
"""

import gc
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from papergym.bench.measure import peak_bytes
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.lora import adapters_disabled, load_adapter, lora_parameters
from papergym.model.weights import load_model
from papergym.rl.advantages import group_advantages
from papergym.rl.losses import policy_terms
from papergym.training.packing import pack, pad_rows, predicting_hidden

if TYPE_CHECKING:
    from papergym.bench.step import Shape

Figures = dict[str, Any]
PARTS = ("forward", "backward", "optimizer")  # of a training step
MAX_GRADIENT_NORM = 1.0
WARM_UP = 1


class _Ours:
    """This package's model with its adapter, and what is measured of it."""

    def __init__(self, shape: "Shape", device: str, dtype: torch.dtype, folder: Path) -> None:
        self.shape, self.device = shape, torch.device(device)
        self.model = load_adapter(load_model(folder / "model", dtype=dtype, device=device), folder / "adapter").train()
        self.engine, self.parameters = TorchEngine(self.model), lora_parameters(self.model)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-6)

    def loss(self) -> Tensor:
        return -self._logprobs([(row[:1], row[1:]) for row in self.shape.batch().tolist()])[0].mean()

    def sample(self, prompts: Tensor, seed: int) -> list[list[Sequence[int]]]:
        settings = SamplingParams(n=self.shape.samples, max_tokens=self.shape.sampled, seed=seed)
        return [[completion.token_ids for completion in group] for group in self.engine.generate(prompts.tolist(), settings)]

    def grpo_step(self, seed: int) -> None:
        prompts = self.shape.prompts(1)
        (completions,) = self.sample(prompts, seed)
        rewards = torch.tensor([statistics.mean(completion) / self.shape.vocabulary for completion in completions])
        current, mask = pad_rows(*self._logprobs([(prompts[0].tolist(), completion) for completion in completions]))
        advantages = group_advantages(rewards, self.shape.samples)
        terms, _ = policy_terms("token_mean", current, current.detach(), advantages, mask, kl_weight=0.0)
        (terms.sum() / mask.sum()).backward()
        _update(self.optimizer, self.parameters)

    def _logprobs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Tensor, tuple[int, ...]]:
        packed = pack(pairs, self.device)
        out = fused_linear_logprob(predicting_hidden(self.model, packed), self.model.head_weight, packed.targets)
        return out.logprob, packed.lengths


def papergym_training(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    ours = _Ours(shape, device, dtype, folder)
    return _training(ours.loss, ours.optimizer, ours.parameters, shape, device, repeats)


def papergym_sampling(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    return _sampling(_Ours(shape, device, dtype, folder).sample, shape, device, repeats)


def papergym_base_sampling(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    """Samples from the model without its adapter."""
    ours = _Ours(shape, device, dtype, folder)
    with adapters_disabled(ours.model):
        return _sampling(ours.sample, shape, device, repeats)


def papergym_grpo(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    ours = _Ours(shape, device, dtype, folder)
    figures = {"GRPO": spread(_timed(ours.grpo_step, device, repeats), shape.samples * shape.sampled)}
    return figures | {"GRPO_peak_bytes": peak_bytes(partial(ours.grpo_step, 0), device)}


def trace(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, record: Callable[..., None], directory: Path) -> None:
    """Traces a GRPO step of this package, with a range for each part of it, by profile_call or snapshot_memory."""
    ours = _Ours(shape, device, dtype, folder)
    record(partial(ours.grpo_step, 0), directory)


def hugging_face_training(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    model, parameters = _peft(device, dtype, folder)
    ids = shape.batch().to(device)
    optimizer = torch.optim.AdamW(parameters, lr=1e-6)
    return _training(lambda: model(input_ids=ids, labels=ids).loss, optimizer, parameters, shape, device, repeats)


def hugging_face_sampling(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    model = _peft(device, dtype, folder)[0].eval()
    options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": None, "pad_token_id": 0}

    def sample(prompts: Tensor, seed: int) -> None:
        torch.manual_seed(seed)
        with torch.inference_mode():
            model.generate(
                input_ids=prompts.to(device),
                attention_mask=torch.ones_like(prompts, device=device),
                num_return_sequences=shape.samples,
                max_new_tokens=shape.sampled,
                min_new_tokens=shape.sampled,
                **options,
            )

    return _sampling(sample, shape, device, repeats)


def trl_sft(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    """TRL's SFTTrainer on the same batch, a step after the other, its logging and checkpoints off."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    rows = shape.batch().tolist()
    config = SFTConfig(max_length=None, packing=False, per_device_train_batch_size=shape.sequences, **_trl_options(device, folder))
    model, _ = _peft(device, dtype, folder)
    data = Dataset.from_dict({"input_ids": rows * (repeats + WARM_UP)})
    taken, peak = _train_with_trl(
        lambda callbacks: SFTTrainer(model, args=config, train_dataset=data, processing_class=_word_tokenizer(shape), callbacks=callbacks),
        repeats,
        device,
    )
    return {"step": spread(taken, shape.sequences * shape.tokens), "step_peak_bytes": peak}


def trl_grpo(shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    """TRL's GRPOTrainer with one prompt a step and generation by transformers."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    (prompt,) = shape.prompts(1).tolist()

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [statistics.mean(ids) / shape.vocabulary for ids in completion_ids]

    config = GRPOConfig(
        per_device_train_batch_size=shape.samples,
        num_generations=shape.samples,
        max_completion_length=shape.sampled,
        generation_kwargs={"min_new_tokens": shape.sampled, "eos_token_id": None},
        beta=0.0,
        temperature=1.0,
        **_trl_options(device, folder),
    )
    model, _ = _peft(device, dtype, folder)
    data = Dataset.from_dict({"prompt": [" ".join(f"t{token}" for token in prompt)] * (repeats + WARM_UP)})
    taken, peak = _train_with_trl(
        lambda callbacks: GRPOTrainer(
            model, reward, args=config, train_dataset=data, processing_class=_word_tokenizer(shape), callbacks=callbacks
        ),
        repeats,
        device,
    )
    return {"GRPO": spread(taken, shape.samples * shape.sampled), "GRPO_peak_bytes": peak}


def vllm(python: str, adapted: bool, shape: "Shape", device: str, dtype: torch.dtype, folder: Path, repeats: int) -> Figures:
    """vLLM in another installation's process, which samples from the model with the adapter or without."""
    asked = {
        "path": str(folder / "model"),
        "adapter": str(folder / "adapter") if adapted else None,
        "rank": shape.rank,
        "dtype": str(dtype).removeprefix("torch."),
        "prompts": [shape.prompts(groups).tolist() for groups in shape.groups],
        "samples": shape.samples,
        "tokens": shape.sampled,
        "repeats": repeats,
    }
    done = subprocess.run([python, "-m", "papergym.bench.vllm_sampling"], input=json.dumps(asked), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{python} -m papergym.bench.vllm_sampling ended with {done.returncode}; what it wrote stands above")
    answer = json.loads(done.stdout.splitlines()[-1])
    counts = [groups * shape.samples for groups in shape.groups]
    figures = {f"sampling {count}": spread(taken, count * shape.sampled) for count, taken in zip(counts, answer["seconds"], strict=True)}
    return figures | {"vllm": answer["version"]}


def spread(seconds: Sequence[float], tokens: int) -> dict[str, float]:
    median = statistics.median(seconds)
    return {"seconds": median, "shortest": min(seconds), "longest": max(seconds), "tokens_per_second": tokens / median}


def _peft(device: str, dtype: torch.dtype, folder: Path) -> tuple[Any, list[torch.nn.Parameter]]:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype, device_map=device)
    model = PeftModel.from_pretrained(base, str(folder / "adapter"), is_trainable=True).train()
    return model, [parameter for parameter in model.parameters() if parameter.requires_grad]


def _update(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _training(
    loss_of: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
    shape: "Shape",
    device: str,
    repeats: int,
) -> Figures:
    """Figures of a step and its parts, and `check`: the first loss and the adapter's whole gradient."""
    loss = loss_of()
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten().double().cpu() for parameter in parameters])  # type: ignore[union-attr]
    check = loss.item(), gradient
    optimizer.zero_grad(set_to_none=True)
    del loss
    taken: dict[str, list[float]] = {name: [] for name in PARTS}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = run()
        _wait(device)
        taken[name].append(time.perf_counter() - start)
        return result

    def step() -> None:
        loss = timed("forward", loss_of)
        timed("backward", loss.backward)
        timed("optimizer", lambda: _update(optimizer, parameters))

    for _ in range(WARM_UP):
        step()
    peak = peak_bytes(step, device)
    for values in taken.values():
        values.clear()
    for _ in range(repeats):
        step()
    tokens = shape.sequences * shape.tokens
    steps = [sum(parts) for parts in zip(*taken.values(), strict=True)]
    figures: Figures = {name: spread(values, tokens) for name, values in taken.items()}
    return figures | {"step": spread(steps, tokens), "step_peak_bytes": peak, "check": check}


def _sampling(sample: Callable[[Tensor, int], Any], shape: "Shape", device: str, repeats: int) -> Figures:
    figures: Figures = {}
    for groups in shape.groups:
        count = groups * shape.samples
        draw = partial(sample, shape.prompts(groups))
        figures[f"sampling {count}"] = spread(_timed(draw, device, repeats), count * shape.sampled)
        figures[f"sampling {count}_peak_bytes"] = peak_bytes(partial(draw, 0), device)
    return figures


def _timed(run: Callable[[int], Any], device: str, repeats: int) -> list[float]:
    """Seconds of each call after a warm-up; the argument is a seed."""
    taken = []
    for seed in range(WARM_UP + repeats):
        gc.collect()
        start = time.perf_counter()
        run(seed)
        _wait(device)
        taken.append(time.perf_counter() - start)
    return taken[WARM_UP:]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _trl_options(device: str, folder: Path) -> dict[str, Any]:
    """Of both trainers: the model as it was loaded, and nothing beside the steps."""
    return {
        "output_dir": str(folder / "trl"),
        "num_train_epochs": 1,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "max_grad_norm": MAX_GRADIENT_NORM,
        "optim": "adamw_torch",
        "bf16": False,
        "gradient_checkpointing": False,
        "use_cpu": device == "cpu",
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def _train_with_trl(trainer_with: Callable[[list[Any]], Any], repeats: int, device: str) -> tuple[list[float], int]:
    """Seconds of each step after a warm-up, and the peak above what was in use when training began."""
    from transformers import TrainerCallback

    marks: list[float] = []

    class Clock(TrainerCallback):
        """From the end of a step to the end of the next: what the trainer does between steps is part of one."""

        def on_step_end(self, *_: Any, **__: Any) -> None:
            _wait(device)
            marks.append(time.perf_counter())

    trainer = trainer_with([Clock()])
    peak = peak_bytes(trainer.train, device)
    if len(marks) != repeats + WARM_UP:
        raise RuntimeError(f"the trainer took {len(marks)} steps instead of {repeats + WARM_UP}")
    return [end - start for start, end in pairwise(marks)], peak


def _word_tokenizer(shape: "Shape") -> Any:
    """Token i is the word t<i>: TRL's trainers want text and a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"t{token}": token for token in range(shape.vocabulary)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t0", eos_token="t1")
