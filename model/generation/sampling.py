"""What to sample, what came out, and the draw itself: one uniform number a token, from a stream that belongs to the sample alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from papergym.errors import InputError
from papergym.kernels.cpu import decoding

_BLOCK = 256  # vocabulary entries summed at once
_NUCLEUS_SIZES = (256, 4096)  # candidates to look at for a nucleus before sorting the whole vocabulary


@dataclass(frozen=True)
class SamplingParams:
    """How to sample. Raises InputError naming the field and the value.

    n: completions a prompt. temperature: divides the logits; 0 takes the likeliest token. top_k: keep the k likeliest tokens, 0 keeps all.
    top_p: of those, keep the smallest set with at least this probability. max_tokens: length limit of a completion, stop token included.
    seed: same seed, same completions; None draws one. first_prompt: the number of the first prompt within a larger batch, of which these
    prompts are a part: they then get what they would get there.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1024
    seed: int | None = None
    first_prompt: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # numpy's numbers are numbers, but JSON can't hold them
            if isinstance(value, Integral | Real) and not isinstance(value, bool):
                object.__setattr__(self, name, int(value) if isinstance(value, Integral) else float(value))
        self._check("n", _is_int(self.n) and self.n >= 1, "an integer from 1")
        self._check("temperature", _is_number(self.temperature) and 0 <= self.temperature < math.inf, "a number from 0")
        self._check("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "a number above 0 and at most 1")
        self._check("top_k", _is_int(self.top_k) and self.top_k >= 0, "an integer from 1, or 0 to keep all tokens,")
        self._check("max_tokens", _is_int(self.max_tokens) and self.max_tokens >= 1, "an integer from 1")
        self._check("seed", self.seed is None or (_is_int(self.seed) and self.seed >= 0), "an integer from 0, or none,")
        self._check("first_prompt", _is_int(self.first_prompt) and self.first_prompt >= 0, "an integer from 0")

    def _check(self, name: str, valid: bool, needed: str) -> None:
        if not valid:
            raise InputError(f"sampling {name} is {getattr(self, name)!r}: {needed} is needed")


@dataclass(frozen=True)
class Completion:
    """One sampled continuation.

    token_ids: with the stop token at the end if there is one. logprobs: nats, of each token under softmax(logits / temperature), before
    top-k and top-p; at temperature 0 under softmax(logits). finish_reason: "stop" | "length".
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: str


def uniform_stream(seed: int, prompt: int, sample: int) -> Iterator[float]:
    """Uniform numbers in [0, 1), one a token: they depend on the three numbers alone, never on what else is in the batch."""
    generator = np.random.default_rng((seed, prompt, sample))
    while True:
        yield from generator.random(256).tolist()


def draw(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draws one token a row by inverting the cumulative distribution. logits [R, V], any dtype; uniforms [R], float64, in [0, 1).

    Returns token ids [R] and their log-probs [R] (fp32, nats, see Completion), NaN for a row whose logits are not finite.
    """
    if params.temperature and not params.top_k and params.top_p == 1 and decoding.available(logits):
        return decoding.draw(logits, uniforms, params.temperature)
    if params.temperature not in (0, 1):
        logits = logits.float() / params.temperature
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float32)
    if params.temperature == 0:
        ids = logits.argmax(-1)
    elif params.top_k or params.top_p < 1:
        kept, tokens = _truncate(probabilities, params)
        ids = tokens.gather(-1, _invert(kept, uniforms)[:, None])[:, 0]
    else:
        ids = _invert(probabilities, uniforms)
    return ids, probabilities.gather(-1, ids[:, None])[:, 0].log()


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index [R] of the first entry at which the running sum of weights [R, C] exceeds uniform · total.

    Finds the block by the blocks' sums first: a running sum over a whole vocabulary costs more than all the rest of a draw.
    """
    size = weights.shape[-1]
    whole = size - size % _BLOCK
    sums = torch.cat((weights[:, :whole].unflatten(-1, (-1, _BLOCK)).sum(-1), weights[:, whole:].sum(-1, keepdim=True)), -1)
    block, target = _search(sums, uniforms[:, None] * sums.sum(-1, keepdim=True, dtype=torch.float64))
    columns = block * _BLOCK + torch.arange(_BLOCK, device=weights.device)  # [R, _BLOCK]
    inside = weights.gather(-1, columns.clamp(max=size - 1)).masked_fill_(columns >= size, 0.0)
    return (block * _BLOCK + _search(inside, target)[0])[:, 0].clamp(max=size - 1)


def _search(weights: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The first entry [R, 1] whose running sum is above target [R, 1], one of positive weight, and what is left of the target there."""
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    # Rounding may have put the target a little outside of [0, total).
    target = torch.minimum(target.clamp(min=0), torch.nextafter(total, torch.zeros_like(total)))
    index = torch.searchsorted(cumulative, target, right=True).clamp(max=weights.shape[-1] - 1)  # at NaN weights
    return index, target - (cumulative - weights).gather(-1, index)


def _truncate(probabilities: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Probabilities of the candidates in falling order, 0 outside of top-k and top-p, and their token ids; both [R, C]."""
    vocabulary = probabilities.shape[-1]
    sizes = (params.top_k,) if params.top_k else (*_NUCLEUS_SIZES, vocabulary)
    for size in sizes:
        kept, tokens = probabilities.topk(min(size, vocabulary), dim=-1)  # sorted
        cumulative = kept.cumsum(-1, dtype=torch.float64)
        goal = params.top_p * (cumulative[:, -1:] if params.top_k else torch.ones_like(cumulative[:, -1:]))
        if size == sizes[-1] or bool((cumulative[:, -1:] >= goal).all()):
            break
    return kept * (cumulative - kept < goal), tokens


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
