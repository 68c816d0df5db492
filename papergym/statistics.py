"""Means with bootstrap intervals. Every number that papergym reports with an interval gets it here."""

from collections.abc import Sequence

import numpy

LEVEL = 0.95
RESAMPLES = 10_000
SEED = 0  # fixed, so that the same values always print the same interval


def bootstrap_means(values: Sequence[float], seed: int = SEED) -> numpy.ndarray:
    """Means of RESAMPLES draws with replacement. values [n], one for each independent unit, n >= 1."""
    data = numpy.asarray(values, dtype=numpy.float64)
    random = numpy.random.default_rng(seed)
    rows = max(1, min(RESAMPLES, 2_000_000 // data.size))  # at most 16 MB of indices at a time
    return numpy.concatenate(
        [data[random.integers(0, data.size, (min(rows, RESAMPLES - start), data.size))].mean(axis=1) for start in range(0, RESAMPLES, rows)]
    )


def bootstrap_interval(values: Sequence[float], *, level: float = LEVEL) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean. values [n], one for each independent unit; None for n < 2, where nothing can be said."""
    return _quantiles(bootstrap_means(values), level) if len(values) > 1 else None


def estimate(values: Sequence[float]) -> dict[str, float | None]:
    """{"mean", "low", "high"} of independent values; None where there are too few for the number to mean something."""
    low, high = bootstrap_interval(values) or (None, None)
    return {"mean": float(numpy.mean(values)) if len(values) else None, "low": low, "high": high}


def estimate_average(groups: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """The same for the average of the groups' means, each group counting alike; every group is resampled by itself.

    None for the mean when a group is empty, and for the interval when one has fewer than two values.
    """
    if not groups or not all(len(group) for group in groups):
        return {"mean": None, "low": None, "high": None}
    low, high = None, None
    if all(len(group) > 1 for group in groups):
        draws = [bootstrap_means(group, SEED + number) for number, group in enumerate(groups)]  # one seed would draw them alike
        low, high = _quantiles(numpy.mean(draws, axis=0), LEVEL)
    return {"mean": float(numpy.mean([numpy.mean(group) for group in groups])), "low": low, "high": high}


def _quantiles(means: numpy.ndarray, level: float) -> tuple[float, float]:
    low, high = numpy.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
