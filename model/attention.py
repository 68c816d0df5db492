"""Rotary position embeddings and the masks of training: causal, packed sequences, and groups of completions that share their prompt.

Shapes: B batch, T tokens, Hq query heads, Hkv key and value heads, D head_dim.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# attend(layer index, query [B,Hq,T,D], key [B,Hkv,T,D], value [B,Hkv,T,D]) -> [B,Hq,T,D]; query and key after QK-norm and RoPE
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class RotaryTable:
    """cos and sin of every position, computed in fp32 once per device and dtype.

    Not a buffer: a buffer would be rounded with the model's weights and stay rounded after a cast back, and it would have to
    be filled by hand in a model that was built on the meta device.
    """

    def __init__(self, head_dim: int, theta: float, max_positions: int) -> None:
        self.head_dim, self.theta, self.max_positions = head_dim, theta, max_positions
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __call__(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin, each [max_positions, D]. The first half of sin is negated, ready for `rotate`."""
        if (device, dtype) not in self._tables:
            # A table made in inference mode, by a sampler, could not be used in training.
            with torch.inference_mode(False), torch.no_grad():
                self._tables[device, dtype] = self._compute(device, dtype)
        return self._tables[device, dtype]

    def _compute(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        angles = torch.outer(torch.arange(self.max_positions, dtype=torch.float32, device=device), 1.0 / self.theta**exponents)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the half-rotation layout of the Hugging Face models: dimension i turns with dimension i + D/2. x [B,H,T,D]."""
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)


def causal_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every token sees itself and those before it. A batch padded on the right needs no mask: padding comes after every real token."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def packed_attention(lengths: Sequence[int]) -> Attend:
    """Causal attention inside each of the sequences that lie one after the other in a batch of one."""
    return shared_prefix_attention([(length, ()) for length in lengths])


def shared_prefix_attention(groups: Sequence[tuple[int, Sequence[int]]]) -> Attend:
    """Attention over groups that lie one after the other in a batch of one, each a prompt and then its completions.

    groups: (prompt tokens, tokens of each completion). A completion sees the whole prompt and itself causally, no other completion, so that
    the prompt of a group is computed once. Positions of every completion go on from its prompt: the caller passes them.
    """
    parts = [length for prompt, completions in groups for length in (prompt, *completions)]
    masks: dict[tuple[int, int], Tensor] = {}  # the layers share them
    spans: list[Tensor] = []

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = (_with_prompts(x.split(parts, dim=2), groups) for x in (key, value))
        kernel = varlen_kernel(query)
        if kernel is not None:
            lengths = [x.shape[2] for x in keys]
            if not spans:
                spans[:] = [_cumulative(sizes, query.device) for sizes in (parts, lengths)]
            rows = [x[0].transpose(0, 1) for x in (query, torch.cat(keys, dim=2), torch.cat(values, dim=2))]  # [T, heads, D]
            return kernel(*rows, *spans, max(parts), max(lengths))[None].transpose(1, 2)  # [1, T, Hq, D] in memory
        outputs = []
        for q, k, v in zip(query.split(parts, dim=2), keys, values, strict=True):
            if q.shape[2] == k.shape[2]:
                outputs.append(causal_attention(layer, q, k, v))
                continue
            shape = q.shape[2], k.shape[2]
            if shape not in masks:
                masks[shape] = _behind_prefix(*shape, like=q)
            outputs.append(F.scaled_dot_product_attention(q, k, v, attn_mask=masks[shape], enable_gqa=True))
        return torch.cat(outputs, dim=2)

    return attend


def varlen_kernel(query: Tensor) -> Callable[..., Any] | None:
    """One call for all sequences of a packed row, or None where no such kernel runs: off the GPU, and for other than half precision.

    The kernel takes query [T, Hq, D], key and value [K, Hkv, D], their boundaries [n + 1] int32 and longest lengths. Query t of a sequence
    sees its keys but for the last (queries - 1 - t). It is flash-attn's, or PyTorch's from 2.12 on, which keep no scores.
    """
    if not query.is_cuda or query.dtype not in (torch.bfloat16, torch.float16):
        return None
    if find_spec("flash_attn") is not None:
        from flash_attn import flash_attn_varlen_func

        return partial(flash_attn_varlen_func, causal=True)
    return torch_varlen()


@cache
def torch_varlen() -> Callable[..., Any] | None:
    """PyTorch's own kernel, if this version has it."""
    if find_spec("torch.nn.attention.varlen") is None:
        return None
    from torch.nn.attention.varlen import varlen_attn

    if "enable_gqa" not in signature(varlen_attn).parameters:
        return None
    return partial(varlen_attn, window_size=(-1, 0), enable_gqa=True)


def _with_prompts(parts: Sequence[Tensor], groups: Sequence[tuple[int, Sequence[int]]]) -> list[Tensor]:
    """What each sequence sees, along the third dimension: a prompt itself, a completion its prompt and itself."""
    left, seen = iter(parts), []
    for _, completions in groups:
        prompt = next(left)
        seen.append(prompt)
        seen.extend(torch.cat((prompt, next(left)), dim=2) for _ in completions)
    return seen


def _cumulative(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def _behind_prefix(tokens: int, keys: int, like: Tensor) -> Tensor:
    """[tokens, keys], to be added to the scores: token t does not see the last (tokens - 1 - t) keys."""
    mask = torch.full((tokens, keys), float("-inf"), dtype=like.dtype, device=like.device)
    return mask.triu_(diagonal=keys - tokens + 1)
