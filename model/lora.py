"""Low-rank adapters (Hu et al. 2021): y = W x + (alpha / rank) · B A x with W frozen. Stored in PEFT's layout.

Adapters are fp32 parameters whatever the base is in, because an optimizer step of 1e-5 vanishes in bf16; the products run
in the base's dtype.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from papergym.errors import InputError
from papergym.files import read_json, write_json
from papergym.model.decoder import CausalLM
from papergym.model.linear import linear as product
from papergym.model.tensors import fill_parameters, list_safetensors, local_rows, match_tensors, write_safetensors

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_PREFIX = "base_model.model."  # what PEFT's wrappers put before a parameter's name
# What an adapter_config.json may say. Any other option must be off: it could change what the adapter computes.
_PEFT_READ = ("r", "lora_alpha", "lora_dropout", "target_modules")
_PEFT_ALLOWED = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal"),  # the others change the base weights too
}
_PEFT_IGNORED = (
    "auto_mapping",
    "base_model_name_or_path",
    "corda_config",
    "eva_config",
    "inference_mode",
    "loftq_config",
    "lora_ga_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
)


@dataclass(frozen=True)
class LoraConfig:
    """The shape of the adapters: rank r and scale alpha / r on any of the seven projections of every layer.

    dropout: probability on the adapter's input, in training mode. Raises InputError naming the field and the value.
    """

    rank: int = 64
    alpha: float = 128.0
    target_modules: tuple[str, ...] = PROJECTIONS
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise InputError(f"LoRA rank is {self.rank!r}: a positive integer is needed")
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 < self.alpha < math.inf:
            raise InputError(f"LoRA alpha is {self.alpha!r}: a positive number is needed")
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise InputError(f"LoRA dropout is {self.dropout!r}: at least 0 and below 1 is needed")
        names = self.target_modules
        if not isinstance(names, list | tuple | set) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"LoRA target_modules is {self.target_modules!r}: a list with some of {', '.join(PROJECTIONS)} is needed")
        if unknown := sorted(set(self.target_modules) - set(PROJECTIONS)):
            raise InputError(f"LoRA target module {unknown[0]!r} is not supported: use some of {', '.join(PROJECTIONS)}")
        object.__setattr__(self, "target_modules", tuple(name for name in PROJECTIONS if name in self.target_modules))

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A linear layer that keeps its own weight, frozen, and adds a low-rank product. The base's parameters keep their names."""

    def __init__(self, base: nn.Linear, config: LoraConfig) -> None:
        super().__init__(base.in_features, base.out_features, bias=base.bias is not None, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.config, self.enabled = config, True
        self.lora_A, self.lora_B = _fresh_pair(self, base.weight.device)
        self.train(base.training)

    def forward(self, x: Tensor) -> Tensor:
        output = product(x, self.weight, self.bias)
        if not self.enabled:
            return output
        if self.training and self.config.dropout:
            x = F.dropout(x, self.config.dropout)
        low = product(x, self.lora_A.weight.to(x.dtype))  # [..., rank]
        return torch.add(output, product(low, self.lora_B.weight.to(x.dtype)), alpha=self.config.scale)

    def merged_weight(self) -> Tensor:
        """W + scale · B A, summed in at least fp32 and rounded once to the base's dtype."""
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        delta = self.lora_B.weight.to(wide) @ self.lora_A.weight.to(wide)
        return torch.add(self.weight.to(wide), delta, alpha=self.config.scale).to(self.weight.dtype)


def apply_lora(model: CausalLM, config: LoraConfig) -> CausalLM:
    """Freezes the model and gives its target modules adapters, in place; returns it. B is zero, so that no output changes yet.

    Draws every A from torch's global generator; on the meta device `initialise_adapters` does so later. Raises InputError when the model
    already has adapters.
    """
    if lora_config(model) is not None:
        raise InputError("the model already has LoRA adapters: apply new ones to a freshly loaded model")
    model.requires_grad_(False)
    for name, linear in _targets(model, config):
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, LoraLinear(linear, config))
    return model


