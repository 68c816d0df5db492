import importlib.util

import pytest

from papergym.errors import InputError
from papergym.model.generation import Completion, SamplingParams, open_engine
from papergym.seeds import derive_seed


@pytest.fixture
def engine(scripted_server):
    return open_engine({"kind": "http", "url": scripted_server.url, "model": "m", "timeout": 2.0, "backoff": 0.01, "attempts": 2})


def choice(index, ids, reason="stop", **changes):
    logprobs = {"token_logprobs": [-0.5 * (position + 1) for position in range(len(ids or ()))]}
    return {"index": index, "text": "", "token_ids": ids, "finish_reason": reason, "logprobs": logprobs} | changes


def test_token_ids_in_and_out(scripted_server, engine):
    def answer(body):
        (first, *_) = body["prompt"]
        return {"choices": [choice(1, [first, 8], "length"), choice(0, [first + 1, 9, 2])]}

    scripted_server.answer = answer
    told = []
    groups = engine.generate([[5, 6], [7]], SamplingParams(n=2, max_tokens=4, seed=3, top_p=0.9, top_k=20), on_progress=told.append)
    assert groups == [
        [Completion([6, 9, 2], [-0.5, -1.0, -1.5], "stop"), Completion([5, 8], [-0.5, -1.0], "length")],
        [Completion([8, 9, 2], [-0.5, -1.0, -1.5], "stop"), Completion([7, 8], [-0.5, -1.0], "length")],
    ]
    assert told == [10]
    sent = sorted(scripted_server.requests, key=lambda body: body["prompt"])
    assert [body["seed"] for body in sent] == [derive_seed(3, 0), derive_seed(3, 1)]
    rest = {"model": "m", "n": 2, "temperature": 1.0, "top_p": 0.9, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.0}
    rest |= {"max_tokens": 4, "logprobs": 0, "return_token_ids": True}
    assert {key: value for key, value in sent[0].items() if key not in ("seed", "prompt")} == rest


def test_nothing_is_left_to_the_checkpoints_own_sampling_settings_but_the_seed(scripted_server, engine):
    scripted_server.answer = lambda body: {"choices": [choice(0, [2])]}
    engine.generate([[5]], SamplingParams(max_tokens=4))
    (body,) = scripted_server.requests
    assert "seed" not in body and (body["top_k"], body["top_p"], body["min_p"], body["repetition_penalty"]) == (0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (choice(0, None), "no token ids"),
        (choice(0, [1, 2], logprobs={"token_logprobs": [-1.0]}), "2 token ids, 1 log-probs"),
        (choice(0, [1], "abort"), "'abort'"),
        (choice(1, [1]), "1 choices are needed"),
    ],
)
def test_replies_that_are_no_completions_are_named(scripted_server, engine, reply, words):
    scripted_server.answer = lambda body: {"choices": [reply]}
    with pytest.raises(InputError, match=words):
        engine.generate([[5]], SamplingParams(max_tokens=4))


def test_a_prompt_beyond_the_context_is_named(scripted_server, engine):
    refusal = scripted_server.Misbehaviour(400, b"This model's maximum context length is 8 tokens.")
    scripted_server.answer = lambda body: refusal if len(body["prompt"]) > 4 else {"choices": [choice(0, [2])]}
    with pytest.raises(InputError, match="prompt 1: the server refuses it"):
        engine.generate([[5], [5] * 9], SamplingParams(max_tokens=4))


def test_log_probs_of_another_distribution_are_refused(scripted_server):
    with pytest.raises(InputError, match=r"temperature 0\.7.*processed_logprobs"):
        open_engine({"kind": "http", "url": scripted_server.url, "model": "m"}).generate([[5]], SamplingParams(temperature=0.7))
    processed = open_engine({"kind": "http", "url": scripted_server.url, "model": "m", "logprobs": "processed"})
    for params in (SamplingParams(top_k=5), SamplingParams(top_p=0.5), SamplingParams(temperature=0.0)):
        with pytest.raises(InputError, match="whole distribution"):
            processed.generate([[5]], params)
    scripted_server.answer = lambda body: {"choices": [choice(0, [2])]}
    assert processed.generate([[5]], SamplingParams(temperature=0.7))[0][0].token_ids == [2]


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_there_is_named():
    with pytest.raises(InputError, match="needs vLLM: pip install vllm"):
        open_engine("vllm:somewhere")
