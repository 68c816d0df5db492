"""`papergym bench step`: a training step and a round of sampling, beside the Hugging Face model with PEFT on the same weights and batch.

Both train the same LoRA adapter on the same tokens, checked first: their losses and the gradients of the adapter must agree. Then forward
(loss included), backward and optimizer are timed step by step, and sampling of groups by itself. Utilisation is the model's arithmetic over
what a large matrix product of the same dtype reaches on the machine in the same run. Not beside TRL's trainers: they need more packages.

Legend: B sequences, T tokens of each.
"""

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from papergym.bench.measure import peak_bytes
from papergym.bench.provenance import provenance
from papergym.errors import InputError
from papergym.files import write_jsonl
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.lora import LoraConfig, apply_lora, lora_parameters, save_adapter
from papergym.model.weights import load_model, save_model
from papergym.planning.memory import Workload, adapter_parameters
from papergym.training.packing import pack, predicting_hidden

PHASES = ("forward", "backward", "optimizer")
WARM_UP = 1
BAR = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of the loss and, relative, of the adapter's gradient


@dataclass(frozen=True)
class Shape:
    """What is run. The model: Qwen3 with a tied head, heads of 64, half as many for keys and values, an MLP three times as wide."""

    hidden: int = 512
    layers: int = 8
    vocabulary: int = 151936
    sequences: int = 8
    tokens: int = 256
    groups: int = 1  # sampled, of `samples` each
    samples: int = 8
    prompt: int = 64
    sampled: int = 128
    rank: int = 64

    def model(self) -> ModelConfig:
        if self.hidden % 128:
            raise InputError(f"--hidden {self.hidden}: a multiple of 128 is needed, so that heads of 64 come in pairs")
        heads = self.hidden // 64
        return ModelConfig(
            architecture="qwen3",
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=3 * self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            head_dim=64,
            rms_norm_eps=1e-6,
            max_position_embeddings=max(self.tokens, self.prompt + self.sampled) + 1,
            tie_word_embeddings=True,
        )

    def flop(self) -> float:
        """Of a step: forward, the gradients of hidden states, and those of the adapter."""
        config = self.model()
        work = Workload("sft", config, LoraConfig(self.rank), 1, 1, 1, 1, self.tokens, self.tokens)
        return self.sequences * self.tokens * (2 * config.flops_per_token(self.tokens) + 6 * adapter_parameters(work) * self.layers)


@dataclass(frozen=True)
class Contender:
    """One implementation. loss() is a forward pass; sample(seed) returns the number of tokens that it drew."""

    name: str
    parameters: list[torch.nn.Parameter]
    loss: Callable[[], Tensor]
    sample: Callable[[int], int]


def report(shape: Shape, device: str, dtype: str, repeats: int, out: Path | None) -> None:
    """Checks, times and prints a table; writes JSON lines to `out`. Raises InputError when the two compute different things."""
    kind = getattr(torch, dtype)
    reached = _product_rate(device, kind)
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    place = provenance("papergym")
    records, checks = [], []
    with tempfile.TemporaryDirectory() as folder:
        _write_model(shape, Path(folder))
        for make in (_ours, _hugging_face):
            contender = make(shape, device, kind, Path(folder))
            checks.append(_check_values(contender))
            figures = _measure(contender, shape, device, repeats)
            utilisation = shape.flop() / figures["step"]["seconds"] / reached
            what = {"device": name, "implementation": contender.name, **vars(shape), "dtype": dtype}
            records.append(place | what | {"utilisation": utilisation, "product_flop_per_second": reached} | figures)
            del contender
            gc.collect()
    _table(records, shape, dtype)
    if out is not None:
        write_jsonl(out, records)
    (loss, gradient), (other_loss, other_gradient) = checks
    error = float((gradient - other_gradient).norm() / other_gradient.norm())
    if not (abs(loss - other_loss) <= BAR[kind] * abs(other_loss) and error <= BAR[kind]):
        raise InputError(f"the two disagree: loss {loss:.6g} and {other_loss:.6g}, gradients {error:.1e} apart; the bar is {BAR[kind]:.0e}")


def _write_model(shape: Shape, folder: Path) -> None:
    """Random weights and a random adapter, in the files that both read."""
    torch.manual_seed(0)
    model = CausalLM(shape.model())
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)
    save_model(model, folder / "model")
    apply_lora(model, LoraConfig(shape.rank, 2.0 * shape.rank))
    for parameter in lora_parameters(model)[1::2]:
        torch.nn.init.normal_(parameter, std=1e-2)
    save_adapter(model, folder / "adapter")


def _batch(shape: Shape) -> Tensor:
    return torch.randint(0, shape.vocabulary, (shape.sequences, shape.tokens), generator=torch.Generator().manual_seed(1))


def _prompts(shape: Shape) -> Tensor:
    return torch.randint(0, shape.vocabulary, (shape.groups, shape.prompt), generator=torch.Generator().manual_seed(2))


