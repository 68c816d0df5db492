import pytest
import torch

from papergym.errors import InputError
from papergym.training.config import OptimTable
from papergym.training.optim import build_optimizer, learning_rate


def test_hand_computed_rates():
    assert [learning_rate(OptimTable(lr=4.0, warmup_steps=4), step, 8) for step in (1, 2, 4, 5, 8)] == [1.0, 2.0, 4.0, 4.0, 4.0]
    linear = OptimTable(lr=4.0, warmup_steps=2, schedule="linear")
    assert [learning_rate(linear, step, 6) for step in range(1, 7)] == [2.0, 4.0, 4.0, 3.0, 2.0, 1.0]
    cosine = [learning_rate(OptimTable(lr=2.0, schedule="cosine"), step, 4) for step in range(1, 5)]
    assert cosine == pytest.approx([2.0, 1 + 2**-0.5, 1.0, 1 - 2**-0.5])


def test_the_first_adamw_step_is_the_learning_rate_times_the_sign():
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
    optimizer = build_optimizer(OptimTable(lr=0.1), [weight])
    weight.grad = torch.tensor([3.0, -0.5])
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([0.9, -0.9]), rtol=1e-6, atol=0)


def test_impossible_settings_are_refused():
    for settings, words in [
        ({"lr": 0.0}, "optim.lr"),
        ({"warmup_steps": -1}, "optim.warmup_steps"),
        ({"max_grad_norm": -1.0}, "max_grad_norm"),
    ]:
        with pytest.raises(InputError, match=words):
            OptimTable(**settings)
