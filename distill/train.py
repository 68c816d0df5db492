"""On-policy self-distillation from a rubric-conditioned teacher (OPSD, equation 1 of the paper).

    python -m papergym.distill.train --config configs/opsd_qwen3_1.7b.toml --set run.dir=runs/opsd

The student π_θ(·|x) answers the question; the teacher π_θ(·|x, R) reads the same answer with the rubric R in its prompt; the loss is the
generalised Jensen-Shannon divergence between their next-token distributions at every sampled token, mean over each answer's tokens, then
over answers. The teacher is constant within a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from papergym.distill.teachers import teacher
from papergym.errors import InputError
from papergym.kernels.linear_jsd import BACKENDS, fused_linear_jsd
from papergym.kernels.linear_jsd.divergences import find_divergence
from papergym.model.generation import TorchEngine
from papergym.model.prompts import student_messages, teacher_messages
from papergym.registry import check_takes
from papergym.seeds import derive_seed
from papergym.training.aggregate import BatchCounts, token_weights
from papergym.training.command import training_command
from papergym.training.config import MOST, SamplingTable, TrainingConfig, above_zero, within
from papergym.training.data import PromptStream, encode_prompts
from papergym.training.distributed import gathered
from papergym.training.loop import Batch, Phases, Policy, run_training
from papergym.training.packing import pack, pad_rows, predicting_hidden
from papergym.training.rollouts import Rollout, rollout_metrics, sample_rollouts


@dataclass(frozen=True)
class OpsdTable:
    """The choices of OPSD."""

    teacher: str = "live"  # "live", "initial" or module:function
    context: Literal["rubric", "reference", "rubric+reference"] = "rubric"  # what the teacher sees beside the question
    teacher_thinking: bool = True
    divergence: str = "jsd"  # or module:function
    beta: float = 0.5  # weight of the teacher in the mixture; 0 is KL(teacher || student), 1 is KL(student || teacher)
    temperature: float = 1.0  # of both distributions inside the divergence
    element_clip: float | None = None  # caps each vocabulary entry's share of a token's divergence, nats
    aggregation: Literal["sequence_mean", "token_mean"] = "sequence_mean"
    samples_per_prompt: int = 1
    backend: str = "auto"  # of the kernel

    def __post_init__(self) -> None:
        within(self, "opsd", "beta", 0.0, 1.0)
        above_zero(self, "opsd", "temperature", *([] if self.element_clip is None else ["element_clip"]))
        within(self, "opsd", "samples_per_prompt", 1, MOST)
        check_takes("teacher", self.teacher, teacher(self.teacher), "model")
        entries = find_divergence(self.divergence).entries
        check_takes("divergence", self.divergence, entries, "student_logprobs", "teacher_logprobs", "beta")
        if self.backend not in ("auto", *BACKENDS):
            raise InputError(f"key 'opsd.backend' has the value {self.backend!r}: one of auto, {', '.join(BACKENDS)} is needed")


@dataclass(frozen=True, kw_only=True)
class OpsdConfig(TrainingConfig):
    sampling: SamplingTable = field(default_factory=SamplingTable)
    opsd: OpsdTable = field(default_factory=OpsdTable)


class Opsd:
    """The algorithm of the first stage."""

    def __init__(self, config: OpsdConfig, policy: Policy):
        self._config, self._policy = config, policy
        self._stream = PromptStream(config.data, config.run.seed)
        self._engine = TorchEngine(policy.model)
        self._teacher = teacher(config.opsd.teacher)
        environments, room, context = self._stream.environments, config.sampling.max_tokens, policy.model.config.max_position_embeddings
        self._prompts = encode_prompts(
            policy.tokenizer, environments, student_messages, thinking=config.data.thinking, room=room, context=context, role="student"
        )
        self._teacher_prompts = encode_prompts(
            policy.tokenizer,
            environments,
            lambda environment: teacher_messages(environment, config.opsd.context),
            thinking=config.opsd.teacher_thinking,
            room=room,
            context=context,
            role="teacher",
        )

    def collect(self, step: int, phases: Phases) -> Batch:
        config = self._config
        with phases("sample"), gathered(self._policy.model):
            rollouts = sample_rollouts(
                self._engine,
                self._policy.tokenizer,
                self._stream.environments,
                self._prompts,
                self._stream.indices(step),
                config.sampling,
                n=config.opsd.samples_per_prompt,
                seed=derive_seed(config.run.seed, step, 1),
                ranks=self._policy.ranks,
            )
        return Batch(rollouts, rollout_metrics(rollouts), [rollout.record() for rollout in rollouts])

    def sample_from(self, fields: Mapping[str, Any]) -> Rollout:
        rollout, environments = Rollout.from_fields(fields), self._stream.environments
        if not 0 <= rollout.index < len(environments) or environments[rollout.index] != rollout.environment:
            raise InputError(f"index: {rollout.index} is not the place of environment {rollout.environment.id!r} in data.train")
        return rollout

    def loss(self, samples: Sequence[Rollout], counts: BatchCounts) -> tuple[Tensor, dict[str, Tensor]]:
        options, model = self._config.opsd, self._policy.model
        head, device = model.head_weight, model.head_weight.device
        with torch.no_grad(), self._teacher(model):
            model.eval()
            privileged = pack([(self._teacher_prompts[s.index], s.completion_ids) for s in samples], device)
            teacher_hidden = predicting_hidden(model, privileged)  # [N, H]
        model.train()
        packed = pack([(s.prompt_ids, s.completion_ids) for s in samples], device)
        out = fused_linear_jsd(
            predicting_hidden(model, packed),
            head,
            teacher_hidden,
            head,
            beta=options.beta,
            temperature=options.temperature,
            element_clip=options.element_clip,
            divergence=options.divergence,
            backend=options.backend,
        )
        divergence, mask = pad_rows(out.divergence, packed.lengths)  # [B, L]
        weights = token_weights(mask, options.aggregation, counts)
        sums = {
            "divergence": out.divergence.detach().sum(),
            "entropy": out.entropy.sum(),
            "teacher_entropy": out.teacher_entropy.sum(),
            "top1_agree": out.top1_agree.sum(),
        }
        return (weights * divergence).sum(), sums


def run(config: OpsdConfig, resume: bool = False, replay: Path | None = None) -> Path:
    """Trains and returns the adapter's directory, or replays a failed step."""
    return run_training(config, Opsd, "OPSD", resume, replay)


if __name__ == "__main__":
    training_command(OpsdConfig, run, "On-policy self-distillation from a rubric-conditioned teacher.")()
