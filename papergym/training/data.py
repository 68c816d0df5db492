"""Prompts for training: every environment's token ids, checked against the context before the first step."""

from collections.abc import Callable, Mapping, Sequence

from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.model.tokenizer import Tokenizer
from papergym.seeds import epoch_order
from papergym.training.config import DataTable

Messages = Sequence[Mapping[str, str]]


def encode_prompts(
    tokenizer: Tokenizer,
    environments: Sequence[Environment],
    messages: Callable[[Environment], Messages],
    *,
    thinking: bool,
    room: int,
    context: int,
    role: str,
) -> list[list[int]]:
    """Token ids of every environment's prompt, ready for the assistant's turn.

    room: tokens that must fit behind the prompt. context: the model's longest sequence. role: "student" or "teacher".
    Raises InputError naming the environment and the lengths when one does not fit; prompts are never truncated.
    """
    prompts = []
    for environment in environments:
        ids = tokenizer.chat(messages(environment), thinking=thinking)
        if len(ids) + room > context:
            raise InputError(
                f"environment {environment.id!r}: its {role} prompt has {len(ids)} tokens, which with {room} more exceed the model's "
                f"context of {context}; lower sampling.max_tokens or leave the environment out"
            )
        prompts.append(ids)
    return prompts


class PromptStream:
    """The environments of every step: each epoch a fresh permutation that depends on the seed alone."""

    def __init__(self, table: DataTable, seed: int):
        self.environments = read_environments(table.train)
        self._per_step, self._seed = table.prompts_per_step, seed

    def indices(self, step: int) -> list[int]:
        """Which environments step `step` (from 1) uses."""
        return epoch_order(len(self.environments), self._per_step, step, self._seed)