def initialise_adapters(model: CausalLM) -> None:
    """Gives adapters the values that `apply_lora` would have given them: for a model that was prepared on the meta device, then sharded.

    Every rank draws the whole of one layer's pair at a time and keeps its rows.
    """
    with torch.no_grad():
        for _, module in _adapters(model):
            parts = (module.lora_A, module.lora_B)
            for part, fresh in zip(parts, _fresh_pair(module, local_rows(module.lora_A.weight)[0].device)):
                local, rows = local_rows(part.weight)
                local.copy_(fresh.weight[rows])


def _fresh_pair(linear: "LoraLinear", device: torch.device) -> tuple[nn.Linear, nn.Linear]:
    """A and B as they begin: A from U(-1/sqrt(in), 1/sqrt(in)), as PEFT draws it, and B zero."""
    rank = linear.config.rank
    down = nn.Linear(linear.in_features, rank, bias=False, device=device, dtype=torch.float32)
    up = nn.Linear(rank, linear.out_features, bias=False, device=device, dtype=torch.float32)
    nn.init.kaiming_uniform_(down.weight, a=math.sqrt(5))
    nn.init.zeros_(up.weight)
    return down, up


def lora_config(model: CausalLM) -> LoraConfig | None:
    """The configuration of the model's adapters, or None when it has none."""
    return next((module.config for _, module in _adapters(model)), None)


def lora_parameters(model: CausalLM) -> list[nn.Parameter]:
    """The adapters' A and B, in module order: what an optimizer trains."""
    return [parameter for _, module in _adapters(model) for part in (module.lora_A, module.lora_B) for parameter in part.parameters()]


@contextmanager
def adapters_disabled(model: CausalLM) -> Iterator[None]:
    """Inside the block the model computes what its base does. Nests, and restores the former state after an error too."""
    modules = [module for _, module in _adapters(model)]
    before = [module.enabled for module in modules]
    try:
        for module in modules:
            module.enabled = False
        yield
    finally:
        for module, enabled in zip(modules, before):
            module.enabled = enabled


def adapter_state_dict(model: CausalLM) -> dict[str, Tensor]:
    """The adapters' tensors by parameter name, detached, sharing storage with the model. Raises InputError when it has none."""
    adapters = _adapters(model)
    if not adapters:
        raise InputError("the model has no LoRA adapters")
    return {f"{name}.{part}.weight": getattr(module, part).weight.detach() for name, module in adapters for part in ("lora_A", "lora_B")}


def base_state_dict(model: CausalLM) -> dict[str, Tensor]:
    """The state dict without the adapters: the base model's."""
    return {name: tensor for name, tensor in model.state_dict().items() if ".lora_" not in name}


