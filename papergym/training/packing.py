"""Sequences packed end to end for one forward pass, and the rows of hidden states that predict their completions.

Shapes: B sequences, T packed tokens, N supervised tokens, H hidden size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from papergym.model.attention import shared_prefix_attention
from papergym.model.decoder import CausalLM


class Trainable(Protocol):
    """What a trainer feeds to the model: a prompt and the completion that is supervised, as token ids."""

    @property
    def prompt_ids(self) -> Sequence[int]: ...

    @property
    def completion_ids(self) -> Sequence[int]: ...


S = TypeVar("S", bound=Trainable)


@dataclass(frozen=True)
class Packed:
    """B prompt-completion pairs in one row of tokens, in which neighbours with the same prompt share it."""

    input_ids: Tensor  # [1, T] int64
    positions: Tensor  # [1, T] int64, those of a completion go on from its prompt
    groups: tuple[tuple[int, tuple[int, ...]], ...]  # (prompt tokens, tokens of each completion)
    predictors: Tensor  # [N] int64, where the distribution of each completion token was: the token before it
    targets: Tensor  # [N] int64, the completion tokens
    lengths: tuple[int, ...]  # completion tokens of each pair, sum N


def pack(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], device: torch.device) -> Packed:
    """Packs (prompt ids, completion ids) pairs. Every prompt has at least one token, so that the first completion token has a predictor.

    The last token of a completion is left out of the row: nothing is predicted from it.
    """
    tokens: list[int] = []
    positions: list[int] = []
    predictors: list[int] = []
    groups = []
    for prompt, members in groupby(pairs, key=lambda pair: pair[0]):
        last = len(tokens) + len(prompt) - 1
        tokens.extend(prompt)
        positions.extend(range(len(prompt)))
        completions = [completion for _, completion in members]
        for completion in completions:
            if completion:
                predictors.extend((last, *range(len(tokens), len(tokens) + len(completion) - 1)))
            tokens.extend(completion[:-1])
            positions.extend(range(len(prompt), len(prompt) + len(completion[:-1])))
        groups.append((len(prompt), tuple(len(completion) - 1 for completion in completions if len(completion) > 1)))
    return Packed(
        input_ids=torch.tensor([tokens], device=device),
        positions=torch.tensor([positions], device=device),
        groups=tuple(groups),
        predictors=torch.tensor(predictors, dtype=torch.int64, device=device),
        targets=torch.tensor([token for _, completion in pairs for token in completion], dtype=torch.int64, device=device),
        lengths=tuple(len(completion) for _, completion in pairs),
    )


def predicting_hidden(model: CausalLM, packed: Packed) -> Tensor:
    """The hidden states [N, H] whose next-token distributions the completion tokens were drawn from."""
    hidden = model(packed.input_ids, packed.positions, attend=shared_prefix_attention(packed.groups))  # [1, T, H]
    return hidden[0].index_select(0, packed.predictors)


def micro_batches(samples: Sequence[S], tokens: int) -> Iterator[list[S]]:
    """Splits samples, in order, into runs of at most `tokens` packed tokens; a longer sample goes alone."""
    batch: list[S] = []
    size = 0
    for sample in samples:
        shared = batch and batch[-1].prompt_ids == sample.prompt_ids
        length = len(sample.completion_ids) + (0 if shared else len(sample.prompt_ids))
        if batch and size + length > tokens:
            yield batch
            batch, size = [], 0
            length = len(sample.prompt_ids) + len(sample.completion_ids)
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
