"""Hand-computed values, a float64 loop written from the formulas, gradcheck and invariances."""

import math

import pytest
import torch

from papergym.errors import InputError
from papergym.rl.losses import LOSSES, policy_loss, truncated_correction

LENGTHS = (3, 0, 5, 1)


def batch(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (len(LENGTHS), max(LENGTHS))
    old = -2 * torch.rand(shape, generator=generator, dtype=torch.float64)
    logprobs = old + 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    reference = old + 0.3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.arange(shape[1])[None] < torch.tensor(LENGTHS)[:, None]
    advantages = torch.tensor([1.3, 5.0, -0.7, 0.4], dtype=torch.float64)
    return logprobs.to(dtype).requires_grad_(), old.to(dtype), advantages.to(dtype), mask, reference.to(dtype)


def by_loops(name, logprobs, old, advantages, reference, ratio, kl, kl_weight, low=0.2, high=0.2):
    """The formulas, one token at a time, in Python floats."""
    rows = []
    for i, length in enumerate(LENGTHS):
        logs = [(logprobs[i, t] - old[i, t]).item() for t in range(length)]
        terms = []
        for t in range(length):
            exponent = {"token": logs[t], "sequence": sum(logs), "sequence_mean": sum(logs) / length}[ratio]
            rho, advantage = math.exp(exponent), advantages[i].item()
            bounded = min(max(rho, 1 - low), 1 + high)
            value = -bounded * advantage * logprobs[i, t].item() if name == "cispo" else -min(rho * advantage, bounded * advantage)
            x = (reference[i, t] - logprobs[i, t]).item()
            value += kl_weight * {"k1": -x, "k2": x * x / 2, "k3": math.exp(x) - x - 1}[kl]
            terms.append(value)
        rows.append(terms)
    filled = [row for row in rows if row]
    if name == "grpo":
        return sum(sum(row) / len(row) for row in filled) / len(filled)
    if name == "dr_grpo":
        return sum(map(sum, filled)) / (len(filled) * max(LENGTHS))
    return sum(map(sum, filled)) / sum(map(len, filled))


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence_mean"])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_values_equal_the_formulas(name, ratio, kl):
    logprobs, old, advantages, mask, reference = batch()
    loss, metrics = policy_loss(name, logprobs, old, advantages, mask, ref_logprobs=reference, ratio=ratio, kl=kl, kl_weight=0.3)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(by_loops(name, logprobs, old, advantages, reference, ratio, kl, 0.3), rel=1e-12)
    assert set(metrics) == {"ratio", "kl", "clip_fraction"}


@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence_mean"])
@pytest.mark.parametrize("name", ["grpo", "token_mean", "dr_grpo"])
def test_gradients(name, ratio):
    logprobs, old, advantages, mask, reference = batch(1)

    def loss(x):
        return policy_loss(name, x, old, advantages, mask, ref_logprobs=reference, ratio=ratio, kl_weight=0.3)[0]

    assert torch.autograd.gradcheck(loss, (logprobs,))
    loss(logprobs).backward()
    assert (logprobs.grad[~mask] == 0).all()


def test_on_policy_gradient_is_minus_the_weighted_advantage():
    logprobs, _, advantages, mask, _ = batch()
    for name in ("token_mean", "cispo"):
        logprobs.grad = None
        policy_loss(name, logprobs, logprobs.detach(), advantages, mask)[0].backward()
        expected = torch.where(mask, -advantages[:, None] / sum(LENGTHS), 0.0)
        torch.testing.assert_close(logprobs.grad, expected, rtol=1e-12, atol=0)


def test_the_clip_stops_the_gradient_on_the_improving_side_only():
    logprobs = torch.tensor([[0.5, 0.5, -0.5, -0.5]], dtype=torch.float64).requires_grad_()
    old, mask = torch.zeros(1, 4, dtype=torch.float64), torch.ones(1, 4, dtype=torch.bool)
    _, metrics = policy_loss("token_mean", logprobs, old, torch.tensor([1.0]), mask)
    loss, _ = policy_loss("token_mean", logprobs, old, torch.tensor([1.0]), mask)
    loss.backward()
    assert (logprobs.grad[0, :2] == 0).all() and (logprobs.grad[0, 2:] < 0).all()
    assert metrics["clip_fraction"].item() == 0.5
    logprobs.grad = None
    policy_loss("token_mean", logprobs, old, torch.tensor([-1.0]), mask)[0].backward()
    assert (logprobs.grad[0, :2] > 0).all() and (logprobs.grad[0, 2:] == 0).all()
    wide, _ = policy_loss("dapo", logprobs, old, torch.tensor([1.0]), mask, clip_high=0.28)
    assert wide.item() - loss.item() == pytest.approx(-0.08 * 2 / 4, rel=1e-9)


def test_masked_content_does_not_matter_even_when_it_is_not_finite():
    logprobs, old, advantages, mask, reference = batch()
    loss, _ = policy_loss("grpo", logprobs, old, advantages, mask, ref_logprobs=reference, ratio="sequence", kl_weight=0.1)
    poisoned = [torch.where(mask, tensor.detach(), math.nan) for tensor in (logprobs, old, reference)]
    poisoned[0].requires_grad_()
    again, _ = policy_loss("grpo", poisoned[0], poisoned[1], advantages, mask, ref_logprobs=poisoned[2], ratio="sequence", kl_weight=0.1)
    loss.backward()
    again.backward()
    assert again.item() == loss.item()
    torch.testing.assert_close(poisoned[0].grad, logprobs.grad, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nothing_unmasked_gives_zero_with_zero_gradient(name):
    logprobs, old, advantages, mask, _ = batch()
    loss, _ = policy_loss(name, logprobs, old, advantages, torch.zeros_like(mask))
    loss.backward()
    assert loss.item() == 0
    assert (logprobs.grad == 0).all()


def test_low_precision_is_computed_in_float32():
    logprobs, old, advantages, mask, reference = batch(dtype=torch.bfloat16)
    loss, _ = policy_loss("grpo", logprobs, old, advantages, mask, ref_logprobs=reference, kl_weight=0.3)
    assert loss.dtype == torch.float32
    exact = by_loops("grpo", logprobs.double(), old.double(), advantages.double(), reference.double(), "token", "k3", 0.3)
    assert loss.item() == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("ratio", ["token", "sequence", "sequence_mean"])
@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_far_ratios_stay_finite(ratio, advantage):
    logprobs = torch.zeros(1, 2, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss, _ = policy_loss("token_mean", logprobs, torch.full((1, 2), -100.0), torch.tensor([advantage]), mask, ratio=ratio)
    loss.backward()
    assert loss.isfinite() and logprobs.grad.isfinite().all()
    if advantage >= 0:
        assert loss.item() == pytest.approx(-1.2 * advantage) and (logprobs.grad == 0).all()


def test_a_weight_of_zero_keeps_an_infinite_divergence_out():
    logprobs, mask = torch.full((1, 2), -100.0, requires_grad=True), torch.ones(1, 2, dtype=torch.bool)
    loss, _ = policy_loss("grpo", logprobs, logprobs.detach(), torch.tensor([1.0]), mask, ref_logprobs=torch.zeros(1, 2))
    loss.backward()
    assert loss.item() == -1 and logprobs.grad.tolist() == [[-0.5, -0.5]]


def test_a_loss_of_the_wrong_shape_is_named(tmp_path, monkeypatch):
    (tmp_path / "row_loss.py").write_text("def rows(inputs):\n    return inputs.logprobs.sum(1), {}\n")
    monkeypatch.syspath_prepend(tmp_path)
    logprobs, old, advantages, mask, _ = batch()
    with pytest.raises(InputError, match=r"'row_loss:rows': its terms have the shape \(4,\), not \(4, 5\)"):
        policy_loss("row_loss:rows", logprobs, old, advantages, mask)


def test_correction_is_bounded_and_constant():
    logprobs, old, _, mask, _ = batch()
    weights = truncated_correction(logprobs, old, mask, cap=1.2)
    assert not weights.requires_grad
    assert weights.max() == 1.2 and (weights[~mask] == 1).all()
    inside = mask & (weights < 1.2)
    torch.testing.assert_close(weights[inside], (logprobs - old).detach()[inside].exp(), rtol=1e-12, atol=0)


def test_a_loss_from_outside_the_package(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(
        "def reinforce(inputs):\n    return -inputs.advantages * inputs.logprobs * inputs.options['scale'], {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    logprobs, old, advantages, mask, _ = batch()
    loss, _ = policy_loss("my_losses:reinforce", logprobs, old, advantages, mask, scale=3.0)
    expected = -3 * (advantages[:, None] * logprobs)[mask].mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0), (2, 3)])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_batch_without_a_token_gives_zero(name, shape):
    logprobs = torch.full(shape, -1.0, requires_grad=True)
    loss, _ = policy_loss(name, logprobs, logprobs.detach() - 1, torch.ones(shape[0]), torch.zeros(shape, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0 and logprobs.grad is not None and (logprobs.grad == 0).all()


def test_bad_arguments_are_named():
    logprobs, old, advantages, mask, reference = batch()
    for arguments, options, words in [
        ((logprobs, old[:, :2], advantages, mask), {}, r"old_logprobs has the shape \(4, 2\)"),
        ((logprobs, old, advantages[:2], mask), {}, r"advantages \[B\] \(2,\)"),
        ((logprobs, old, advantages, mask.float()), {}, "torch.float32; torch.bool"),
        ((logprobs, old, advantages, mask), {"kl_weight": 0.1}, "pass ref_logprobs"),
        ((logprobs, old, advantages, mask), {"ratio": "word"}, "ratio 'word'"),
        ((logprobs, old, advantages, mask), {"ref_logprobs": reference, "kl": "k4"}, "KL estimator 'k4'"),
    ]:
        with pytest.raises(InputError, match=words):
            policy_loss("grpo", *arguments, **options)
    for name, options, words in [
        ("grpo", {"clip_hihg": 0.3}, "'grpo' has no option 'clip_hihg': allowed are none"),
        ("cispo", {"max_tokens": 5}, "'cispo' has no option 'max_tokens'"),
        ("dr_grpo", {"scale": 1}, "'dr_grpo' has no option 'scale': allowed are max_tokens"),
        ("dr_grpo", {"max_tokens": 0}, "a number of tokens from 1 to divide by, not 0"),
    ]:
        with pytest.raises(InputError, match=words):
            policy_loss(name, logprobs, old, advantages, mask, **options)
    with pytest.raises(InputError, match=r"policy loss 'ppo'.*cispo, dapo, dr_grpo, grpo, token_mean"):
        policy_loss("ppo", logprobs, old, advantages, mask)
