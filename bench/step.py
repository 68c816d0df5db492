"""`papergym bench step`: a training step, a round of sampling and a whole GRPO step, beside the Hugging Face model with PEFT, TRL and vLLM.

All have the same random weights, adapter and tokens. Checked: the losses of papergym and of the Hugging Face model, and the gradients of
the adapter, must agree. Utilisation is the model's arithmetic over what a large matrix product of the same dtype reaches in the same run.

Legend: B sequences, T tokens of each.
"""

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from papergym.bench import step_peers
from papergym.bench.measure import device_name
from papergym.bench.provenance import provenance
from papergym.errors import InputError
from papergym.files import write_jsonl
from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.lora import LoraConfig, apply_lora, lora_parameters, save_adapter
from papergym.model.weights import save_model
from papergym.planning.memory import Workload, adapter_parameters
from papergym.training.profiling import profile_call, snapshot_memory

PHASES = ("training", "sampling", "GRPO")
BAR = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # of the loss and, relative, of the adapter's gradient


@dataclass(frozen=True)
class Shape:
    """What is run. The model: Qwen3 with a tied head, heads of 64, half as many for keys and values, an MLP three times as wide."""

    hidden: int = 512
    layers: int = 8
    vocabulary: int = 151936
    sequences: int = 8
    tokens: int = 256
    groups: tuple[int, ...] = (1, 8)  # sampled together, of `samples` each
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

    def batch(self) -> Tensor:
        return torch.randint(0, self.vocabulary, (self.sequences, self.tokens), generator=torch.Generator().manual_seed(1))

    def prompts(self, groups: int) -> Tensor:
        return torch.randint(0, self.vocabulary, (groups, self.prompt), generator=torch.Generator().manual_seed(2))


def trace(shape: Shape, device: str, dtype: str, profile: Path | None, memory_snapshot: Path | None) -> None:
    """Traces a GRPO step of papergym instead of timing anything: time into one directory, memory into the other.

    Raises InputError for a directory that is there already.
    """
    _check_device(device)
    for option, directory in (("--profile", profile), ("--memory-snapshot", memory_snapshot)):
        if directory is not None and directory.exists():
            raise InputError(f"{option} {directory}: exists already; name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        _write_model(shape, Path(folder))
        for record, directory in ((profile_call, profile), (snapshot_memory, memory_snapshot)):
            if directory is not None:
                _in_new_process(step_peers.trace, shape, device, getattr(torch, dtype), Path(folder), record, directory)
                print((directory / "operators.txt").read_text(encoding="utf-8"))


def report(
    shape: Shape, device: str, dtype: str, phases: Sequence[str], repeats: int, only: str, vllm_python: str | None, out: Path | None
) -> None:
    """Checks, times and prints a table of some phases of papergym and of the others whose names contain `only`; writes JSON lines to `out`.

    Raises InputError when papergym and the Hugging Face model compute different things.

    vllm_python: the interpreter of an installation that has vLLM and this package.
    """
    _check_device(device)
    kind = getattr(torch, dtype)
    reached = _product_rate(device, kind) if "training" in phases else None
    place = provenance("papergym", "transformers", "peft", "trl")
    records, checks = [], []
    with tempfile.TemporaryDirectory() as folder:
        _write_model(shape, Path(folder))
        for title, measures in _contenders(vllm_python).items():
            asked = [measures[phase] for phase in phases if phase in measures]
            if not asked or (records and only not in title):
                continue
            figures: step_peers.Figures = {}
            for measure in asked:
                figures |= _in_new_process(measure, shape, device, kind, Path(folder), repeats)
            if "check" in figures:
                checks.append(figures.pop("check"))
            what = {
                "device": device_name(device),
                "implementation": title,
                **vars(shape),
                "dtype": dtype,
                "product_flop_per_second": reached,
            }
            utilisation = {"utilisation": shape.flop() / figures["step"]["seconds"] / reached} if "step" in figures else {}
            records.append(place | what | utilisation | figures)
            if out is not None:
                write_jsonl(out, records)  # so far: the whole takes a while
    _table(records, shape, dtype)
    if len(checks) < 2:
        return
    (loss, gradient), (other_loss, other_gradient) = checks
    error = float((gradient - other_gradient).norm() / other_gradient.norm())
    if not (abs(loss - other_loss) <= BAR[kind] * abs(other_loss) and error <= BAR[kind]):
        raise InputError(f"the two disagree: loss {loss:.6g} and {other_loss:.6g}, gradients {error:.1e} apart; the bar is {BAR[kind]:.0e}")


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch sees no GPU here")


def _contenders(vllm_python: str | None) -> dict[str, dict[str, Callable[..., step_peers.Figures]]]:
    """By name and phase."""
    found: dict[str, dict[str, Callable[..., step_peers.Figures]]] = {
        "papergym": {
            "training": step_peers.papergym_training,
            "sampling": step_peers.papergym_sampling,
            "GRPO": step_peers.papergym_grpo,
        },
        "Hugging Face, PEFT": {"training": step_peers.hugging_face_training, "sampling": step_peers.hugging_face_sampling},
    }
    if find_spec("trl") is not None:
        found |= {"TRL SFT": {"training": step_peers.trl_sft}, "TRL GRPO": {"GRPO": step_peers.trl_grpo}}
    if vllm_python is not None:
        found["vLLM"] = {"sampling": partial(step_peers.vllm, vllm_python, True)}
        found["vLLM, no adapter"] = {"sampling": partial(step_peers.vllm, vllm_python, False)}
        found["papergym, no adapter"] = {"sampling": step_peers.papergym_base_sampling}
    return found


def _in_new_process(measure: Callable[..., Any], *arguments: Any) -> Any:
    """So that what one leaves behind in memory and in thread pools is not the next one's."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


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
    """Rates, and how many times those of the others papergym reaches; peaks, and the share of the others' that papergym needs."""
    size = shape.model().num_parameters() / 1e6
    title = f"{size:.0f}M parameters, V = {shape.vocabulary}, {dtype}, {shape.sequences} × {shape.tokens} tokens, {records[0]['device']}"
    table = Table("", *(record["implementation"] for record in records), title=title)
    ours = records[0]
    for name in (field for field, value in ours.items() if isinstance(value, dict) and "tokens_per_second" in value):
        rates = [record[name]["tokens_per_second"] if name in record else None for record in records]
        table.add_row(f"{name}, tokens/s", *(_beside(rates[0], rate, ".0f") for rate in rates))
    for name in (field for field in ours if field.endswith("_peak_bytes")):
        peaks = [record[name] / 2**20 if name in record else None for record in records]
        table.add_row(f"{name.removesuffix('_peak_bytes')}, peak MiB", *(_beside(peaks[0], peak, ".0f") for peak in peaks))
    if "utilisation" in ours:
        table.add_row("utilisation", *(f"{100 * record['utilisation']:.0f} %" if "utilisation" in record else "" for record in records))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _beside(ours: float, value: float | None, form: str) -> str:
    if value is None:
        return ""
    return f"{value:{form}}" if value is ours or not value else f"{value:{form}} ({ours / value:.2f})"