def merged_state_dict(model: CausalLM, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The base model's state dict, or some of it, with the adapters added to its weights, enabled or not.

    Tensors without an adapter share storage with the model.
    """
    adapters = {f"{name}.weight": module for name, module in _adapters(model)}
    chosen = {name: tensor for name, tensor in base_state_dict(model).items() if names is None or name in names}
    return {name: adapters[name].merged_weight().detach() if name in adapters else tensor for name, tensor in chosen.items()}


def save_adapter(model: CausalLM, directory: str | Path, state: Mapping[str, Tensor] | None = None) -> None:
    """Writes adapter_config.json and adapter_model.safetensors (fp32) as PEFT and vLLM read them.

    state: the values to write, by parameter name, in place of the model's own: those of a sharded model are in parts.
    """
    directory, state = Path(directory), adapter_state_dict(model) if state is None else state
    config = next(module.config for _, module in _adapters(model))
    write_safetensors(directory / ADAPTER_FILES[1], {_PREFIX + name: tensor for name, tensor in state.items()})
    write_json(
        directory / ADAPTER_FILES[0],
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": None,
            "inference_mode": True,
            "r": config.rank,
            "lora_alpha": int(config.alpha) if config.alpha == int(config.alpha) else config.alpha,
            "lora_dropout": config.dropout,
            "target_modules": list(config.target_modules),
            "bias": "none",
            "fan_in_fan_out": False,
            "init_lora_weights": True,
            "modules_to_save": None,
            "use_dora": False,
            "use_rslora": False,
        },
    )


def load_adapter(model: CausalLM, directory: str | Path) -> CausalLM:
    """Reads an adapter in PEFT's layout into the model, in place, and returns it. Applies LoRA unless the same shape of it is there.

    Everything is checked first: after an error the model is as it was. Raises InputError naming the file and the option that
    isn't supported, or the tensor and the shapes that belong to another model.
    """
    directory = Path(directory)
    config = read_adapter_config(directory)
    file = directory / ADAPTER_FILES[1]
    if not file.is_file():
        raise InputError(f"{directory}: no adapter_model.safetensors in it; adapters in other formats are not read")
    present = lora_config(model)
    if present is not None and (present.rank, present.alpha, present.target_modules) != (config.rank, config.alpha, config.target_modules):
        raise InputError(f"{directory}: the adapter is {config}, but the model already has {present}")
    shapes: dict[str, tuple[int, ...]] = {}
    for name, linear in _targets(model, config):
        shapes[f"{_PREFIX}{name}.lora_A.weight"] = (config.rank, linear.in_features)
        shapes[f"{_PREFIX}{name}.lora_B.weight"] = (linear.out_features, config.rank)
    tensors = match_tensors(list_safetensors(file), shapes, file, f"an adapter of this rank for this {model.config.architecture} model")
    if present is None:
        apply_lora(model, config)
    fill_parameters(model, {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()})
    return model


def check_adapter(directory: str | Path) -> None:
    """Whether an adapter's two files are there and whole, by their headers and sizes. Raises InputError naming the file and the remedy."""
    try:
        read_adapter_config(directory)
        file = Path(directory) / ADAPTER_FILES[1]
        if not file.is_file():
            raise InputError(f"{directory}: no {file.name} in it")
        list_safetensors(file)
    except InputError as error:
        raise InputError(f"{error}; remove {directory}, and the training writes it again from its last checkpoint") from error


def _adapters(model: CausalLM) -> list[tuple[str, LoraLinear]]:
    return [(name, module) for name, module in model.named_modules() if isinstance(module, LoraLinear)]


def _targets(model: CausalLM, config: LoraConfig) -> list[tuple[str, nn.Linear]]:
    """The layers' projections that the configuration names, with or without adapters."""
    linears = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if experts := [name for name, _ in linears if ".experts." in name and name.rpartition(".")[2] in config.target_modules]:
        raise InputError(
            f"LoRA target_modules include {experts[0].rpartition('.')[2]}, but the experts of a mixture take no adapters: "
            f"set target_modules to some of {', '.join(PROJECTIONS[:4])}"
        )
    return [(name, module) for name, module in linears if name.rpartition(".")[2] in config.target_modules]


def read_adapter_config(directory: str | Path) -> LoraConfig:
    """The configuration of an adapter in PEFT's layout. Raises InputError naming the file and the option that is not supported."""
    file = Path(directory) / ADAPTER_FILES[0]
    if not file.is_file():
        raise InputError(f"{file.parent}: no {file.name} in it, so it is not an adapter in PEFT's layout")
    options = read_json(file)
    if not isinstance(options, dict):
        raise InputError(f"{file}: a JSON object is needed, not {type(options).__name__}")
    for name, allowed in _PEFT_ALLOWED.items():
        if options.get(name, allowed[0]) not in allowed:
            raise InputError(f"{file}: {name} {options[name]!r} is not supported: use one of {', '.join(map(repr, allowed))}")
    for name, value in options.items():
        if value and name not in (*_PEFT_READ, *_PEFT_ALLOWED, *_PEFT_IGNORED):
            raise InputError(f"{file}: the option {name} ({value!r}) is not supported: only plain LoRA is")
    if missing := [name for name in ("r", "lora_alpha", "target_modules") if name not in options]:
        raise InputError(f"{file}: {missing[0]} is missing")
    try:
        return LoraConfig(options["r"], options["lora_alpha"], options["target_modules"], options.get("lora_dropout", 0.0))
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
