"""How far judges can be trusted: each with itself over repeated runs, with each other, and how strict they are (paper, figure 2).

The unit is one criterion of one plan. All intervals are 95 % bootstrap intervals that resample whole environments, because the verdicts
on one question are not independent evidence. Verdicts that were not scored are left out of every figure and counted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.statistics import LEVEL, SEED

RESAMPLES = 2000
BINS = 10  # of chances, for calibration
Array = np.ndarray


@dataclass(frozen=True)
class VerdictTable:
    """Verdicts on the same units by several judges: U units, each a criterion of a plan.

    verdicts, chances: judge -> [runs, U] float64, NaN for not scored; verdicts are 0 or 1, chances from 0 to 1. environment [U]: number of
    the environment. criterion: (environment, "specialised" or "general", index) of each unit. groups: name -> [U] bool.
    """

    verdicts: Mapping[str, Array]
    chances: Mapping[str, Array]
    environment: Array
    criterion: Sequence[tuple[str, str, int]]
    groups: Mapping[str, Array]


def verdict_table(records: Sequence[Mapping[str, Any]], environments: Mapping[str, Environment]) -> VerdictTable:
    """Lines the records of papergym.judge.rescoring up by unit.

    Groups: "all", the dimensions of the rubric's criteria ("none" without one), "general", and the domains as "domain: cs".
    Raises InputError when judges or runs differ in the plans or in the number of criteria, have more of these than a rubric, or none.
    """
    cells: dict[tuple[str, int], dict[tuple, tuple[float, float]]] = {}
    for record in records:
        cell = cells.setdefault((record["judge"], record["run"]), {})
        given, asked = len(record["specialised"]), len(environments[record["environment"]].rubric)
        if given > asked:
            where = f"judge {record['judge']!r}: {given} specialised verdicts on environment {record['environment']!r}"
            raise InputError(f"{where}, whose rubric has {asked} criteria; one for each is needed")
        for kind in ("specialised", "general"):
            chances = record.get(f"{kind}_chances", record[kind])
            for index, (verdict, chance) in enumerate(zip(record[kind], chances, strict=True)):
                cell[record["row"], record["environment"], record["sample"], kind, index] = (_number(verdict), _number(chance))
    units = sorted(next(iter(cells.values()), ()))
    if not units:
        raise InputError("no verdicts to compare: the judges gave rewards alone; leave out --agreement")
    for (judge, run), cell in cells.items():
        if cell.keys() != set(units):
            raise InputError(f"judge {judge!r}, run {run}: it judged other plans or criteria than the first judge; score all with the same")
    values = {key: np.array([cell[unit] for unit in units]).T for key, cell in cells.items()}  # [2, U]
    judges = list(dict.fromkeys(judge for judge, _ in cells))
    stacked = {judge: np.stack([value for (name, _), value in values.items() if name == judge], axis=1) for judge in judges}  # [2, runs, U]
    names = sorted({unit[1] for unit in units})
    return VerdictTable(
        {judge: stacked[judge][0] for judge in judges},
        {judge: stacked[judge][1] for judge in judges},
        np.array([names.index(unit[1]) for unit in units]),
        [(unit[1], unit[3], unit[4]) for unit in units],
        _groups(units, environments),
    )


def _number(value: bool | float | None) -> float:
    return np.nan if value is None else float(value)


def _groups(units: Sequence[tuple], environments: Mapping[str, Environment]) -> dict[str, Array]:
    labels = []
    for _, name, _, kind, index in units:
        dimension = "general" if kind == "general" else environments[name].rubric[index].dimension or "none"
        labels.append(("all", dimension, f"domain: {environments[name].domain}"))
    names = ["all", *sorted({label for _, label, _ in labels}), *sorted({label for *_, label in labels})]
    return {name: np.array([name in label for label in labels]) for name in names}


def agreement(table: VerdictTable) -> dict[str, Any]:
    """{"judges": judge -> figures, "pairs": [figures of two judges], "criteria": judge -> [figures]}, ready for JSON.

    A judge's: "strictness", the share of units that it says are met, in each group; "run_means", that share in each run, and their range;
    "same", the share of units with the same verdict in all runs (None for one run); "unscored". A pair's, in each group: "agreement",
    the share of equal verdicts, and Cohen's "kappa". A criterion's: mean over runs and plans, and the range of its runs' means.
    """
    judges = list(table.verdicts)
    return {
        "judges": {judge: _judge_figures(table, judge) for judge in judges},
        "pairs": [
            {"judges": [one, other], **{name: _pair_figures(table, one, other, chosen) for name, chosen in table.groups.items()}}
            for index, one in enumerate(judges)
            for other in judges[index + 1 :]
        ],
        "criteria": {judge: _criterion_figures(table, judge) for judge in judges},
    }


def _judge_figures(table: VerdictTable, judge: str) -> dict[str, Any]:
    verdicts = table.verdicts[judge]  # [runs, U]
    scored = ~np.isnan(verdicts)
    strictness = {}
    for name, chosen in table.groups.items():
        met = _by_environment(table, chosen, [np.nansum(verdicts, axis=0), scored.sum(axis=0)])
        strictness[name] = _interval(met, lambda c: _ratio(c[:, 0], c[:, 1]))
    run_means = [_finite(np.nanmean(run)) if seen.any() else None for run, seen in zip(verdicts, scored, strict=True)]
    known = [mean for mean in run_means if mean is not None]
    same = None
    if len(verdicts) > 1:
        always = scored.all(axis=0)
        equal = always & (verdicts.min(axis=0) == verdicts.max(axis=0))
        same = _interval(_by_environment(table, table.groups["all"], [equal, always]), lambda c: _ratio(c[:, 0], c[:, 1]))
    return {
        "strictness": strictness,
        "run_means": run_means,
        "range": max(known) - min(known) if known else None,
        "same": same,
        "unscored": int((~scored).sum()),
    }


def _pair_figures(table: VerdictTable, one: str, other: str, chosen: Array) -> dict[str, Any]:
    """Verdicts of the same run are compared; of judges with different numbers of runs, the runs that both have."""
    runs = min(len(table.verdicts[one]), len(table.verdicts[other]))
    first, second = table.verdicts[one][:runs], table.verdicts[other][:runs]
    cells = [np.sum((first == a) & (second == b), axis=0) for a, b in ((1, 1), (1, 0), (0, 1), (0, 0))]
    counts = _by_environment(table, chosen, cells)
    return {"agreement": _interval(counts, _agreement), "kappa": _interval(counts, cohen_kappa), "verdicts": int(counts.sum())}


def _criterion_figures(table: VerdictTable, judge: str) -> list[dict[str, Any]]:
    units: dict[tuple[str, str, int], list[int]] = {}
    for unit, criterion in enumerate(table.criterion):
        units.setdefault(criterion, []).append(unit)
    figures = []
    for (environment, kind, index), chosen in units.items():
        runs = table.verdicts[judge][:, chosen]  # [runs, plans]
        means = [float(np.nanmean(run)) for run in runs if not np.isnan(run).all()]
        mean, spread = (float(np.mean(means)), max(means) - min(means)) if means else (None, None)
        figures.append({"environment": environment, "set": kind, "criterion": index, "mean": mean, "range": spread})
    return figures


def calibration(table: VerdictTable, judge: str, reference: str) -> dict[str, Any]:
    """How the first run's chances of one judge fit the verdicts of a stronger one.

    "brier": mean of (chance - verdict)². "error": expected calibration error, the mean over units of |mean chance - share met| of their
    bin. "bins": [{"low", "high", "units", "chance", "met"}], ten of equal width, the empty ones left out. None without any unit.
    """
    chances, verdicts = table.chances[judge][0], table.verdicts[reference][0]
    both = ~np.isnan(chances) & ~np.isnan(verdicts)
    if not both.any():
        return {"brier": None, "error": None, "bins": []}
    chances, verdicts = chances[both], verdicts[both]
    place = np.minimum((chances * BINS).astype(int), BINS - 1)
    bins = []
    for number in np.unique(place):
        inside = place == number
        bins.append(
            {
                "low": float(number / BINS),
                "high": float((number + 1) / BINS),
                "units": int(inside.sum()),
                "chance": float(chances[inside].mean()),
                "met": float(verdicts[inside].mean()),
            }
        )
    error = sum(entry["units"] * abs(entry["chance"] - entry["met"]) for entry in bins) / len(chances)
    return {"brier": float(np.mean((chances - verdicts) ** 2)), "error": error, "bins": bins}


def cohen_kappa(counts: Array) -> Array:
    """κ = (p_o - p_e) / (1 - p_e). counts [n, 4]: both met, only the first, only the second, neither; NaN where p_e = 1 or all are 0."""
    both, first, second, neither = counts.astype(float).T
    total = counts.sum(axis=1)
    observed = _ratio(both + neither, total)
    expected = _ratio((both + first) * (both + second) + (second + neither) * (first + neither), total * total)
    return _ratio(observed - expected, 1 - expected)


def _agreement(counts: Array) -> Array:
    return _ratio(counts[:, 0] + counts[:, 3], counts.sum(axis=1))


def _ratio(numerator: Array, denominator: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator != 0, numerator / denominator, np.nan)


def _by_environment(table: VerdictTable, chosen: Array, columns: Sequence[Array]) -> Array:
    """Sums of the columns, each [U], over the chosen units of every environment that has any: [environments, columns]."""
    environment = table.environment[chosen]
    sums = np.stack([np.bincount(environment, weights=column[chosen], minlength=table.environment.max() + 1) for column in columns], axis=1)
    return sums[np.unique(environment)]


def _interval(counts: Array, measure: Callable[[Array], Array]) -> dict[str, float | None]:
    """{"mean", "low", "high"} of a measure of summed counts [environments, k]; resamples where it is undefined are left out."""
    value = _finite(measure(counts.sum(axis=0, keepdims=True))[0])
    number = len(counts)
    if value is None or number < 2:
        return {"mean": value, "low": None, "high": None}
    resampled = measure(_draws(number) @ counts)
    low, high = np.quantile(resampled[np.isfinite(resampled)], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"mean": value, "low": float(low), "high": float(high)}


@lru_cache(maxsize=4)
def _draws(number: int) -> Array:
    """How often each of `number` environments is drawn in each resample: [RESAMPLES, number]."""
    return np.random.default_rng(SEED).multinomial(number, np.full(number, 1 / number), size=RESAMPLES).astype(float)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
