"""Means with bootstrap intervals. Every number that papergym reports with an interval gets it here."""

from collections.abc import Sequence

import numpy

LEVEL = 0.95
RESAMPLES = 10_000
SEED = 0  # fixed, so that the same values always print the same interval


def bootstrap_interval(values: Sequence[float], *, level: float = LEVEL) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean. values [n], one for each independent unit; None for n < 2, where nothing can be said."""
    data = numpy.asarray(values, dtype=numpy.float64)
    if data.size < 2:
        return None
    random = numpy.random.default_rng(SEED)
    rows = max(1, min(RESAMPLES, 2_000_000 // data.size))  # at most 16 MB of indices at a time
    means = numpy.concatenate(
        [data[random.integers(0, data.size, (min(rows, RESAMPLES - start), data.size))].mean(axis=1) for start in range(0, RESAMPLES, rows)]
    )
    low, high = numpy.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def estimate(values: Sequence[float]) -> dict[str, float | None]:
    """{"mean", "low", "high"} of independent values; None where there are too few for the number to mean something."""
    low, high = bootstrap_interval(values) or (None, None)
    return {"mean": float(numpy.mean(values)) if len(values) else None, "low": low, "high": high}
