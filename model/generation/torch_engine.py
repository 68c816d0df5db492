"""Samples from a model in this process: a prompt prefilled once a group, all groups decoded in one batch, finished samples dropped."""

import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from papergym.errors import InputError
from papergym.model.decoder import CausalLM
from papergym.model.generation.cache import GroupCache, PrefillCache
from papergym.model.generation.prepack import prepacked
from papergym.model.generation.sampling import Completion, SamplingParams, draw, uniform_stream
from papergym.model.weights import load_model

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
_PREFILL_TOKENS = 2048  # padded prompts in one forward pass


class TorchEngine:
    """Samples from `model` as it is at the call: adapters that are enabled take part; gradients and train/eval modes stay as they were.

    max_batch_tokens: room for keys and values, in tokens: prompts (once a group) and completions at their full length. Groups wait until
    there is room; one that needs more than all of it runs alone.
    """

    def __init__(self, model: CausalLM, *, max_batch_tokens: int = 65536) -> None:
        if max_batch_tokens < 1:
            raise InputError(f"max_batch_tokens is {max_batch_tokens}: a positive number is needed")
        self.model = model
        self.max_batch_tokens = max_batch_tokens

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, *, on_progress: Callable[[int], None] | None = None
    ) -> list[list[Completion]]:
        """n completions of each prompt, in order.

        Sample j of prompt i depends on the seed, i and j, and on nothing else in the batch beyond rounding.
        on_progress: called after every step with the number of tokens sampled so far.
        Raises InputError for a prompt that is empty, holds an id beyond the vocabulary, or leaves no room in the model's context;
        FloatingPointError when the model's logits are not finite.
        """
        self._check(prompts)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        groups = [_Group(index, prompt, params, seed, self.model.config.max_position_embeddings) for index, prompt in enumerate(prompts)]
        with _as_it_was(self.model), prepacked(self.model) as head:
            batch = _Batch(self.model, head, params)
            waiting = deque(groups)
            while waiting or batch.rows:
                batch.admit(self._next(waiting, batch.groups))
                batch.step()
                if on_progress is not None:
                    on_progress(sum(len(sample.token_ids) for group in groups for sample in group.samples))
        return [[Completion(sample.token_ids, sample.logprobs, sample.finish_reason) for sample in group.samples] for group in groups]

    def _check(self, prompts: Sequence[Sequence[int]]) -> None:
        context, vocabulary = self.model.config.max_position_embeddings, self.model.config.vocab_size
        for index, prompt in enumerate(prompts):
            if not len(prompt):
                raise InputError(f"prompt {index} is empty: at least one token is needed")
            if len(prompt) >= context:
                raise InputError(f"prompt {index} has {len(prompt)} tokens: a context of {context} tokens takes at most {context - 1}")
            if not 0 <= min(prompt) <= max(prompt) < vocabulary:
                raise InputError(f"prompt {index} holds a token id outside of the model's vocabulary of {vocabulary}: wrong tokenizer?")

    def _next(self, waiting: "deque[_Group]", running: "list[_Group]") -> "list[_Group]":
        """Takes the groups from the queue that fit beside the running ones."""
        taken: list[_Group] = []
        while waiting:
            together = [*running, *taken, waiting[0]]
            longest = max(len(group.prompt) for group in together)  # prompts are padded to it
            room = sum(longest + len(group.samples) * group.limit for group in together)
            if room > self.max_batch_tokens and len(together) > 1:
                break
            taken.append(waiting.popleft())
        return taken


@dataclass
class _Sample:
    """A completion in the making."""

    uniforms: Iterator[float]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""


class _Group:
    """A prompt and its samples. limit: the most tokens that a sample may have."""

    def __init__(self, index: int, prompt: Sequence[int], params: SamplingParams, seed: int, context: int) -> None:
        self.prompt = prompt
        self.limit = min(params.max_tokens, context - len(prompt))
        self.samples = [_Sample(uniform_stream(seed, params.first_prompt + index, sample)) for sample in range(params.n)]


