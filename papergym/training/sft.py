"""Supervised fine-tuning on the reference plans: the baseline that imitates one answer.

    python -m papergym.training.sft --config configs/sft_qwen3_1.7b.toml

Loss: minus the log-probability of the reference and its stop token given the student's prompt, nats, mean over the batch's tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.model.prompts import student_messages
from papergym.model.tokenizer import Tokenizer
from papergym.training.aggregate import BatchCounts
from papergym.training.command import training_command
from papergym.training.config import TrainingConfig
from papergym.training.data import PromptStream, encode_prompts
from papergym.training.loop import Batch, Phases, Policy, run_training
from papergym.training.packing import pack, predicting_hidden
from papergym.training.replay import read_fields


@dataclass(frozen=True, kw_only=True)
class SftConfig(TrainingConfig):
    """SFT needs nothing beyond the shared tables."""


@dataclass(frozen=True)
class Demonstration:
    """A prompt and the reference plan that answers it."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]


def demonstrations(
    tokenizer: Tokenizer, environments: Sequence[Environment], stop_ids: Sequence[int], thinking: bool, context: int
) -> list[Demonstration]:
    """Each environment's prompt and reference as token ids, the completion ending with the stop token that the chat template puts there.

    Raises InputError for an environment without a reference, or one that does not fit into the context.
    """
    for environment in environments:
        if environment.reference is None:
            raise InputError(f"environment {environment.id!r}: no reference plan to imitate; leave it out of data.train")
    prompts = encode_prompts(tokenizer, environments, student_messages, thinking=thinking, room=1, context=context, role="student")
    examples = []
    for environment, prompt in zip(environments, prompts, strict=True):
        turn = {"role": "assistant", "content": environment.reference}
        whole = tokenizer.chat([*student_messages(environment), turn], thinking=thinking, add_generation_prompt=False)
        if whole[: len(prompt)] != prompt:
            raise InputError(
                f"environment {environment.id!r}: the chat template changes the prompt once an answer follows, so SFT can't part them"
            )
        end = next((i for i in range(len(prompt), len(whole)) if whole[i] in stop_ids), None)
        if end is None:
            raise InputError(f"the chat template ends an answer with none of the stop ids {list(stop_ids)}; check generation_config.json")
        if end + 1 > context:
            raise InputError(f"environment {environment.id!r}: prompt and reference, {end + 1} tokens, exceed the context of {context}")
        examples.append(Demonstration(prompt, whole[len(prompt) : end + 1]))
    return examples


class Sft:
    """The algorithm of the baseline."""

    def __init__(self, config: SftConfig, policy: Policy):
        self._policy = policy
        self._stream = PromptStream(config.data, config.run.seed)
        model = policy.model.config
        self._examples = demonstrations(
            policy.tokenizer, self._stream.environments, model.eos_token_ids, config.data.thinking, model.max_position_embeddings
        )

    def collect(self, step: int, phases: Phases) -> Batch:
        samples = [self._examples[index] for index in self._stream.indices(step)]
        return Batch(samples, {"length/mean": sum(len(s.completion_ids) for s in samples) / len(samples)})

    def sample_from(self, fields: Mapping[str, Any]) -> Demonstration:
        return read_fields(Demonstration, fields)

    def loss(self, samples: Sequence[Demonstration], counts: BatchCounts) -> tuple[Tensor, dict[str, Tensor]]:
        model = self._policy.model
        packed = pack([(s.prompt_ids, s.completion_ids) for s in samples], model.head_weight.device)
        out = fused_linear_logprob(predicting_hidden(model, packed), model.head_weight, packed.targets)
        return -out.logprob.sum() / max(1, counts.tokens), {"entropy": out.entropy.detach().sum()}


def run(config: SftConfig, resume: bool = False, replay: Path | None = None) -> Path:
    """Trains and returns the adapter's directory, or replays a failed step."""
    return run_training(config, Sft, "SFT", resume, replay)


if __name__ == "__main__":
    training_command(SftConfig, run, "Supervised fine-tuning on reference plans.")()
