"""Models that are asked in words: chat requests in, texts and log-probs out, whatever serves them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from papergym.errors import InputError
from papergym.registry import check_takes, resolve

HOTTEST = 2.0  # the highest temperature that servers take
# kind: a function that takes the rest of the specification as keywords. Imported on first use.
CHAT_MODELS: dict[str, Any] = {
    "http": "papergym.model.generation.http_chat:open_http_chat",
    "torch": "papergym.model.generation.torch_chat:open_torch_chat",
    "vllm": "papergym.model.generation.vllm_engine:open_vllm_engine",
}


@dataclass(frozen=True)
class ChatRequest:
    """One prompt and how to answer it.

    schema: a JSON schema that the reply's text follows; choices: texts of which it is one. Both bind where the server can enforce them, so
    say it in the messages too. top_logprobs: how many of the likeliest tokens come with their log-probs at each position of the reply.
    """

    messages: Sequence[Mapping[str, str]]
    max_tokens: int
    temperature: float = 0.0
    n: int = 1
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    choices: tuple[str, ...] = ()
    top_logprobs: int = 0


@dataclass(frozen=True)
class ChatText:
    """One reply to a request. finish_reason: "stop", "length" or the server's own word. top_logprobs: (token's text, nats) by position."""

    text: str
    finish_reason: str
    top_logprobs: tuple[tuple[tuple[str, float], ...], ...] = ()


@dataclass(frozen=True)
class ChatReply:
    """The n texts of a request, none if it was refused (too long, or stopped by a content filter), and the tokens it took."""

    texts: tuple[ChatText, ...]
    prompt_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, where the server says how many its prefix cache held
    completion_tokens: int = 0
    from_cache: bool = False  # of replies on disk: nothing was asked
    refused: str | None = None


@dataclass
class Usage:
    """What the calls of a chat model added up to. Tokens are those of requests that were sent, not of replies found on disk."""

    requests: int = 0
    from_cache: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def add(self, replies: Sequence[ChatReply]) -> None:
        for reply in replies:
            if reply.from_cache:
                self.from_cache += 1
                continue
            self.requests += 1
            self.refused += reply.refused is not None
            self.prompt_tokens += reply.prompt_tokens
            self.cached_tokens += reply.cached_tokens
            self.completion_tokens += reply.completion_tokens


class ChatModel(Protocol):
    """Anything that answers chat requests."""

    usage: Usage

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply for each request, in order. Raises InputError when the model can't be reached or refuses for good."""
        ...


def open_chat_model(spec: Mapping[str, Any]) -> ChatModel:
    """A chat model from its specification: {"kind": "http", "url": …, "model": …, …}, "vllm", or module:function with its keywords.

    Raises InputError naming the entry that is missing, unknown or wrong.
    """
    if not isinstance(spec.get("kind"), str):
        raise InputError(f"chat model: the entry 'kind' is needed, one of {', '.join(CHAT_MODELS)} or module:function")
    function, options = resolve("chat model", spec["kind"], CHAT_MODELS), {key: value for key, value in spec.items() if key != "kind"}
    check_takes("chat model", spec["kind"], function, **options)
    return function(**options)
