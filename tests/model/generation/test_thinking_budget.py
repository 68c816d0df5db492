"""The limit on thinking, on an engine that follows a script: what it says depends on the ids it is given."""

from types import SimpleNamespace

import pytest

from papergym.errors import InputError
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.model.generation.thinking_budget import ThinkingBudget
from papergym.seeds import derive_seed

OPEN, CLOSE, NEWLINE, STOP, WORD = 1, 2, 3, 4, 9
IDS = {"<think>": [OPEN], "</think>": [CLOSE], "\n</think>\n\n": [NEWLINE, CLOSE, NEWLINE]}
TOKENIZER = SimpleNamespace(encode=lambda text: IDS.get(text, [8] * len(text)), path="m")


class Scripted:
    """Goes on with what `script` has behind what is in the prompt of sample j, and keeps its calls."""

    def __init__(self, *scripts):
        self.scripts, self.calls = scripts, []

    def generate(self, prompts, params, on_progress=None):
        self.calls.append((prompts, params))
        return [[self._completion(prompt, script, params) for script in self._chosen(prompt, params)] for prompt in prompts]

    def _chosen(self, prompt, params):
        said = list(prompt[1:])
        return [script for script in self.scripts if script[: len(said)] == said][: params.n] or [[*said, WORD, WORD, STOP]]

    def _completion(self, prompt, script, params):
        ids = script[len(prompt) - 1 :][: params.max_tokens]
        return Completion(ids, [-1.0] * len(ids), "stop" if ids[-1] == STOP else "length")


def test_an_open_block_is_closed_and_the_answer_follows():
    endless = [OPEN] + [7] * 50
    done = [OPEN, 7, CLOSE, WORD, STOP]
    answering = [OPEN, 7, CLOSE, *[WORD] * 6, STOP]
    engine = Scripted(endless, done, answering)
    budget, told = ThinkingBudget(engine, TOKENIZER, 6), []
    (group,) = budget.generate([[100]], SamplingParams(n=3, max_tokens=12, seed=5), on_progress=told.append)
    assert group[0].token_ids == [OPEN, *[7] * 5, NEWLINE, CLOSE, NEWLINE, WORD, WORD, STOP]
    assert group[0].logprobs == [-1.0] * 6 + [0.0] * 3 + [-1.0] * 3 and group[0].finish_reason == "stop"
    assert group[1].token_ids == done
    assert group[2].token_ids == answering and group[2].logprobs == [-1.0] * 10
    assert budget.cut == 1 and told == [12 + 5 + 10]
    (_, first), (closed, second), (open_ended, third) = engine.calls
    assert (first.max_tokens, second.max_tokens, third.max_tokens) == (6, 3, 6) and (second.n, third.n) == (1, 1)
    assert closed == [[100, OPEN, *[7] * 5, NEWLINE, CLOSE, NEWLINE]] and open_ended == [[100, *answering[:6]]]
    assert len({first.seed, second.seed, third.seed}) == 3 and second.seed == derive_seed(5, 1)


def test_without_a_block_the_answer_is_no_shorter():
    engine = Scripted([WORD] * 30)
    (group,) = ThinkingBudget(engine, TOKENIZER, 4).generate([[100]], SamplingParams(max_tokens=20))
    assert group[0].token_ids == [WORD] * 20 and group[0].finish_reason == "length"
    # The prompt may have opened the block, or closed it.
    (group,) = ThinkingBudget(Scripted([WORD] * 30), TOKENIZER, 4).generate([[OPEN]], SamplingParams(max_tokens=20))
    assert group[0].token_ids == [*[WORD] * 4, NEWLINE, CLOSE, NEWLINE, WORD, WORD, STOP]


def test_what_leaves_no_room_and_models_that_do_not_think_are_refused():
    with pytest.raises(InputError, match="thinking budget 6: max_tokens 9 leaves nothing for the answer; more than 9 are needed"):
        ThinkingBudget(Scripted([1]), TOKENIZER, 6).generate([[100]], SamplingParams(max_tokens=9))
    with pytest.raises(InputError, match="m has no token <think>"):
        ThinkingBudget(Scripted([1]), SimpleNamespace(encode=lambda text: [1, 2], path="m"), 6)
    with pytest.raises(InputError, match="a number from 1"):
        ThinkingBudget(Scripted([1]), TOKENIZER, 0)
