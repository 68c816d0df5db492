"""The built-in engine as a chat model."""

import pytest
import torch

from papergym.errors import InputError
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.generation.chat_models import ChatRequest, open_chat_model
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model


def ask(text, **options):
    return ChatRequest([{"role": "user", "content": text}], **{"max_tokens": 6, **options})


@pytest.fixture(scope="module")
def chat(tiny_policy):
    return open_chat_model({"kind": "torch", "path": str(tiny_policy), "dtype": "float32"})


def test_texts_are_those_of_the_engine_whatever_else_is_asked(chat, tiny_policy):
    requests = [ask("Why?"), ask("What is it?", max_tokens=9), ask("How?"), ask("Two", n=2, temperature=1.0, seed=3)]
    replies = chat.complete(requests)
    tokenizer, engine = Tokenizer(tiny_policy), TorchEngine(load_model(tiny_policy, dtype=torch.float32))
    for request, reply in zip(requests, replies, strict=True):
        prompt = tokenizer.chat(request.messages, thinking=False)
        params = SamplingParams(n=request.n, temperature=request.temperature, max_tokens=request.max_tokens, seed=request.seed)
        (samples,) = engine.generate([prompt], params)
        for text, sample in zip(reply.texts, samples, strict=True):
            stopped = sample.finish_reason == "stop"
            assert text.text == tokenizer.decode(sample.token_ids[: len(sample.token_ids) - stopped])
            assert text.finish_reason == sample.finish_reason
        assert reply.prompt_tokens == len(prompt) and reply.completion_tokens == sum(len(sample.token_ids) for sample in samples)
    assert chat.usage.requests == 4


def test_what_it_cannot_do_is_said(chat, tiny_policy):
    (refused,) = chat.complete([ask("x" * 100_000)])
    assert refused.texts == () and "more than the context" in refused.refused
    with pytest.raises(InputError, match="top log-probs"):
        chat.complete([ask("Q", top_logprobs=3)])
    with pytest.raises(InputError, match="thinkin"):
        open_chat_model({"kind": "torch", "path": str(tiny_policy), "thinkin": True})
