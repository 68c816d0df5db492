"""The built-in engine as a chat model: a checkpoint in this process, no server and no other library."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papergym.config import from_mapping
from papergym.errors import InputError
from papergym.model.generation.chat_models import ChatReply, ChatRequest, ChatText, Usage
from papergym.model.generation.sampling import SamplingParams
from papergym.model.generation.torch_engine import open_torch_engine
from papergym.model.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TorchChatConfig:
    """path: as load_model takes it. dtype, device: of the engine. thinking: the chat template's switch."""

    path: str
    dtype: str = "bfloat16"
    device: str = "cpu"
    thinking: bool = False


class TorchChatModel:
    """A ChatModel. It can't bind a reply to a schema, so the messages have to say the form; it gives no log-probs of other tokens."""

    def __init__(self, config: TorchChatConfig):
        self._thinking, self.usage = config.thinking, Usage()
        self._tokenizer = Tokenizer(config.path)
        self._engine = open_torch_engine(config.path, config.dtype, config.device)

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply for each request, in order; refused is one whose prompt and reply the context can't hold together.

        Requests with the same sampling parameters go through the engine in one batch.
        """
        replies: list[ChatReply | None] = [None] * len(requests)
        alike: dict[SamplingParams, list[tuple[int, list[int]]]] = {}
        context = self._engine.model.config.max_position_embeddings
        for index, request in enumerate(requests):
            if request.choices or request.top_logprobs:
                raise InputError("chat model 'torch': it can't choose among texts or give top log-probs; use one of kind http or vllm")
            prompt = self._tokenizer.chat(request.messages, thinking=self._thinking)
            if len(prompt) + request.max_tokens > context:
                replies[index] = ChatReply((), refused=f"{len(prompt)} tokens and the reply are more than the context of {context}")
                continue
            params = SamplingParams(n=request.n, temperature=request.temperature, max_tokens=request.max_tokens, seed=request.seed)
            alike.setdefault(params, []).append((index, prompt))
        for params, group in alike.items():
            completions = self._engine.generate([prompt for _, prompt in group], params)
            for (index, prompt), samples in zip(group, completions, strict=True):
                texts = tuple(ChatText(self._text(sample.token_ids, sample.finish_reason), sample.finish_reason) for sample in samples)
                replies[index] = ChatReply(texts, len(prompt), 0, sum(len(sample.token_ids) for sample in samples))
        self.usage.add(replies)  # type: ignore[arg-type]
        return replies  # type: ignore[return-value]

    def _text(self, token_ids: list[int], finish_reason: str) -> str:
        return self._tokenizer.decode(token_ids[:-1] if finish_reason == "stop" else token_ids)


def open_torch_chat(**options: Any) -> TorchChatModel:
    """Builds the chat model from configuration values. Raises InputError naming the option that is wrong."""
    return TorchChatModel(from_mapping(TorchChatConfig, options))