class _Batch:
    """The samples that are being decoded, one row each, those of a group side by side."""

    def __init__(self, model: CausalLM, head: Callable[[Tensor], Tensor], params: SamplingParams) -> None:
        self.model, self.head, self.params = model, head, params
        self.device = model.head_weight.device
        self.stop_ids = frozenset(model.config.eos_token_ids)
        self.cache = GroupCache()
        self.rows: list[tuple[_Group, _Sample]] = []

    @property
    def groups(self) -> list[_Group]:
        return list({id(group): group for group, _ in self.rows}.values())

    def admit(self, groups: list[_Group]) -> None:
        """Prefills the prompts, samples the first token of each new row, and adds the rows that go on."""
        groups = sorted(groups, key=lambda group: len(group.prompt))  # similar lengths share a forward pass
        while groups:
            count = 1
            while count < len(groups) and (count + 1) * len(groups[count].prompt) <= _PREFILL_TOKENS:
                count += 1
            self._prefill(groups[:count])
            groups = groups[count:]

    def _prefill(self, groups: list[_Group]) -> None:
        lengths = [len(group.prompt) for group in groups]
        tokens = torch.zeros(len(groups), max(lengths), dtype=torch.int64)
        for index, group in enumerate(groups):
            tokens[index, : lengths[index]] = torch.tensor(group.prompt)
        positions = torch.arange(max(lengths)).expand_as(tokens)
        cache = PrefillCache()
        hidden = self.model(tokens.to(self.device), positions.to(self.device), cache=cache)  # [prompts, T, H]
        last = hidden[torch.arange(len(groups)), torch.tensor(lengths) - 1]
        self.cache.add(cache, lengths, self.params.n)
        before = len(self.rows)
        self.rows += [(group, sample) for group in groups for sample in group.samples]
        self._sample(self.head(last).repeat_interleave(self.params.n, dim=0), before)

    def step(self) -> None:
        """One more token for every row."""
        if not self.rows:
            return
        tokens = torch.tensor([[sample.token_ids[-1]] for _, sample in self.rows], device=self.device)
        positions = torch.tensor([[len(group.prompt) + len(sample.token_ids) - 1] for group, sample in self.rows], device=self.device)
        self.cache.begin_step()
        hidden = self.model(tokens, positions, cache=self.cache)[:, 0]  # [R, H]
        self._sample(self.head(hidden), 0)

    def _sample(self, logits: Tensor, first: int) -> None:
        """Draws a token for the rows from `first` on, whose logits [rows, V] are given, and drops the rows that are finished."""
        rows = self.rows[first:]
        uniforms = torch.tensor([next(sample.uniforms) for _, sample in rows], dtype=torch.float64, device=self.device)
        ids, logprobs = draw(logits, uniforms, self.params)
        for (group, sample), token, logprob in zip(rows, ids.tolist(), logprobs.tolist()):
            if math.isnan(logprob):
                raise FloatingPointError(f"the model's logits are not finite after {len(group.prompt) + len(sample.token_ids)} tokens")
            sample.token_ids.append(token)
            sample.logprobs.append(logprob)
            if token in self.stop_ids:
                sample.finish_reason = "stop"
            elif len(sample.token_ids) == group.limit:
                sample.finish_reason = "length"
        going_on = [index for index, (_, sample) in enumerate(self.rows) if not sample.finish_reason]
        if len(going_on) < len(self.rows):
            self.rows = [self.rows[index] for index in going_on]
            self.cache.keep(going_on)


@contextmanager
def _as_it_was(model: CausalLM) -> Iterator[None]:
    """Evaluation mode without gradients inside the block, every module's own mode after it."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def open_torch_engine(path: str = "", dtype: str = "bfloat16", device: str = "cpu", **unknown: object) -> TorchEngine:
    """The engine for a model on disk; dtype: "bfloat16" | "float32" | "float16". Raises InputError naming the entry."""
    if unknown:
        raise InputError(f"engine 'torch': unknown entry {min(unknown)!r}; it takes path, dtype and device")
    if not path:
        raise InputError("engine 'torch': the entry 'path' is needed, a model directory, a .gguf file or a name such as smollm2-135m")
    if dtype not in DTYPES:
        raise InputError(f"engine 'torch': dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return TorchEngine(load_model(path, dtype=DTYPES[dtype], device=device))
