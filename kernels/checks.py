"""Argument checks that the fused operations share. Every message names both sides of the disagreement."""

import functools
import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch

from papergym.errors import InputError
from papergym.registry import resolve


def require(condition: bool, message: str) -> None:
    """Raises InputError with the message unless the condition holds."""
    if not condition:
        raise InputError(message)


def shape(tensor: torch.Tensor) -> str:
    """A shape as it is written in a message: [3, 64]."""
    return str(list(tensor.shape))


def check_projection(hidden_name: str, hidden: torch.Tensor, head_name: str, head: torch.Tensor) -> None:
    """Checks that hidden [N, H] can be projected by head [V, H]: two dimensions, one width, floating point, one device."""
    both = f"{hidden_name} is {shape(hidden)}, {head_name} is {shape(head)}"
    require(hidden.dim() == 2 and head.dim() == 2, f"{both}: both must have two dimensions, [rows, width] and [vocabulary, width]")
    require(hidden.shape[1] == head.shape[1], f"{both}: their widths differ")
    require(head.shape[0] > 0 and head.shape[1] > 0, f"{both}: the vocabulary and the width must not be empty")
    for name, tensor in ((hidden_name, hidden), (head_name, head)):
        require(tensor.is_floating_point(), f"{name} {shape(tensor)} has dtype {tensor.dtype}: use a floating-point dtype")
    check_device(hidden_name, hidden, head_name, head)


def check_rows(first_name: str, first: torch.Tensor, second_name: str, second: torch.Tensor) -> None:
    """Checks that two tensors have the same number of rows and one device."""
    require(
        first.shape[:1] == second.shape[:1],
        f"{first_name} is {shape(first)}, {second_name} is {shape(second)}: their numbers of rows differ",
    )
    check_device(first_name, first, second_name, second)


def check_device(first_name: str, first: torch.Tensor, second_name: str, second: torch.Tensor) -> None:
    """Checks that two tensors lie on one device."""
    require(
        first.device == second.device,
        f"{first_name} {shape(first)} is on {first.device}, {second_name} {shape(second)} on {second.device}: move them to one device",
    )


def check_positive(name: str, value: float) -> None:
    """Checks that a number is finite and above 0."""
    require(math.isfinite(value) and value > 0, f"{name} is {value}: it must be finite and above 0")


def check_mask(name: str, mask: torch.Tensor) -> None:
    """Checks that a mask is [rows] of bool."""
    require(mask.dim() == 1 and mask.dtype == torch.bool, f"{name} is {shape(mask)} {mask.dtype}: it must be [rows] of torch.bool")


def check_targets(name: str, targets: torch.Tensor, head_name: str, head: torch.Tensor) -> None:
    """Checks that targets are [rows] of integers inside the vocabulary of head [V, H]."""
    kind = targets.dtype
    integer = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    require(targets.dim() == 1 and integer, f"{name} is {shape(targets)} {kind}: it must be [rows] of an integer dtype")
    if targets.numel() == 0:
        return
    low, high = (int(bound) for bound in targets.aminmax())
    require(
        low >= 0 and high < head.shape[0],
        f"{name} {shape(targets)} holds ids from {low} to {high}, {head_name} is {shape(head)}: ids must lie in 0 to {head.shape[0] - 1}",
    )


def find_backend(name: str, builtins: Mapping[str, str], *tensors: torch.Tensor, twin: bool = True) -> Callable:
    """The function of a backend. "auto" is `triton` where it can run (a GPU, Triton, no fp64, a twin of the divergence), else `torch`."""
    if name == "auto":
        able = twin and tensors[0].is_cuda and find_spec("triton") is not None and all(t.dtype != torch.float64 for t in tensors)
        name = "triton" if able else "torch"
    require(name in builtins, f"backend {name!r} is not available: use one of auto, {', '.join(sorted(builtins))}")
    return resolve("backend", name, builtins)


def differentiable_once(backward: Callable) -> Callable:
    """Decorator of an autograd.Function's backward: its gradients are constants, and to differentiate them raises InputError.

    The inputs must be among the saved tensors. torch.autograd's once_differentiable lets a gradient pass silently as a constant where
    the upstream gradient is one, as in grad(divergence.sum(), hidden, create_graph=True).
    """

    @functools.wraps(backward)
    def wrapped(ctx, *upstream):
        with torch.no_grad():
            gradients = backward(ctx, *upstream)
        if not torch.is_grad_enabled():
            return gradients
        sources = [tensor for tensor in (*ctx.saved_tensors, *upstream) if tensor is not None and tensor.requires_grad]
        return tuple(None if gradient is None else _Constant.apply(gradient, *sources) for gradient in gradients)

    return wrapped


class _Constant(torch.autograd.Function):
    """The gradient, attached to what it was computed from."""

    @staticmethod
    def forward(ctx, gradient, *sources):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise InputError("the fused operations have no second derivative: use backend 'reference', which is plain autograd")
