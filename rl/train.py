"""GRPO with the rubric as reward (equations 2 and 3 of the paper).

    python -m papergym.rl.train --config configs/grpo_qwen3_1.7b.toml --set model.adapter=runs/opsd/adapter

Each step samples a group of answers for every prompt, scores them criterion by criterion, standardises the rewards within the group and
takes one step on the clipped surrogate plus a KL penalty to the reference policy. One update a batch, so the old policy is the current
one and its log-probs are the trainer's own, detached. Departure from equation 3: the ratio is per token and terms are averaged over the
batch's tokens (grpo.loss = "token_mean"), as in the framework that the paper trained with; grpo.ratio = "sequence" with
grpo.loss = "grpo" is the equation as printed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from papergym.errors import InputError
from papergym.judge.answer import plan_of
from papergym.judge.scoring import Scored, judge_options, open_judge, score_all
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.model.generation import TorchEngine
from papergym.model.lora import adapters_disabled, lora_parameters
from papergym.model.prompts import student_messages
from papergym.registry import check_takes
from papergym.rl.advantages import find_estimator, group_advantages, zero_variance
from papergym.rl.losses import find_loss, policy_terms, truncated_correction
from papergym.seeds import derive_seed
from papergym.training.aggregate import BatchCounts, token_weights
from papergym.training.command import training_command
from papergym.training.config import MOST, SamplingTable, TrainingConfig, above_zero, at_least, within
from papergym.training.data import PromptStream, encode_prompts
from papergym.training.distributed import gathered
from papergym.training.loop import Batch, Phases, Policy, run_training
from papergym.training.packing import Packed, pack, pad_rows, predicting_hidden
from papergym.training.replay import read_fields
from papergym.training.rollouts import Rollout, rollout_metrics, sample_rollouts


@dataclass(frozen=True)
class GrpoTable:
    """The choices of GRPO."""

    group_size: int = 8  # G, answers a prompt
    judge: str = "lexical"
    advantage: str = "standardised"  # "standardised", "centred" or module:function
    loss: str = "token_mean"  # a name in rl/losses.py or module:function
    ratio: Literal["token", "sequence", "sequence_mean"] = "token"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: Literal["k1", "k2", "k3"] = "k3"
    kl_weight: float = 0.01
    reference: Literal["base", "initial"] = "base"  # the model without its adapter, or as it was when this stage began
    correction: Literal["token", "none"] = "token"  # for a sampler that differs from the trainer, truncated at correction_cap
    correction_cap: float = 2.0

    def __post_init__(self) -> None:
        within(self, "grpo", "group_size", 1, MOST)
        for name in ("clip_low", "clip_high", "kl_weight"):
            at_least(self, "grpo", name, 0)
        above_zero(self, "grpo", "correction_cap")
        check_takes("policy loss", self.loss, find_loss(self.loss).terms, "inputs")
        check_takes("advantage estimator", self.advantage, find_estimator(self.advantage), "centred", "scored", "count")
        judge_options(self.judge)


@dataclass(frozen=True, kw_only=True)
class GrpoConfig(TrainingConfig):
    sampling: SamplingTable = field(default_factory=SamplingTable)
    grpo: GrpoTable = field(default_factory=GrpoTable)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling.top_p != 1.0 or self.sampling.top_k != 0:
            raise InputError(
                "keys 'sampling.top_p' and 'sampling.top_k' must be 1.0 and 0 for GRPO: the ratio needs log-probs of the whole distribution"
            )


@dataclass(frozen=True)
class GradedRollout:
    """A rollout with its advantage A_i."""

    rollout: Rollout
    advantage: float

    @property
    def prompt_ids(self) -> Sequence[int]:
        return self.rollout.prompt_ids

    @property
    def completion_ids(self) -> Sequence[int]:
        return self.rollout.completion_ids


class Grpo:
    """The algorithm of the second stage."""

    def __init__(self, config: GrpoConfig, policy: Policy):
        self._config, self._policy = config, policy
        self._stream = PromptStream(config.data, config.run.seed)
        self._engine = TorchEngine(policy.model)
        self._judge = open_judge(config.grpo.judge)
        self._loss = find_loss(config.grpo.loss)
        self._reference = reference_policy(config.grpo.reference, policy.model)
        self._prompts = encode_prompts(
            policy.tokenizer,
            self._stream.environments,
            student_messages,
            thinking=config.data.thinking,
            room=config.sampling.max_tokens,
            context=policy.model.config.max_position_embeddings,
            role="student",
        )

    def collect(self, step: int, phases: Phases) -> Batch:
        config, ranks = self._config, self._policy.ranks
        with phases("sample"), gathered(self._policy.model):
            rollouts = sample_rollouts(
                self._engine,
                self._policy.tokenizer,
                self._stream.environments,
                self._prompts,
                self._stream.indices(step),
                config.sampling,
                n=config.grpo.group_size,
                seed=derive_seed(config.run.seed, step, 1),
                ranks=ranks,
            )
        with phases("score"):
            items = [(rollout.environment, plan_of(rollout.response)) for rollout in rollouts]
            scores = ranks.gather(score_all(self._judge, items[ranks.share(len(items))]))
        rewards = torch.tensor([torch.nan if score.reward is None else score.reward for score in scores], dtype=torch.float64)
        advantages = group_advantages(rewards, config.grpo.group_size, config.grpo.advantage)
        samples = [GradedRollout(rollout, advantage) for rollout, advantage in zip(rollouts, advantages.tolist(), strict=True)]
        records = [_record(sample, score) for sample, score in zip(samples, scores, strict=True)]
        return Batch(samples, rollout_metrics(rollouts) | reward_metrics(rewards, config.grpo.group_size), records)

    def sample_from(self, fields: Mapping[str, Any]) -> GradedRollout:
        graded = read_fields(GradedRollout, fields)
        if not isinstance(graded.rollout, dict):
            raise InputError(f"rollout: an object is needed, not {graded.rollout!r}")
        return replace(graded, rollout=Rollout.from_fields(graded.rollout))

    def loss(self, samples: Sequence[GradedRollout], counts: BatchCounts) -> tuple[Tensor, dict[str, Tensor]]:
        options, model = self._config.grpo, self._policy.model
        packed = pack([(s.prompt_ids, s.completion_ids) for s in samples], model.head_weight.device)
        reference = None
        if options.kl_weight:
            with torch.no_grad(), self._reference():
                model.eval()
                reference = pad_rows(self._logprobs(packed).logprob, packed.lengths)[0]  # [B, L]
            model.train()
        out = self._logprobs(packed)
        logprobs, mask = pad_rows(out.logprob, packed.lengths)  # [B, L]
        sampled = torch.tensor([lp for s in samples for lp in s.rollout.sampled_logprobs], device=logprobs.device)
        sampled = pad_rows(sampled, packed.lengths)[0]
        terms, metrics = policy_terms(
            options.loss,
            logprobs,
            logprobs.detach(),
            torch.tensor([s.advantage for s in samples], device=logprobs.device),
            mask,
            ref_logprobs=reference,
            ratio=options.ratio,
            clip_low=options.clip_low,
            clip_high=options.clip_high,
            kl=options.kl,
            kl_weight=options.kl_weight,
            correction=truncated_correction(logprobs, sampled, mask, options.correction_cap) if options.correction == "token" else None,
        )
        weights = token_weights(mask, self._loss.aggregation, counts, self._config.sampling.max_tokens)
        sums = {name: value.sum() for name, value in metrics.items()}
        sums |= {"entropy": out.entropy.detach().sum(), "mismatch/mean": torch.where(mask, logprobs.detach() - sampled, 0.0).abs().sum()}
        return (weights * terms).sum(), sums

    def _logprobs(self, packed: Packed) -> Any:
        model = self._policy.model
        hidden = predicting_hidden(model, packed)
        return fused_linear_logprob(hidden, model.head_weight, packed.targets, temperature=self._config.sampling.temperature)


def reference_policy(name: str, model: Any) -> Callable[[], AbstractContextManager[Any]]:
    """A context manager under which the model is π_ref: without its adapter, or with a frozen copy of the adapter as it is at this call."""
    if name == "base":
        return lambda: adapters_disabled(model)
    frozen = [parameter.detach().clone() for parameter in lora_parameters(model)]
    return lambda: adapter_values(model, frozen)


@contextmanager
def adapter_values(model: Any, values: Sequence[Tensor]) -> Iterator[None]:
    """Copies other values into the adapter's parameters and the trained ones back on exit."""
    parameters = lora_parameters(model)
    trained = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, trained, strict=True):
                parameter.copy_(value)


def reward_metrics(rewards: Tensor, group_size: int) -> dict[str, float]:
    """Mean and mean within-group standard deviation of the scored rewards, the number unscored, the share of groups without variance."""
    values = rewards.view(-1, group_size)
    scored = rewards[~rewards.isnan()]
    spreads = [row[~row.isnan()].std(correction=0).item() for row in values if not row.isnan().all()]
    return {
        "reward/mean": scored.mean().item() if len(scored) else float("nan"),
        "reward/std": sum(spreads) / len(spreads) if spreads else float("nan"),
        "unscored": float(rewards.isnan().sum().item()),
        "zero_variance": zero_variance(rewards, group_size).float().mean().item(),
    }


def _record(sample: GradedRollout, score: Scored) -> dict[str, Any]:
    graded = {"reward": score.reward, "advantage": sample.advantage, "specialised": score.specialised, "general": score.general}
    return sample.rollout.record() | graded


def run(config: GrpoConfig, resume: bool = False, replay: Path | None = None) -> Path:
    """Trains and returns the adapter's directory, or replays a failed step."""
    return run_training(config, Grpo, "GRPO", resume, replay)


if __name__ == "__main__":
    training_command(GrpoConfig, run, "GRPO with rubric rewards.")()
