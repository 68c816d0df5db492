"""How often a judge's verdicts agree with a reader's labels, with bootstrap intervals over plans."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from papergym.judge.agreement import cohen_kappa
from papergym.statistics import LEVEL, SEED

RESAMPLES = 2000
Counts = np.ndarray  # [n, 4]: met and said so, met but not said, said but not met, neither

MEASURES: dict[str, Callable[[Counts], np.ndarray]] = {
    "agreement": lambda c: _ratio(c[:, 0] + c[:, 3], c.sum(axis=1)),
    "precision": lambda c: _ratio(c[:, 0], c[:, 0] + c[:, 2]),
    "recall": lambda c: _ratio(c[:, 0], c[:, 0] + c[:, 1]),
    "kappa": cohen_kappa,
}


def agreement(labels: Sequence[bool], verdicts: Sequence[bool | None], plans: Sequence[str]) -> dict[str, Any]:
    """{"pairs", "plans", "met", "said", "unscored": counts; measure: {"value", "low", "high"} for each of MEASURES}.

    labels, verdicts and plans [n], of the same pairs. Pairs without a verdict count as unscored only. Plans are resampled, with all their
    pairs: one plan's verdicts aren't independent. A measure is None where it has no denominator; resamples without one are left out.
    """
    by_plan: dict[str, list[int]] = {}
    for label, verdict, plan in zip(labels, verdicts, plans, strict=True):
        if verdict is not None:
            by_plan.setdefault(plan, [0] * 4)[2 * (not label) + (not verdict)] += 1
    counts = np.array(list(by_plan.values()), int).reshape(-1, 4)
    number = len(counts)
    random = np.random.default_rng(SEED)
    drawn = random.multinomial(number, np.full(number, 1 / number), RESAMPLES) if number > 1 else np.zeros((0, number), int)
    total = counts.sum(axis=0, keepdims=True)
    return {
        "pairs": int(total.sum()),
        "plans": number,
        "met": int(total[0, 0] + total[0, 1]),
        "said": int(total[0, 0] + total[0, 2]),
        "unscored": len(labels) - int(total.sum()),
        **{name: _figure(measure(total)[0], measure(drawn @ counts)) for name, measure in MEASURES.items()},
    }


def _figure(value: float, resampled: np.ndarray) -> dict[str, float | None]:
    known = resampled[np.isfinite(resampled)]
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if len(known) else (np.nan, np.nan)
    return {key: _rounded(number) for key, number in (("value", value), ("low", low), ("high", high))}


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=whole != 0)


def _rounded(value: float) -> float | None:
    return round(float(value), 3) + 0.0 if np.isfinite(value) else None  # + 0.0: no −0.0
