"""OPSD for real on a tiny model: its loss against a plain computation, independence of the batch's split, and bit-exact resume."""

import dataclasses
import json
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file

from papergym.config import from_mapping
from papergym.distill.train import Opsd, OpsdConfig, run
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.model.lora import adapters_disabled
from papergym.model.prompts import teacher_messages
from papergym.training.aggregate import BatchCounts
from papergym.training.loop import Phases, load_policy


@pytest.fixture
def recipe(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)

    def make(directory="run", **tables) -> OpsdConfig:
        values = {
            "run": {"dir": str(tmp_path / directory), "steps": 4, "checkpoint_every": 2},
            "model": {"path": str(tiny_policy), "dtype": "float32"},
            "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 3},
            "lora": {"rank": 4, "alpha": 8, "dropout": 0.1},
            "optim": {"lr": 1e-2},
            "sampling": {"max_tokens": 12},
        }
        for name, table in tables.items():
            values[name] = values.get(name, {}) | table
        return from_mapping(OpsdConfig, values)

    return make


def randomise_adapter(policy):
    generator = torch.Generator().manual_seed(3)
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1


def gradients(algorithm, policy, batches, counts):
    policy.model.zero_grad()
    losses = []
    for samples in batches:
        loss, _ = algorithm.loss(samples, counts)
        loss.backward()
        losses.append(loss.item())
    return sum(losses), [p.grad.clone() for p in policy.model.parameters() if p.requires_grad]


@pytest.mark.parametrize("teacher", ["live", "initial"])
def test_loss_equals_the_plain_formula(recipe, teacher, environments):
    config = recipe(lora={"dropout": 0.0}, opsd={"teacher": teacher, "beta": 0.3})
    policy = load_policy(config)
    randomise_adapter(policy)
    algorithm = Opsd(config, policy)
    samples = algorithm.collect(1, Phases()).samples
    counts = BatchCounts.of([len(s.completion_ids) for s in samples])
    loss, sums = algorithm.loss(samples, counts)

    def log_softmax(prompt, completion, disabled):
        with torch.no_grad(), adapters_disabled(policy.model) if disabled else nullcontext():
            hidden = policy.model(torch.tensor([[*prompt, *completion]]))[0, len(prompt) - 1 : -1]
            return (hidden.double() @ policy.model.head_weight.double().T).log_softmax(-1)

    means = []
    for sample in samples:
        privileged = policy.tokenizer.chat(teacher_messages(environments[sample.index], "rubric"))
        p = log_softmax(privileged, sample.completion_ids, teacher == "initial")
        q = log_softmax(sample.prompt_ids, sample.completion_ids, False)
        m = torch.logaddexp(p + torch.log(torch.tensor(0.3)), q + torch.log(torch.tensor(0.7)))
        means.append((0.3 * p.exp() * (p - m) + 0.7 * q.exp() * (q - m)).sum(-1).mean())
    assert loss.item() == pytest.approx(torch.stack(means).mean().item(), rel=1e-4)
    assert sums["divergence"].item() > 0


def test_the_gradient_does_not_depend_on_the_split_and_changes_the_loss(recipe):
    config = recipe(lora={"dropout": 0.0})
    policy = load_policy(config)
    randomise_adapter(policy)
    algorithm = Opsd(config, policy)
    samples = list(algorithm.collect(1, Phases()).samples)
    samples[1] = dataclasses.replace(samples[1], completion_ids=[])  # an empty answer leaves the denominators
    counts = BatchCounts.of([len(s.completion_ids) for s in samples])
    whole, whole_gradients = gradients(algorithm, policy, [samples], counts)
    parts, part_gradients = gradients(algorithm, policy, [[s] for s in samples], counts)
    assert parts == pytest.approx(whole, rel=1e-5)
    for a, b in zip(whole_gradients, part_gradients, strict=True):
        assert (a - b).norm() <= 1e-5 * a.norm()
    assert any(g.norm() > 0 for g in whole_gradients)
    with torch.no_grad():
        for parameter, gradient in zip((p for p in policy.model.parameters() if p.requires_grad), whole_gradients, strict=True):
            parameter -= 0.05 * gradient
    after, _ = algorithm.loss(samples, counts)
    assert after.item() < whole


def metrics(directory):
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time")} for line in lines]


def test_resume_continues_bit_for_bit(recipe, tmp_path):
    run(recipe("straight"))
    run(recipe("stopped", run={"steps": 2}))
    run(recipe("stopped", run={"steps": 4}), resume=True)
    a = load_file(tmp_path / "straight/adapter/adapter_model.safetensors")
    b = load_file(tmp_path / "stopped/adapter/adapter_model.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(tensor.abs().max() > 0 for name, tensor in a.items() if "lora_B" in name)
    assert metrics(tmp_path / "straight") == metrics(tmp_path / "stopped")
    assert (tmp_path / "straight/rollouts.jsonl").read_bytes() == (tmp_path / "stopped/rollouts.jsonl").read_bytes()


def test_a_directory_with_a_run_is_not_overwritten_nor_resumed_under_other_settings(recipe):
    run(recipe(run={"steps": 2}))
    with pytest.raises(InputError, match="already holds a run; add --resume"):
        run(recipe())
    with pytest.raises(InputError, match=r"optim\.lr was 0\.01 .* is 0\.02"):
        run(recipe(optim={"lr": 2e-2}), resume=True)


def test_a_refused_resume_changes_nothing(recipe, tmp_path, environments):
    run(recipe(run={"steps": 2}))
    before = (tmp_path / "run/config.json").read_bytes()
    with pytest.raises(InputError, match=r"optim\.lr"):
        run(recipe(optim={"lr": 2e-2}), resume=True)
    with pytest.raises(InputError, match=r"at step 2 already, beyond run\.steps = 1"):
        run(recipe(run={"steps": 1}), resume=True)
    write_environments(tmp_path / "train.jsonl", environments[:2])
    with pytest.raises(InputError, match=r"content of data\.train"):
        run(recipe(run={"steps": 3}), resume=True)
    assert (tmp_path / "run/config.json").read_bytes() == before


def test_prompts_longer_than_the_context_are_refused_by_name(recipe):
    with pytest.raises(InputError, match=r"'env-0': its student prompt has \d+ tokens.*2048"):
        run(recipe(sampling={"max_tokens": 2040}))
