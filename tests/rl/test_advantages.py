import math

import pytest
import torch

from papergym.errors import InputError
from papergym.rl.advantages import group_advantages, zero_variance

NAN = math.nan


def test_hand_computed_groups():
    rewards = torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0, 1.0], dtype=torch.float64)
    std = math.sqrt(1 / 3)  # of (0, 0, 1), unbiased: sum of squares 2/3 over 2
    expected = [-1 / (1 + 1e-6), 0.0, 1 / (1 + 1e-6), -1 / 3 / (std + 1e-6), -1 / 3 / (std + 1e-6), 2 / 3 / (std + 1e-6)]
    torch.testing.assert_close(group_advantages(rewards, 3), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)
    centred = group_advantages(rewards, 3, "centred")
    torch.testing.assert_close(centred, torch.tensor([-1.0, 0, 1, -1 / 3, -1 / 3, 2 / 3], dtype=torch.float64), rtol=1e-12, atol=1e-15)


def test_unscored_answers_leave_the_statistics():
    with_hole = group_advantages(torch.tensor([1.0, NAN, 3.0, 5.0]), 4)
    without = group_advantages(torch.tensor([1.0, 3.0, 5.0]), 3)
    assert with_hole[1] == 0
    torch.testing.assert_close(with_hole[[0, 2, 3]], without, rtol=0, atol=0)


@pytest.mark.parametrize("group", [[0.1] * 8, [NAN] * 8, [0.7] + [NAN] * 7, [0.3 + 0.4] * 4 + [0.7] * 4])
@pytest.mark.parametrize("estimator", ["standardised", "centred"])
def test_groups_without_variance_are_exactly_zero_and_counted(group, estimator):
    rewards = torch.tensor(group + [0.0, 1.0] * 4, dtype=torch.float32)
    advantages = group_advantages(rewards, 8, estimator)
    assert (advantages[:8] == 0).all()
    assert (advantages[8:] != 0).all()
    assert zero_variance(rewards, 8).tolist() == [True, False]


def test_a_group_of_one_has_no_advantage():
    assert group_advantages(torch.tensor([0.2, 0.9]), 1).tolist() == [0.0, 0.0]


def test_shift_and_scale_invariance():
    rewards = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(group_advantages(100 + 7 * rewards, 8), group_advantages(rewards, 8), rtol=1e-4, atol=0)


def test_bad_groups_and_names_are_refused():
    with pytest.raises(InputError, match=r"\(5,\).*groups of 2"):
        group_advantages(torch.zeros(5), 2)
    with pytest.raises(InputError, match=r"advantage estimator 'median'.*centred, standardised"):
        group_advantages(torch.zeros(4), 2, "median")
