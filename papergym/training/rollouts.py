"""Rollouts drawn from the policy that is being trained: token ids in, token ids out, never tokenised again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.answer import plan_of
from papergym.model.generation import Engine, SamplingParams
from papergym.model.tokenizer import Tokenizer
from papergym.training.config import SamplingTable
from papergym.training.distributed import ONE, Ranks
from papergym.training.replay import read_fields


@dataclass(frozen=True)
class Rollout:
    """One sampled completion y of one environment."""

    environment: Environment
    index: int  # of the environment in the training set
    sample: int  # within the group
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]  # the stop token included
    sampled_logprobs: Sequence[float]  # nats, from the sampler, of every completion token
    finish_reason: str  # "stop" or "length"
    response: str  # decoded, special tokens kept

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Rollout":
        """The rollout whose fields a JSON object holds, as a failed step leaves it. Raises InputError naming the field that is wrong."""
        rollout = read_fields(cls, fields)
        if not isinstance(rollout.environment, dict):
            raise InputError(f"environment: an object is needed, not {rollout.environment!r}")
        if len(rollout.sampled_logprobs) != len(rollout.completion_ids):
            raise InputError("sampled_logprobs: a number for each of completion_ids is needed")
        return replace(rollout, environment=Environment.from_record(rollout.environment))

    def record(self) -> dict[str, Any]:
        """The line of rollouts.jsonl."""
        return {
            "environment": self.environment.id,
            "sample": self.sample,
            "response": self.response,
            "plan": plan_of(self.response),
            "tokens": len(self.completion_ids),
            "finish_reason": self.finish_reason,
        }


def sample_rollouts(
    engine: Engine,
    tokenizer: Tokenizer,
    environments: Sequence[Environment],
    prompts: Sequence[Sequence[int]],
    indices: Sequence[int],
    table: SamplingTable,
    n: int,
    seed: int,
    ranks: Ranks = ONE,
) -> list[Rollout]:
    """Draws n completions for each index into environments and prompts, grouped by prompt in that order.

    Each rank draws for its share of the indices, and returns what all of them drew.
    """
    share = ranks.share(len(indices))
    params = SamplingParams(
        n=n,
        temperature=table.temperature,
        top_p=table.top_p,
        top_k=table.top_k,
        max_tokens=table.max_tokens,
        seed=seed,
        first_prompt=share.start,
    )
    mine = indices[share]
    groups = engine.generate([list(prompts[index]) for index in mine], params)
    rollouts = [
        Rollout(
            environment=environments[index],
            index=index,
            sample=sample,
            prompt_ids=prompts[index],
            completion_ids=completion.token_ids,
            sampled_logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            response=tokenizer.decode(completion.token_ids),
        )
        for index, group in zip(mine, groups, strict=True)
        for sample, completion in enumerate(group)
    ]
    return ranks.gather(rollouts)


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Mean length in tokens, the share that ended at the token limit, the share without an answer after its thinking."""
    return {
        "length/mean": sum(len(r.completion_ids) for r in rollouts) / len(rollouts),
        "truncated": sum(r.finish_reason == "length" for r in rollouts) / len(rollouts),
        "unanswered": sum(plan_of(r.response) is None for r in rollouts) / len(rollouts),
    }
