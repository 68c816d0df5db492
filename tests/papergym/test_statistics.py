import itertools

import numpy as np
import pytest

from papergym.statistics import bootstrap_interval, estimate, estimate_average


@pytest.mark.parametrize("values", [[0.0, 0.3, 1.0], [0.1, 0.2, 0.25, 0.9]])
def test_bootstrap_equals_enumeration(values):
    """All n^n resamples are equally likely; their quantiles are what the random ones estimate."""
    means = [np.mean(resample) for resample in itertools.product(values, repeat=len(values))]
    low, high = bootstrap_interval(values, level=0.6)
    assert low == pytest.approx(np.quantile(means, 0.2), abs=1e-9)
    assert high == pytest.approx(np.quantile(means, 0.8), abs=1e-9)


def test_bootstrap_of_many_values_is_the_normal_interval():
    values = np.random.default_rng(3).normal(0.5, 0.1, 4000)
    low, high = bootstrap_interval(values)
    error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_bootstrap_moves_and_scales_with_the_values():
    values = np.array([0.1, 0.5, 0.2, 0.8])
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(-2 * values + 1) == (pytest.approx(1 - 2 * high, abs=1e-3), pytest.approx(1 - 2 * low, abs=1e-3))


def test_too_few_values_have_no_interval_and_none_have_no_mean():
    assert estimate([0.3]) == {"mean": 0.3, "low": None, "high": None}
    assert estimate([]) == {"mean": None, "low": None, "high": None}
    assert estimate([0.0, 1.0]) == {"mean": 0.5, "low": 0.0, "high": 1.0}


def test_an_average_of_groups_counts_each_alike_and_resamples_each_by_itself():
    """Of two groups the variance of the average is (s₁²/n₁ + s₂²/n₂) / 4: less than if both were drawn with the same numbers."""
    random = np.random.default_rng(1)
    groups = random.normal(1.0, 0.3, 900), random.normal(5.0, 0.3, 900)
    found = estimate_average(groups)
    error = np.sqrt(sum(group.var() / len(group) for group in groups)) / 2
    assert found["mean"] == pytest.approx((groups[0].mean() + groups[1].mean()) / 2)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * error, rel=0.04)
    assert estimate_average([[1.0] * 99, [0.0]]) == {"mean": 0.5, "low": None, "high": None}
    assert estimate_average([[1.0], []]) == estimate_average([]) == {"mean": None, "low": None, "high": None}
    assert estimate_average([[0.0, 1.0, 0.5]]) == estimate([0.0, 1.0, 0.5])
