"""A model made ready for decoding on a CPU while a sampler runs: its weights in the layout that few rows want, each norm one call.

PyTorch reorders a plain bf16 weight again at every call, which at the few rows of a decoding step costs as much as the product itself, and
its fp32 products read the weights at a third of the memory's speed. Here the weights are reordered once; that takes about as long as one
step, and a copy of the weights in memory. The copy lives inside one call of the sampler, so that it can't outlive an update of the weights.
oneDNN has the products where the processor has bf16 instructions, kernels/cpu elsewhere. Layers that read the same input, and the adapters'
A with them, become one product: at a few rows a call costs more than its arithmetic.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from threading import RLock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from papergym.kernels.cpu import decoding
from papergym.model.decoder import CausalLM, RMSNorm
from papergym.model.linear import multiplies_bf16
from papergym.model.lora import LoraLinear

_ONE_AT_A_TIME = RLock()  # two threads that sample from one model would take each other's layers
_ROWS = 16  # the row count that oneDNN picks the layout for; any other number works
_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # of one module, and called with one input


@contextmanager
def prepacked(model: CausalLM) -> Iterator[Callable[[Tensor], Tensor]]:
    """Inside the block the model's linear layers use reordered weights. Yields the head: hidden [..., H] -> logits [..., V].

    The same products in another order of summation. On a GPU, and where the CPU has neither route, nothing changes.
    """
    if _packing(model.head_weight) is None:
        yield partial(F.linear, weight=model.head_weight)
        return
    with _ONE_AT_A_TIME:
        yield from _prepacked(model)


def _prepacked(model: CausalLM) -> Iterator[Callable[[Tensor], Tensor]]:
    groups = [group for module in model.model.modules() for group in _groups(module)]
    norms = [module for module in model.model.modules() if isinstance(module, RMSNorm) and decoding.available(module.weight)]
    try:
        for group in groups:
            joint = _JointProduct(group)
            for index, layer in enumerate(group):
                vars(layer)["forward"] = partial(joint, index)  # hides the class's method
        for norm in norms:
            vars(norm)["forward"] = partial(decoding.rms_norm, weight=norm.weight, eps=norm.eps)
        yield _forward(model.head_weight)
    finally:
        for layer in chain(norms, *groups):
            vars(layer).pop("forward", None)


def _groups(module: nn.Module) -> list[list[nn.Linear]]:
    """The linear layers that are a module's own, those that read one input together."""
    if isinstance(module, LoraLinear):
        return []  # A and B are part of the layer's own product
    layers = {name: child for name, child in module.named_children() if isinstance(child, nn.Linear) and _packing(child.weight)}
    together = [[layers.pop(name) for name in names] for names in _TOGETHER if all(name in layers for name in names)]
    return together + [[layer] for layer in layers.values()]


def _packing(weight: Tensor) -> Callable[[Tensor, Tensor | None], Callable[[Tensor], Tensor]] | None:
    """What makes a product of a weight and a bias like these, or None where PyTorch's own is best."""
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and multiplies_bf16(weight):
        return _packed_by_onednn
    return _packed_here if decoding.available(weight) else None


def _packed_by_onednn(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")


def _packed_here(weight: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    packed, bias = decoding.pack(weight), None if bias is None else bias.float()
    return partial(decoding.product, packed=packed, outputs=len(weight), bias=bias)


def _forward(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    return _packing(weight)(weight.detach(), bias)


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
