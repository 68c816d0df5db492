"""GRPO for real on a tiny model: a reward that can be learned is learned, its gradient against a plain computation, bit-exact resume."""

import json

import pytest
import torch
from safetensors.torch import load_file

from papergym.config import from_mapping
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.judge.scoring import Scored
from papergym.model.lora import adapters_disabled, lora_parameters
from papergym.rl.losses import policy_loss
from papergym.rl.train import Grpo, GrpoConfig, reference_policy, reward_metrics, run
from papergym.training.aggregate import BatchCounts
from papergym.training.loop import Phases, load_policy

JUDGES = '''
from papergym.judge.scoring import Scored

class Share:
    """The share of some characters in the plan."""
    def score(self, items):
        share = lambda plan: sum(map(self.counts, plan)) / max(1, len(plan))
        return [Scored((True, False), (None,) * 7, share(plan)) for _, plan in items]

class Vowels(Share):
    counts = staticmethod(lambda character: character == "e")

class Early(Share):
    counts = staticmethod(lambda character: character < "n")
'''


@pytest.fixture
def recipe(tmp_path, tiny_policy, environments, monkeypatch):
    write_environments(tmp_path / "train.jsonl", environments)
    (tmp_path / "share_judges.py").write_text(JUDGES)
    monkeypatch.syspath_prepend(tmp_path)

    def make(directory="run", **tables) -> GrpoConfig:
        values = {
            "run": {"dir": str(tmp_path / directory), "steps": 4, "checkpoint_every": 2},
            "model": {"path": str(tiny_policy), "dtype": "float32"},
            "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 2},
            "lora": {"rank": 8, "alpha": 16},
            "optim": {"lr": 1e-2},
            "sampling": {"max_tokens": 12},
            "grpo": {"group_size": 4, "judge": "share_judges:Early"},
        }
        for name, table in tables.items():
            values[name] = values.get(name, {}) | table
        return from_mapping(GrpoConfig, values)

    return make


def randomise_adapter(policy):
    generator = torch.Generator().manual_seed(3)
    for parameter in lora_parameters(policy.model):
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1


def metrics(directory):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time")} for line in lines]


def test_a_reward_that_can_be_learned_is_learned(recipe, tmp_path):
    run(recipe(run={"steps": 25}, data={"prompts_per_step": 3}, grpo={"group_size": 8, "judge": "share_judges:Vowels"}, optim={"lr": 3e-2}))
    rewards = [line["reward/mean"] for line in metrics(tmp_path / "run")]
    assert sum(rewards[:3]) / 3 < 0.05
    assert sum(rewards[-3:]) / 3 > 0.4


@pytest.mark.parametrize("loss", ["token_mean", "grpo", "dr_grpo"])
def test_loss_and_gradient_equal_the_plain_computation(recipe, loss):
    config = recipe(
        grpo={"loss": loss, "kl_weight": 0.5},
        sampling={"max_tokens": 12, "temperature": 1.3},
    )
    policy = load_policy(config)
    randomise_adapter(policy)
    algorithm = Grpo(config, policy)
    samples = algorithm.collect(1, Phases()).samples
    assert any(sample.advantage for sample in samples)
    counts = BatchCounts.of([len(s.completion_ids) for s in samples])
    value = 0.0
    for sample in samples:  # one at a time: the split must not matter
        share, _ = algorithm.loss([sample], counts)
        share.backward()
        value += share.item()
    ours = [parameter.grad.clone() for parameter in lora_parameters(policy.model)]

    width = 12

    def logprobs():
        rows = torch.zeros(len(samples), width)
        for i, sample in enumerate(samples):
            ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]])
            hidden = policy.model(ids)[0, len(sample.prompt_ids) - 1 : -1]
            logits = hidden @ policy.model.head_weight.T / 1.3
            rows[i, : len(logits)] = logits.log_softmax(-1).gather(1, torch.tensor(sample.completion_ids)[:, None])[:, 0]
        return rows

    with torch.no_grad(), adapters_disabled(policy.model):
        reference = logprobs()
    mask = torch.arange(width)[None] < torch.tensor([len(s.completion_ids) for s in samples])[:, None]
    current = logprobs()
    policy.model.zero_grad()
    advantages = torch.tensor([s.advantage for s in samples])
    expected, expected_metrics = policy_loss(loss, current, current.detach(), advantages, mask, ref_logprobs=reference, kl_weight=0.5)
    expected.backward()
    assert expected_metrics["kl"].item() > 0
    assert value == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    for a, b in zip(ours, lora_parameters(policy.model), strict=True):
        assert (a - b.grad).norm() <= 1e-3 * b.grad.norm()


def test_sampler_and_trainer_agree(recipe):
    config = recipe()
    policy = load_policy(config)
    randomise_adapter(policy)
    algorithm = Grpo(config, policy)
    samples = algorithm.collect(1, Phases()).samples
    counts = BatchCounts.of([len(s.completion_ids) for s in samples])
    _, sums = algorithm.loss(samples, counts)
    assert sums["mismatch/mean"].item() / counts.tokens < 1e-5
    assert sums["kl"].item() > 0


def test_unscored_answers_have_no_advantage_and_are_counted(recipe, monkeypatch):
    config = recipe()
    policy = load_policy(config)
    algorithm = Grpo(config, policy)

    class Silent:
        def score(self, items):
            rewards = [None, 0.2, 0.8, 0.2, *[0.5] * 4]
            return [Scored((), (), reward) for reward in rewards]

    monkeypatch.setattr(algorithm, "_judge", Silent())
    batch = algorithm.collect(1, Phases())
    assert [bool(sample.advantage) for sample in batch.samples] == [False, True, True, True, *[False] * 4]
    assert batch.metrics["unscored"] == 1 and batch.metrics["zero_variance"] == 0.5
    assert batch.metrics["reward/mean"] == pytest.approx((0.2 + 0.8 + 0.2 + 2.0) / 7)


def test_reward_metrics_of_nothing_scored():
    values = reward_metrics(torch.full((4,), torch.nan), 2)
    assert values["unscored"] == 4 and values["zero_variance"] == 1 and values["reward/mean"] != values["reward/mean"]


def test_references(recipe):
    policy = load_policy(recipe())
    randomise_adapter(policy)
    ids = torch.tensor([[1, 2, 3]])
    before = policy.model(ids)
    initial, base = reference_policy("initial", policy.model), reference_policy("base", policy.model)
    with torch.no_grad():
        for parameter in lora_parameters(policy.model):
            parameter.mul_(2)
    moved = policy.model(ids)
    with initial():
        torch.testing.assert_close(policy.model(ids), before, rtol=0, atol=0)
    with base(), adapters_disabled(policy.model):
        assert not torch.allclose(policy.model(ids), before)
    torch.testing.assert_close(policy.model(ids), moved, rtol=0, atol=0)


def test_resume_continues_bit_for_bit(recipe, tmp_path):
    run(recipe("straight"))
    run(recipe("stopped", run={"steps": 2}))
    run(recipe("stopped"), resume=True)
    a = load_file(tmp_path / "straight/adapter/adapter_model.safetensors")
    b = load_file(tmp_path / "stopped/adapter/adapter_model.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(tensor.abs().max() > 0 for name, tensor in a.items() if "lora_B" in name)
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "stopped")
    assert (tmp_path / "straight/rollouts.jsonl").read_bytes() == (tmp_path / "stopped/rollouts.jsonl").read_bytes()


def test_a_nucleus_is_refused(recipe):
    with pytest.raises(InputError, match=r"sampling\.top_p"):
        recipe(sampling={"top_p": 0.9})
