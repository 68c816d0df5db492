"""Weights in the layout that the CPU's bf16 matrix multiply wants, for as long as a sampler runs.

oneDNN reorders a plain weight again at every call, which at the few rows of a decoding step costs as much as the product itself. Here the
weights are reordered once; that takes about as long as one step, and a copy of the weights in memory. The copy lives inside one call of the
sampler, so that it can't outlive an update of the weights. Layers that read the same input, and the adapters' A with them, become one
product: at a few rows a call costs more than its arithmetic.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from papergym.model.decoder import CausalLM
from papergym.model.lora import LoraLinear

_ROWS = 16  # the row count that oneDNN picks the layout for; any other number works
_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # of one module, and called with one input


@contextmanager
def prepacked(model: CausalLM) -> Iterator[Callable[[Tensor], Tensor]]:
    """Inside the block the model's linear layers use reordered weights. Yields the head: hidden [..., H] -> logits [..., V].

    The same products in another order of summation. Elsewhere than on a CPU with bf16 instructions nothing changes.
    """
    if not _worthwhile(model.head_weight):
        yield partial(F.linear, weight=model.head_weight)
        return
    groups = [group for module in model.model.modules() for group in _groups(module)]
    try:
        for group in groups:
            joint = _JointProduct(group)
            for index, layer in enumerate(group):
                vars(layer)["forward"] = partial(joint, index)  # hides the class's method
        yield _forward(model.head_weight)
    finally:
        for layer in chain(*groups):
            vars(layer).pop("forward", None)


def _groups(module: nn.Module) -> list[list[nn.Linear]]:
    """The linear layers that are a module's own, those that read one input together."""
    layers = {
        name: child for name, child in module.named_children() if isinstance(child, nn.Linear) and _worthwhile(child.weight)
    }  # an adapter's A and B are fp32
    together = [[layers.pop(name) for name in names] for names in _TOGETHER if all(name in layers for name in names)]
    return together + [[layer] for layer in layers.values()]


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


class _JointProduct:
    """W x + scale · B (A x) for several layers at once: one product with all W and A, one with all B as the blocks of a diagonal.

    Called with a layer's index and the input. The first call with an input computes every layer's output, the others find theirs.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self._sizes = [layer.out_features for layer in layers]
        adapted = [layer for layer in layers if isinstance(layer, LoraLinear) and layer.enabled]
        down = [layer.lora_A.weight.to(layer.weight.dtype) for layer in adapted]
        bias = None
        if any(layer.bias is not None for layer in layers):
            parts = [layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach() for layer in layers]
            bias = torch.cat([*parts, *(part.new_zeros(len(part)) for part in down)])
        self._base = _forward(torch.cat([*(layer.weight.detach() for layer in layers), *down]), bias)
        self._up = None
        if adapted:
            blocks = [
                layer.lora_B.weight.to(layer.weight.dtype) if layer in adapted else layer.weight.new_zeros(layer.out_features, 0)
                for layer in layers
            ]
            self._up, self._scale = _forward(torch.block_diag(*blocks)), adapted[0].config.scale
        self._input: Tensor | None = None
        self._outputs: tuple[Tensor, ...] = ()

    def __call__(self, index: int, x: Tensor) -> Tensor:
        if x is not self._input:
            outputs = self._base(x)
            if self._up is not None:
                width = sum(self._sizes)
                outputs = torch.add(outputs[..., :width], self._up(outputs[..., width:].contiguous()), alpha=self._scale)
            self._input, self._outputs = x, outputs.split(self._sizes, -1)
        output = self._outputs[index]
        if index == len(self._outputs) - 1:  # the last one asks last: let go of the tensors
            self._input, self._outputs = None, ()
        return output
