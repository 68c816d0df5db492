"""How per-token terms become one number, by counts over the whole batch of an optimizer step, taken after sampling.

Because the counts do not depend on the split into micro-batches, neither does the gradient.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from papergym.errors import InputError

AGGREGATIONS = ("sequence_mean", "token_mean", "constant")


@dataclass(frozen=True)
class BatchCounts:
    """Counts over all sequences of one optimizer step."""

    sequences: int  # with at least one supervised token
    tokens: int  # supervised

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "BatchCounts":
        return cls(sequences=sum(length > 0 for length in lengths), tokens=sum(lengths))


def token_weights(
    mask: Tensor, aggregation: str, counts: BatchCounts, constant: int | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The weight of every token, [B, T] of `dtype`, 0 where mask [B, T] is False; the loss is the sum of weight times term.

    sequence_mean: 1 / (|y| · sequences), the mean over each sequence and then over sequences (equation 1's 1/|y|).
    token_mean: 1 / tokens. constant: 1 / (constant · sequences), which weighs a token alike whatever its sequence's length.
    """
    weights = mask.to(dtype)
    if aggregation == "sequence_mean":
        return weights / (mask.sum(dim=1, keepdim=True).clamp(min=1) * max(1, counts.sequences))
    if aggregation == "token_mean":
        return weights / max(1, counts.tokens)
    if aggregation == "constant":
        if constant is None or constant < 1:
            raise InputError(f"the aggregation 'constant' needs a number of tokens from 1 to divide by, not {constant}")
        return weights / (constant * max(1, counts.sequences))
    raise InputError(f"unknown aggregation {aggregation!r}: use one of {', '.join(AGGREGATIONS)}")