def _ours(shape: Shape, device: str, dtype: torch.dtype, folder: Path) -> Contender:
    from papergym.model.lora import load_adapter

    model = load_adapter(load_model(folder / "model", dtype=dtype, device=device), folder / "adapter").train()
    pairs = [(row[:1], row[1:]) for row in _batch(shape).tolist()]
    engine, prompts = TorchEngine(model), _prompts(shape).tolist()

    def loss() -> Tensor:
        packed = pack(pairs, torch.device(device))
        return -fused_linear_logprob(predicting_hidden(model, packed), model.head_weight, packed.targets).logprob.mean()

    def sample(seed: int) -> int:
        groups = engine.generate(prompts, SamplingParams(n=shape.samples, max_tokens=shape.sampled, seed=seed))
        return sum(len(completion.token_ids) for group in groups for completion in group)

    return Contender("papergym", lora_parameters(model), loss, sample)


def _hugging_face(shape: Shape, device: str, dtype: torch.dtype, folder: Path) -> Contender:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=dtype, device_map=device)
    model = PeftModel.from_pretrained(base, str(folder / "adapter"), is_trainable=True).train()
    ids, prompts = _batch(shape).to(device), _prompts(shape).to(device)
    parameters = [weight for name, weight in model.named_parameters() if weight.requires_grad]
    options = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": None, "pad_token_id": 0}

    def loss() -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    def sample(seed: int) -> int:
        torch.manual_seed(seed)
        model.eval()
        with torch.inference_mode():
            drawn = model.generate(
                input_ids=prompts,
                attention_mask=torch.ones_like(prompts),
                num_return_sequences=shape.samples,
                max_new_tokens=shape.sampled,
                min_new_tokens=shape.sampled,
                **options,
            )
        model.train()
        return drawn[:, shape.prompt :].numel()

    return Contender("Hugging Face, PEFT", parameters, loss, sample)


def _check_values(contender: Contender) -> tuple[float, Tensor]:
    """Loss, and the adapter's whole gradient, both parts of a projection one after the other."""
    loss = contender.loss()
    loss.backward()
    gradient = torch.cat([parameter.grad.flatten().double().cpu() for parameter in contender.parameters])  # type: ignore[union-attr]
    for parameter in contender.parameters:
        parameter.grad = None
    return loss.item(), gradient


def _measure(contender: Contender, shape: Shape, device: str, repeats: int) -> dict[str, Any]:
    optimizer = torch.optim.AdamW(contender.parameters, lr=1e-6)
    taken: dict[str, list[float]] = {name: [] for name in (*PHASES, "sampling")}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = run()
        if device == "cuda":
            torch.cuda.synchronize()
        taken[name].append(time.perf_counter() - start)
        return result

    def step() -> None:
        loss = timed("forward", contender.loss)
        timed("backward", loss.backward)
        timed("optimizer", optimizer.step)
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM_UP):
        step()
    training_peak = peak_bytes(step, device)
    sampling_peak = peak_bytes(lambda: contender.sample(0), device)
    for values in taken.values():
        values.clear()
    for number in range(repeats):
        step()
        drawn = timed("sampling", partial(contender.sample, number))
    tokens = shape.sequences * shape.tokens
    steps = [sum(parts) for parts in zip(*(taken[name] for name in PHASES), strict=True)]
    figures = {name: _spread(taken[name], tokens) for name in PHASES} | {"step": _spread(steps, tokens)}
    return figures | {"sampling": _spread(taken["sampling"], drawn), "step_peak_bytes": training_peak, "sampling_peak_bytes": sampling_peak}


def _spread(seconds: list[float], tokens: int) -> dict[str, float]:
    median = statistics.median(seconds)
    return {"seconds": median, "shortest": min(seconds), "longest": max(seconds), "tokens_per_second": tokens / median}


def _product_rate(device: str, dtype: torch.dtype, size: int = 2048) -> float:
    """FLOP/s of a product of two large matrices, the best of a few."""
    a = torch.randn(size, size, dtype=dtype, device=device)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        a @ a
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _table(records: list[dict[str, Any]], shape: Shape, dtype: str) -> None:
    size = shape.model().num_parameters() / 1e6
    title = f"{size:.0f}M parameters, V = {shape.vocabulary}, {dtype}, {shape.sequences} × {shape.tokens} tokens, {records[0]['device']}"
    table = Table("", *(record["implementation"] for record in records), "ratio", title=title)
    for name in (*PHASES, "step", "sampling"):
        rates = [record[name]["tokens_per_second"] for record in records]
        table.add_row(f"{name}, tokens/s", *(f"{rate:.0f}" for rate in rates), f"{rates[0] / rates[1]:.2f}")
    for name in ("step", "sampling"):
        peaks = [record[f"{name}_peak_bytes"] / 2**20 for record in records]
        table.add_row(f"{name}, peak MiB", *(f"{peak:.0f}" for peak in peaks), f"{peaks[0] / max(peaks[1], 1):.2f}")
    table.add_row("utilisation", *(f"{100 * record['utilisation']:.0f} %" for record in records))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
