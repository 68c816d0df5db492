"""Shares of criteria, with 95 % bootstrap intervals that resample whole environments: a rubric's criteria are no independent evidence.

Where all criteria are alike every resample is too, and the bootstrap says nothing. There the interval ends at the exact binomial bound for
as many trials as there are environments, 1 - 0.025^(1/n), which is wide but true.
"""

from collections.abc import Iterable, Sequence

import numpy

from papergym.environment import Environment
from papergym.statistics import LEVEL, RESAMPLES, SEED

Verdicts = Sequence[bool | None]  # on an environment's criteria; None: not scored
Rate = dict[str, float | int | None]
_CELLS = 2_000_000  # of the table of draws that is held at a time


def rate(rubrics: Iterable[Verdicts]) -> Rate:
    """{"mean", "low", "high", "count", "unscored"}: the share that is True among those scored, whose number is count.

    mean is None where none is scored; low and high where fewer than two environments have one that is.
    """
    counts = numpy.array([(sum(v is True for v in rubric), sum(v is not None for v in rubric), len(rubric)) for rubric in rubrics])
    counts = counts.reshape(-1, 3)
    unscored = int((counts[:, 2] - counts[:, 1]).sum())
    counts = counts[counts[:, 1] > 0, :2].astype(float)
    mean, low, high = None, None, None
    if len(counts):
        mean = float(counts[:, 0].sum() / counts[:, 1].sum())
    if len(counts) > 1:
        bound = ((1 - LEVEL) / 2) ** (1 / len(counts))
        low, high = (bound * mean, 1 - bound * (1 - mean)) if mean in (0, 1) else _quantiles(counts)
    return {"mean": mean, "low": low, "high": high, "count": int(counts[:, 1].sum()), "unscored": unscored}


def rates_by_group(environments: Sequence[Environment], rubrics: Sequence[Verdicts]) -> dict[str, Rate]:
    """rate() of all criteria ("all"), of each dimension, and of each domain as "domain: cs"; one of a single value is left out."""
    labels = [[("all", c.dimension or "no dimension", f"domain: {e.domain}") for c in e.rubric] for e in environments]
    kinds = [sorted(set(names)) for names in zip(*(label for row in labels for label in row))]
    names = ["all", *(name for kind in kinds[1:] if len(kind) > 1 for name in kind)]
    return {
        name: rate(
            [verdict for verdict, label in zip(verdicts, row) if name in label] for verdicts, row in zip(rubrics, labels, strict=True)
        )
        for name in names
    }


def _quantiles(counts: numpy.ndarray) -> tuple[float, float]:
    """Of the share in RESAMPLES resamples of the rows (True, scored)."""
    random, number = numpy.random.default_rng(SEED), len(counts)
    rows = max(1, min(RESAMPLES, _CELLS // number))
    shares = []
    for start in range(0, RESAMPLES, rows):
        sums = random.multinomial(number, numpy.full(number, 1 / number), size=min(rows, RESAMPLES - start)) @ counts
        shares.append(sums[:, 0] / sums[:, 1])
    low, high = numpy.quantile(numpy.concatenate(shares), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
