"""Sequences packed end to end for one forward pass, and the rows of hidden states that predict their completions.

Shapes: B sequences, T packed tokens, N supervised tokens, H hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor


class Trainable(Protocol):
    """What a trainer feeds to the model: a prompt and the completion that is supervised, as token ids."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]


S = TypeVar("S", bound=Trainable)


@dataclass(frozen=True)
class Packed:
    """B prompt-completion pairs in one row of tokens."""

    input_ids: Tensor  # [1, T] int64
    cu_seqlens: Tensor  # [B + 1] int32, where each sequence starts
    predictors: Tensor  # [N] int64, the position before each completion token
    targets: Tensor  # [N] int64, the completion tokens
    lengths: tuple[int, ...]  # completion tokens of each sequence, sum N


def pack(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device) -> Packed:
    """Packs (prompt ids, completion ids) pairs. Every prompt has at least one token, so that the first completion token has a predictor."""
    tokens: list[int] = []
    starts, predictors = [0], []
    for prompt, completion in pairs:
        first = len(tokens) + len(prompt) - 1
        predictors.extend(range(first, first + len(completion)))
        tokens.extend(prompt)
        tokens.extend(completion)
        starts.append(len(tokens))
    return Packed(
        input_ids=torch.tensor([tokens], device=device),
        cu_seqlens=torch.tensor(starts, dtype=torch.int32, device=device),
        predictors=torch.tensor(predictors, dtype=torch.int64, device=device),
        targets=torch.tensor([token for _, completion in pairs for token in completion], dtype=torch.int64, device=device),
        lengths=tuple(len(completion) for _, completion in pairs),
    )


def predicting_hidden(model: Any, packed: Packed) -> Tensor:
    """The hidden states [N, H] whose next-token distributions the completion tokens were drawn from."""
    hidden = model(packed.input_ids, cu_seqlens=packed.cu_seqlens)  # [1, T, H]
    return hidden[0].index_select(0, packed.predictors)


def micro_batches(samples: Sequence[S], tokens: int) -> Iterator[list[S]]:
    """Splits samples, in order, into runs of at most `tokens` packed tokens; a longer sample goes alone."""
    batch: list[S] = []
    size = 0
    for sample in samples:
        length = len(sample.prompt_ids) + len(sample.completion_ids)
        if batch and size + length > tokens:
            yield batch
            batch, size = [], 0
        batch.append(sample)
        size += length
    if batch:
        yield batch


def pad_rows(flat: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Turns a flat [N] tensor into padded rows [B, max length] and their mask [B, max length] bool; differentiable."""
    width = max(lengths, default=0)
    positions = torch.arange(width, device=flat.device)
    mask = positions[None, :] < torch.tensor(lengths, device=flat.device)[:, None]
    return flat.new_zeros(mask.shape).masked_scatter(mask, flat), mask
