"""Linear layers that are fast on every CPU: where it has no bf16 instructions, bf16 products run in fp32."""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function


@cache
def _cpu_multiplies_bf16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def multiplies_bf16(tensor: Tensor) -> bool:
    """Whether the device of this tensor has instructions for bf16 products."""
    return tensor.device.type != "cpu" or _cpu_multiplies_bf16()


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., I] · weightᵀ [I, O] + bias [O]. bf16 on a CPU without bf16 instructions is summed in fp32 and rounded once."""
    if weight.dtype == torch.bfloat16 and not multiplies_bf16(weight):
        return _ThroughFp32.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """nn.Linear by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


# An operator of its own, so that selective checkpointing keeps its rounded result and not the fp32 product inside.
_LIBRARY = torch.library.Library("papergym", "FRAGMENT")
_LIBRARY.define("linear_through_fp32(Tensor x, Tensor weight, Tensor? bias) -> Tensor")


@torch.library.impl(_LIBRARY, "linear_through_fp32", "CompositeExplicitAutograd")
def _linear_through_fp32(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


class _ThroughFp32(Function):
    """oneDNN's emulated bf16 products take three times as long as a conversion and fp32 ones. Keeps what F.linear keeps, in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return torch.ops.papergym.linear_through_fp32(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wide = gradient.float()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = (wide @ weight.float()).to(gradient.dtype)
        if ctx.needs_input_grad[1]:
            of_weight = (wide.flatten(0, -2).T @ x.float().flatten(0, -2)).to(gradient.dtype)
        if ctx.needs_input_grad[2]:
            of_bias = wide.flatten(0, -2).sum(0).to(gradient.dtype)
        return of_x, of_weight, of_bias
