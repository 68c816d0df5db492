"""The steps of decoding that the CPU library has for fp32 and bf16, for few rows: every sum is in fp32, the result is rounded once.

Shapes: R rows, H inputs, O outputs; for attention see model/generation/cache.py.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from papergym.kernels.cpu import library, pointers

_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def available(tensor: Tensor) -> bool:
    """Whether tensors like this one, of this dtype and device, can be used here on this machine."""
    return tensor.device.type == "cpu" and tensor.dtype in _NAMES and library() is not None


def pack(weight: Tensor) -> Tensor:
    """A copy of a weight [O, H] in the order in which `product` reads it: [O / B rounded up, H, B] for blocks of B outputs, as many as fit
    two registers of fp32. In bf16 outputs i and B / 2 + i of a block lie side by side."""
    outputs, inputs = weight.shape
    block = library().papergym_packed_outputs()
    halves = F.pad(weight.detach(), (0, 0, 0, -outputs % block)).view(-1, 2, block // 2, inputs)
    order = (0, 3, 2, 1) if weight.dtype == torch.bfloat16 else (0, 3, 1, 2)
    return halves.permute(order).contiguous().view(-1, inputs, block)


def product(x: Tensor, packed: Tensor, outputs: int, bias: Tensor | None = None) -> Tensor:
    """x [..., H] · weightᵀ + bias -> [..., O], in the packed weight's dtype. bias [O] fp32."""
    rows = x.float().contiguous()
    out = packed.new_empty(*x.shape[:-1], outputs)
    shift = None if bias is None else bias.data_ptr()
    count, inputs = x.shape[:-1].numel(), x.shape[-1]
    _function("product", packed)(*pointers(packed, rows), count, inputs, outputs, shift, *pointers(out), torch.get_num_threads())
    return out


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight over the last dimension, in the weight's dtype."""
    x, weight = x.to(weight.dtype).contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    _function("rms_norm", x)(*pointers(x, weight), x.numel() // x.shape[-1], x.shape[-1], eps, *pointers(out))
    return out


def draw(logits: Tensor, uniforms: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Token ids [R] int64 and their log-probs [R] fp32 under softmax(logits / temperature): the running sum inverted at uniforms [R] fp64.

    logits [R, V]; columns of -inf are never drawn. A row with NaN, with +inf or with nothing finite has the log-prob NaN.
    """
    rows, uniforms = logits.contiguous(), uniforms.double().contiguous()
    ids = torch.empty(len(rows), dtype=torch.int64)
    logprobs = torch.empty(len(rows))
    used = pointers(uniforms, ids, logprobs)
    _function("draw", rows)(*pointers(rows), len(rows), rows.shape[1], temperature, *used, torch.get_num_threads())
    return ids, logprobs


class Sizes(ctypes.Structure):
    """Of one call of `attend`: rows R, groups G, key heads h, places of a group N, queries a key head r, head_dim D, columns of prompts P,
    columns of own keys in use W, and allocated."""

    _fields_ = [(name, ctypes.c_int64) for name in ("rows", "groups", "heads", "places", "shared", "dim", "prompt", "width", "allocated")]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    prompts: tuple[Tensor, Tensor],
    own: tuple[Tensor, Tensor],
    width: int,
    places: Tensor,
    lengths: Tensor,
    starts: Tensor,
) -> Tensor:
    """Writes the rows' newest keys and values [R, h, 1, D] to column width - 1 of `own`; query [R, h·r, 1, D] -> [R, h·r, 1, D].

    prompts: keys and values [G, h, P, D], of which `lengths` [G] columns count. own: those of [G, h, N, allocated, D], which count from
    column `starts` [G, N] on. places [R]: where each row is, ascending, as group · N + place. All three are int64.
    """
    groups, heads, room, allocated, dim = own[0].shape
    rows = len(query)
    sizes = Sizes(rows, groups, heads, room, query.shape[1] // heads, dim, prompts[0].shape[2], width, allocated)
    inputs = [x.to(own[0].dtype).contiguous() for x in (query, key, value)]
    out = torch.empty_like(inputs[0])
    used = pointers(places, lengths, starts, *inputs, *prompts, *own, out)
    _function("attend", out)(ctypes.byref(sizes), *used, torch.get_num_threads())
    return out


def _function(name: str, like: Tensor) -> Callable[..., Any]:
    return getattr(library(), f"papergym_{name}_{_NAMES[like.dtype]}")
