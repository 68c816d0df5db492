"""A limit on thinking for any engine: a block that is still open after so many tokens is closed, and the answer follows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from papergym.errors import InputError
from papergym.model.generation.engine import Engine
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.model.tokenizer import Tokenizer
from papergym.seeds import derive_seed

OPEN, CLOSE = "<think>", "</think>"
_ENDING = f"\n{CLOSE}\n\n"


class ThinkingBudget:
    """An Engine on top of another. Completions go on from the token ids of their first part, which are never tokenised again.

    The tokens that close a block are part of the completion with log-prob 0: they were certain. cut: blocks that were closed so far.
    """

    def __init__(self, engine: Engine, tokenizer: Tokenizer, budget: int):
        """budget: tokens until the block is closed. Raises InputError when the model's vocabulary has no single token for its two marks."""
        marks = tokenizer.encode(OPEN), tokenizer.encode(CLOSE)
        if any(len(ids) != 1 for ids in marks):
            raise InputError(f"thinking budget {budget}: {tokenizer.path} has no token {OPEN}, so it can't think; leave the budget out")
        if budget < 1:
            raise InputError(f"thinking budget {budget}: a number from 1 is needed")
        self._engine, self._budget, self.cut = engine, budget, 0
        self._open, self._close = marks[0][0], marks[1][0]
        self._ending = tokenizer.encode(_ENDING)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, on_progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """n completions of each prompt, in order, of at most params.max_tokens in all; on_progress is called once, at the end.

        Raises InputError when max_tokens leaves no token for an answer.
        """
        if params.max_tokens <= self._budget + len(self._ending):
            raise InputError(
                f"thinking budget {self._budget}: max_tokens {params.max_tokens} leaves nothing for the answer; "
                f"more than {self._budget + len(self._ending)} are needed"
            )
        groups = [list(group) for group in self._engine.generate(prompts, replace(params, max_tokens=self._budget))]
        waiting = [
            (self._thinks([*prompt, *completion.token_ids]), (prompt, group, index))
            for prompt, group in zip(prompts, groups, strict=True)
            for index, completion in enumerate(group)
            if completion.finish_reason == "length" and len(completion.token_ids) == self._budget  # else it filled the model's context
        ]
        # Those that were cut have the shorter rest, so they are a call of their own.
        for number, thinking in enumerate((True, False), 1):
            chosen = [entry for thinks, entry in waiting if thinks == thinking]
            ending = self._ending if thinking else []
            seed = None if params.seed is None else derive_seed(params.seed, number)
            rest = replace(params, n=1, max_tokens=params.max_tokens - self._budget - len(ending), seed=seed, first_prompt=0)
            self._go_on(chosen, ending, rest)
            self.cut += len(chosen) if thinking else 0
        if on_progress is not None:
            on_progress(sum(len(completion.token_ids) for group in groups for completion in group))
        return groups

    def _go_on(self, chosen: Sequence[tuple[Sequence[int], list[Completion], int]], ending: list[int], rest: SamplingParams) -> None:
        """Puts whole completions in the place of those that were begun."""
        begun = [group[index] for _, group, index in chosen]
        prompts = [[*prompt, *first.token_ids, *ending] for (prompt, *_), first in zip(chosen, begun, strict=True)]
        ends = self._engine.generate(prompts, rest) if prompts else []
        for (_, group, index), first, (last,) in zip(chosen, begun, ends, strict=True):
            logprobs = [*first.logprobs, *[0.0] * len(ending), *last.logprobs]
            group[index] = Completion([*first.token_ids, *ending, *last.token_ids], logprobs, last.finish_reason)

    def _thinks(self, ids: Sequence[int]) -> bool:
        """Whether the last mark opens a block."""
        return next((token == self._open for token in reversed(ids) if token in (self._open, self._close)), False)
