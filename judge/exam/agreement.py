"""How often a judge's verdicts agree with a reader's labels, with bootstrap intervals over plans."""

from collections.abc import Callable, Sequence

import numpy

from papergym.statistics import LEVEL, SEED

RESAMPLES = 1000
Counts = numpy.ndarray  # [4] or [n, 4]: met and said so, not met but said so, met but not said, neither

MEASURES: dict[str, Callable[[Counts], float]] = {
    "agreement": lambda c: _ratio(c[0] + c[3], c.sum()),
    "precision": lambda c: _ratio(c[0], c[0] + c[1]),
    "recall": lambda c: _ratio(c[0], c[0] + c[2]),
    "kappa": lambda c: kappa(c),
}


def agreement(labels: Sequence[bool], verdicts: Sequence[bool | None], plans: Sequence[str]) -> dict[str, object]:
    """{"pairs", "plans", "met", "said", "unscored": counts; measure: {"value", "low", "high"} for each of MEASURES}.

    labels, verdicts and plans [n], of the same pairs. Pairs without a verdict count as unscored only. Plans are resampled, with all their
    pairs: one plan's verdicts aren't independent. A measure is None where it has no denominator; resamples without one are left out.
    """
    scored = [(label, bool(verdict), plan) for label, verdict, plan in zip(labels, verdicts, plans, strict=True) if verdict is not None]
    by_plan: dict[str, Counts] = {}
    for label, verdict, plan in scored:
        place = {(True, True): 0, (False, True): 1, (True, False): 2, (False, False): 3}[label, verdict]
        by_plan.setdefault(plan, numpy.zeros(4, int))[place] += 1
    counts = numpy.array(list(by_plan.values())).reshape(-1, 4)
    random = numpy.random.default_rng(SEED)
    resampled = [counts[random.integers(0, len(counts), len(counts))].sum(axis=0) for _ in range(RESAMPLES)] if len(counts) > 1 else []
    total = counts.sum(axis=0)
    result: dict[str, object] = {
        "pairs": len(scored),
        "plans": len(counts),
        "met": int(total[0] + total[2]),
        "said": int(total[0] + total[1]),
        "unscored": len(labels) - len(scored),
    }
    for name, measure in MEASURES.items():
        values = [value for value in map(measure, resampled) if not numpy.isnan(value)]
        low, high = numpy.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if values else (numpy.nan, numpy.nan)
        result[name] = {key: _rounded(value) for key, value in (("value", measure(total)), ("low", low), ("high", high))}
    return result


def kappa(counts: Counts) -> float:
    """Cohen's κ = (observed − expected agreement) / (1 − expected), expected from the margins; nan where both always say the same."""
    share = counts / max(1, counts.sum())
    observed = share[0] + share[3]
    met, said = share[0] + share[2], share[0] + share[1]
    expected = met * said + (1 - met) * (1 - said)
    return _ratio(observed - expected, 1 - expected) if expected < 1 else numpy.nan


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else numpy.nan


def _rounded(value: float) -> float | None:
    return None if numpy.isnan(value) else round(float(value), 3) + 0.0  # + 0.0: no −0.0
