"""Weights in the layout that the CPU's bf16 matrix multiply wants, for as long as a sampler runs.

oneDNN reorders a plain weight again at every call, which at the few rows of a decoding step costs as much as the product itself. Here each
linear layer's weight is reordered once; that takes about as long as one step, and a copy of the weights in memory. The copy lives inside
one call of the sampler, so that it can't outlive an update of the weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from papergym.model.decoder import CausalLM
from papergym.model.lora import LoraLinear

_ROWS = 16  # the row count that oneDNN picks the layout for; any other number works


@contextmanager
def prepacked(model: CausalLM) -> Iterator[Callable[[Tensor], Tensor]]:
    """Inside the block the model's linear layers use reordered weights. Yields the head: hidden [..., H] -> logits [..., V].

    The same products in another order of summation. Elsewhere than on a CPU with bf16 instructions nothing changes.
    """
    if not _worthwhile(model.head_weight):
        yield partial(F.linear, weight=model.head_weight)
        return
    layers = [module for module in model.model.modules() if isinstance(module, nn.Linear) and _worthwhile(module.weight)]
    try:
        for layer in layers:
            product = _lora_forward(layer) if isinstance(layer, LoraLinear) else _forward(layer.weight, layer.bias)
            vars(layer)["forward"] = product  # hides the class's method
        yield _forward(model.head_weight)
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _worthwhile(weight: Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _forward(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _lora_forward(layer: LoraLinear) -> Callable[[Tensor], Tensor]:
    base = _forward(layer.weight, layer.bias)
    if not layer.enabled:
        return base
    down, up = (_forward(part.weight.to(layer.weight.dtype)) for part in (layer.lora_A, layer.lora_B))
    return lambda x: torch.add(base(x), up(down(x)), alpha=layer.config.scale)
