"""The configuration tables that SFT, OPSD and GRPO share. Each trainer adds its own table beside them."""

import math
from dataclasses import dataclass, field
from typing import Literal

from papergym.errors import InputError
from papergym.model.lora import LoraConfig

SMALLEST, LARGEST = 1e-30, 1e30  # what fp32 can square root, divide by and multiply without leaving its range
MOST = 10**6  # sequences that a step may ask for of one kind: more is a slip of the keyboard


@dataclass(frozen=True)
class RunTable:
    """Where a run is written, how long it is and what makes it repeatable."""

    dir: str
    steps: int  # optimizer steps
    seed: int = 0
    checkpoint_every: int = 10  # steps; the last step is always kept
    keep_checkpoints: int = 2
    best_by: str | None = None  # a metric: the checkpoint where its mean is highest is kept too, or after a minus, "-loss", lowest
    checkpoint_in_background: bool = False  # write from a copy while the next steps run
    profile: int = 0  # steps to trace with torch.profiler, from the second one on, into DIR/profile

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint_every", "keep_checkpoints"):
            at_least(self, "run", name, 1)
        within(self, "run", "seed", 0, 2**63 - 1)
        within(self, "run", "profile", 0, self.steps - 1)


@dataclass(frozen=True)
class ModelTable:
    """The policy. path: Hugging Face directory, .gguf or "smollm2-135m". adapter: PEFT directory to go on training from."""

    path: str
    adapter: str | None = None
    dtype: Literal["bfloat16", "float32"] = "bfloat16"  # of the frozen base; LoRA weights are always float32
    device: str = "cpu"
    # What backward recomputes: nothing; all but the matrix products and attention; every layer whole, for a third more FLOP.
    activation_checkpointing: Literal["none", "selective", "full"] = "none"

    def __post_init__(self) -> None:
        if self.device.partition(":")[0] == "meta":
            raise InputError(f"key 'model.device' has the value {self.device!r}: it holds no numbers to train; use cpu or cuda")


@dataclass(frozen=True)
class DataTable:
    """The environments to train on, how many a step, and how their prompts are made."""

    train: str
    prompts_per_step: int = 8
    thinking: bool = True  # the chat template's switch; a template without one ignores it
    tokens_per_micro_batch: int = 8192  # packed tokens a forward pass; does not change the gradient

    def __post_init__(self) -> None:
        within(self, "data", "prompts_per_step", 1, MOST)
        at_least(self, "data", "tokens_per_micro_batch", 1)


@dataclass(frozen=True)
class SamplingTable:
    """How rollouts are drawn from the policy."""

    max_tokens: int = 1024
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        at_least(self, "sampling", "max_tokens", 1)
        above_zero(self, "sampling", "temperature")
        within(self, "sampling", "temperature", 0.01, 100.0)
        within(self, "sampling", "top_p", 0.0, 1.0)
        above_zero(self, "sampling", "top_p")
        at_least(self, "sampling", "top_k", 0)


@dataclass(frozen=True)
class OptimTable:
    """AdamW on the LoRA weights, with linear warm-up and then a schedule over the remaining steps."""

    lr: float = 1e-5
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        at_least(self, "optim", "warmup_steps", 0)
        above_zero(self, "optim", "max_grad_norm")
        within(self, "optim", "lr", SMALLEST, 1000.0)  # a step of AdamW is about as long
        within(self, "optim", "eps", SMALLEST, LARGEST)  # 0 in fp32 would make 0 / 0 of the first step of a weight without gradient
        within(self, "optim", "weight_decay", 0.0, 1.0)
        for name in ("beta1", "beta2"):
            within(self, "optim", name, 0.0, 0.9999999)


@dataclass(frozen=True)
class DistributedTable:
    """Choices that several ranks share, see docs/training.md; one process has no use for them."""

    cpu_offload: bool = False  # weights and optimizer state in host memory, gathered to the GPU layer by layer
    timeout: float = 1800.0  # seconds that a rank waits for the others before it ends the job

    def __post_init__(self) -> None:
        within(self, "distributed", "timeout", 0.001, 1e7)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What every trainer's configuration holds."""

    run: RunTable
    model: ModelTable
    data: DataTable
    lora: LoraConfig | None = None  # of a fresh adapter, LoraConfig() by default; must agree with model.adapter where both are given
    optim: OptimTable = field(default_factory=OptimTable)
    distributed: DistributedTable = field(default_factory=DistributedTable)

    def __post_init__(self) -> None:
        if self.lora is not None:
            check_lora(self.lora, "lora")


def check_lora(lora: LoraConfig, prefix: str) -> None:
    """Raises InputError for a shape of adapters that no machine can hold and a scale that fp32 can't."""
    within(lora, prefix, "rank", 1, 2**16)
    within(lora, prefix, "alpha", SMALLEST, 1e6)


def within(table: object, prefix: str, name: str, low: float, high: float = float("inf")) -> None:
    """Raises InputError when a field of a table lies outside a closed interval, or is not finite."""
    value = getattr(table, name)
    if not (math.isfinite(value) and low <= value <= high):
        raise InputError(f"key '{prefix}.{name}' has the value {value}: a number from {low:g} to {high:g} is needed")


def above_zero(table: object, prefix: str, *names: str) -> None:
    """Raises InputError when a field of a table is not above 0, or out of the range that fp32 can compute with."""
    for name in names:
        value = getattr(table, name)
        if not 0 < value < math.inf:
            raise InputError(f"key '{prefix}.{name}' has the value {value}: a finite number above 0 is needed")
        within(table, prefix, name, SMALLEST, LARGEST)


def at_least(table: object, prefix: str, name: str, least: int) -> None:
    """Raises InputError when a field of a table is below a bound, or a fraction out of the range that fp32 can compute with."""
    value = getattr(table, name)
    if not least <= value < math.inf:
        number = f"at least {least}" if math.isfinite(value) else f"a finite number of at least {least}"
        raise InputError(f"key '{prefix}.{name}' has the value {value}: {number} is needed")
    if isinstance(value, float):
        within(table, prefix, name, least, LARGEST)
