"""Samples from a vLLM server: token ids in, token ids out, through its completions endpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from papergym.config import from_mapping
from papergym.errors import InputError
from papergym.model.generation.http_client import Endpoint, HttpClient, Refusal
from papergym.model.generation.logprobs_mode import LogprobsMode, check_logprobs
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.seeds import derive_seed


@dataclass(frozen=True, kw_only=True)
class HttpEngineConfig(Endpoint):
    """A vLLM server and the name that it serves the model, or an adapter, under.

    logprobs: what the server was started to give.
    """

    model: str
    logprobs: LogprobsMode = "raw"


class HttpEngine:
    """An Engine. The server's stop tokens count, which come from generation_config.json as everywhere."""

    def __init__(self, config: HttpEngineConfig):
        self._config, self.client = config, HttpClient(config)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, on_progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """n completions of each prompt, in order; on_progress is called once, at the end.

        With a seed, sample j of prompt i depends on the seed, i and j, as far as the server's arithmetic doesn't depend on the batch.
        Raises InputError for a prompt that the server's context can't hold, where its log-probs would not be those of Completion, and as
        HttpClient.post_all does.
        """
        check_logprobs(self._config.logprobs, params)
        found = self.client.post_all("/completions", [self._body(prompt, index, params) for index, prompt in enumerate(prompts)], _read)
        completions = []
        for index, (value, _) in enumerate(found):
            if isinstance(value, Refusal):
                raise InputError(f"prompt {index}: the server refuses it, {value.reason}")
            completions.append(value)
        if on_progress is not None:
            on_progress(sum(len(completion.token_ids) for group in completions for completion in group))
        return completions

    def _body(self, prompt: Sequence[int], index: int, params: SamplingParams) -> dict[str, Any]:
        seed = {} if params.seed is None else {"seed": derive_seed(params.seed, index)}
        # What a request leaves out, a server takes from the checkpoint's generation_config.json.
        return {
            "model": self._config.model,
            "prompt": list(prompt),
            "n": params.n,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": params.max_tokens,
            "logprobs": 0,
            "return_token_ids": True,
            **seed,
        }


def open_http_engine(**options: Any) -> HttpEngine:
    """Builds the engine from configuration values. Raises InputError naming the option that is wrong."""
    return HttpEngine(from_mapping(HttpEngineConfig, options))


def _read(body: Mapping[str, Any], reply: Any) -> list[Completion]:
    choices = sorted(reply["choices"], key=lambda choice: choice["index"])
    if [choice["index"] for choice in choices] != list(range(body["n"])):
        raise ValueError(f"{body['n']} choices are needed, there are {len(choices)}")
    return [_completion(choice) for choice in choices]


def _completion(choice: Any) -> Completion:
    ids, logprobs = choice.get("token_ids"), choice["logprobs"]["token_logprobs"]
    if not isinstance(ids, list):
        raise ValueError("no token ids: only vLLM gives them")
    if len(ids) != len(logprobs) or choice["finish_reason"] not in ("stop", "length"):
        raise ValueError(f"{len(ids)} token ids, {len(logprobs)} log-probs, finish_reason {choice['finish_reason']!r}")
    return Completion(ids, [float(value) for value in logprobs], choice["finish_reason"])
