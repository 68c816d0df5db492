"""Chat models behind an OpenAI-compatible API: vllm serve, or a provider."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from papergym.config import from_mapping
from papergym.model.generation.chat_models import ChatReply, ChatRequest, ChatText, Usage
from papergym.model.generation.http_client import Endpoint, HttpClient, Refusal


@dataclass(frozen=True, kw_only=True)
class HttpChatConfig(Endpoint):
    """An API and its dialect.

    model: the name it is served under. dialect: "vllm" adds what only vLLM understands: replies out of a list of choices, and no
    penalty on repetition by the checkpoint's own settings. schema: how a JSON schema is enforced: "strict" as a schema, "object" as JSON of
    any shape, "none" by the prompt alone, for servers that can do less. length_field: newer OpenAI models call it max_completion_tokens.
    extra: fields added to every request, such as chat_template_kwargs = {enable_thinking = false}.
    """

    model: str
    dialect: Literal["openai", "vllm"] = "openai"
    schema: Literal["strict", "object", "none"] = "strict"
    length_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    extra: dict[str, Any] = field(default_factory=dict)


class HttpChatModel:
    """A ChatModel. A request that the endpoint's cache knows is not sent."""

    def __init__(self, config: HttpChatConfig):
        self._config = config
        self.client = HttpClient(config)
        self.usage = Usage()

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply for each request, in order. Raises InputError as HttpClient.post_all does."""
        found = self.client.post_all("/chat/completions", [self._body(request) for request in requests], _read_reply)
        replies = [
            ChatReply((), refused=value.reason) if isinstance(value, Refusal) else replace(value, from_cache=from_cache)
            for value, from_cache in found
        ]
        self.usage.add(replies)
        return replies

    def known(self, request: ChatRequest) -> ChatReply | None:
        """The reply that the endpoint's cache has, None without one."""
        reply = self.client.known("/chat/completions", self._body(request), _read_reply)
        return None if reply is None else self._counted(replace(reply, from_cache=True))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Callable[[ChatRequest], Awaitable[ChatReply]]]:
        """Yields what sends one request, from any number of tasks; raises as HttpClient.connected does."""
        async with self.client.connected() as post:

            async def send(request: ChatRequest) -> ChatReply:
                value = await post("/chat/completions", self._body(request), _read_reply)
                return self._counted(ChatReply((), refused=value.reason) if isinstance(value, Refusal) else value)

            yield send

    def _counted(self, reply: ChatReply) -> ChatReply:
        self.usage.add([reply])
        return reply

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {
            "model": config.model,
            "messages": [dict(message) for message in request.messages],
            "temperature": request.temperature,
            config.length_field: request.max_tokens,
            "n": request.n,
        }
        if request.seed is not None:
            body["seed"] = request.seed
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
        if request.schema is not None and config.schema == "strict":
            schema = {"name": "reply", "strict": True, "schema": dict(request.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif request.schema is not None and config.schema == "object":
            body["response_format"] = {"type": "json_object"}
        if config.dialect == "vllm":
            body["repetition_penalty"] = 1.0  # else that of the checkpoint's generation_config.json
            if request.choices:
                body["structured_outputs"] = {"choice": list(request.choices)}
        return body | config.extra


def open_http_chat(**options: Any) -> HttpChatModel:
    """Builds the chat model from configuration values. Raises InputError naming the option that is wrong."""
    return HttpChatModel(from_mapping(HttpChatConfig, options))


def _read_reply(body: Mapping[str, Any], reply: Any) -> ChatReply:
    """The reply's texts, in the order of their index. Raises LookupError, TypeError or ValueError when something is missing."""
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    if [choice["index"] for choice in choices] != list(range(body["n"])):
        raise ValueError(f"{body['n']} choices are needed, there are {len(choices)}")
    usage = reply.get("usage") or {}
    return ChatReply(
        tuple(_read_text(choice, body.get("top_logprobs", 0)) for choice in choices),
        prompt_tokens=usage.get("prompt_tokens") or 0,
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        completion_tokens=usage.get("completion_tokens") or 0,
    )


def _read_text(choice: Any, top_logprobs: int) -> ChatText:
    text = choice["message"].get("content") or ""  # null when there is nothing but thinking
    if not isinstance(text, str):
        raise TypeError(f"content is {type(text).__name__}, not a string")
    positions: list[tuple[tuple[str, float], ...]] = []
    if top_logprobs:
        if not isinstance(choice.get("logprobs"), dict):
            raise ValueError("no log-probs, though they were asked for: the server can't give them")
        for position in choice["logprobs"].get("content") or ():
            positions.append(tuple((str(entry["token"]), float(entry["logprob"])) for entry in position["top_logprobs"]))
    return ChatText(text, str(choice.get("finish_reason")), tuple(positions))
