"""What the page needs counted before it is drawn: verdict shares of each environment and row, and the start and end of each curve."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from papergym.report.records import Answer
from papergym.report.stages import Metrics, Stage

CURVE_POINTS = 1000  # a stage with more steps is drawn as means over runs of steps


def environment_results(rows: Mapping[str, Sequence[Answer]]) -> dict[str, dict[str, dict[str, Any]]]:
    """environment id -> row -> {"reward", "tokens": mean or None, "scored", "samples": counts, "specialised", "general":
    [[answers that meet the criterion, answers scored on it], …]}."""
    groups: dict[str, dict[str, list[Answer]]] = defaultdict(lambda: defaultdict(list))
    for row, answers in rows.items():
        for answer in answers:
            groups[answer.environment][row].append(answer)
    return {
        environment: {
            row: {
                "reward": _rounded(_mean(answer.reward for answer in answers)),
                "tokens": _rounded(_mean(answer.tokens for answer in answers)),
                "scored": sum(answer.reward is not None for answer in answers),
                "samples": len(answers),
                "specialised": _met(answer.specialised for answer in answers),
                "general": _met(answer.general for answer in answers),
            }
            for row, answers in by_row.items()
        }
        for environment, by_row in groups.items()
    }


def reward_length_correlation(answers: Sequence[Answer]) -> float | None:
    """Pearson correlation of reward and tokens inside environments (both centred there), or None where nothing varies."""
    groups = defaultdict(list)
    for answer in answers:
        if answer.reward is not None:
            groups[answer.environment].append((answer.reward, answer.tokens))
    if not groups:
        return None
    centred = np.concatenate([np.array(pairs, dtype=np.float64) - np.mean(pairs, axis=0) for pairs in groups.values()])
    spread = np.sqrt((centred**2).sum(axis=0))
    if (spread < 1e-9).any():
        return None
    return float(centred[:, 0] @ centred[:, 1] / spread.prod())


def stage_curves(stage: Stage) -> dict[str, Any]:
    """{"name", "after": the stage it went on from or "", "steps": number of steps recorded, "group": steps a point, "step", "minutes":
    positions, "series": name -> values, "seeds": name -> [values of each seed], "ends": see _ends}.

    minutes is training time since the stage began: the sum of "time/step" (s), else the differences of "time" (unix seconds).
    """
    group = -(-len(stage.metrics) // CURVE_POINTS) or 1
    parts = [stage.metrics[start : start + group] for start in range(0, len(stage.metrics), group)]
    minutes = training_minutes(stage.metrics)
    names = sorted({name for record in stage.metrics for name in record} - {"step", "time"})
    series = {name: [_rounded(_mean(record.get(name) for record in part)) for part in parts] for name in names}
    known = {name: values for name, values in series.items() if any(value is not None for value in values)}
    return {
        "name": stage.name,
        "after": stage.after,
        "steps": len(stage.metrics),
        "group": group,
        "step": [part[-1]["step"] for part in parts],
        "minutes": [_rounded(minutes[min(start + group, len(minutes)) - 1]) for start in range(0, len(minutes), group)],
        "series": known,
        "seeds": {name: [_seed_values(metrics, parts, name) for metrics in stage.seeds.values()] for name in known} if stage.seeds else {},
        "ends": {name: ends for name in names if (ends := _ends([record.get(name) for record in stage.metrics]))},
    }


def _seed_values(metrics: Metrics, parts: Sequence[Metrics], name: str) -> list[float | None]:
    """One seed's values at the points of the curve."""
    by_step = {record["step"]: record.get(name) for record in metrics}
    return [_rounded(_mean(by_step.get(record["step"]) for record in part)) for part in parts]


def training_minutes(metrics: Sequence[Mapping[str, float | None]]) -> list[float]:
    """Minutes of training up to the end of each step; steps without a time count as 0."""
    seconds = [record.get("time/step") for record in metrics]
    if all(value is None for value in seconds):
        times = [record.get("time") for record in metrics]
        seconds[1:] = [b - a if a is not None and b is not None else None for a, b in pairwise(times)]
    return [total / 60 for total in accumulate(value or 0.0 for value in seconds)]


def _ends(values: Sequence[float | None]) -> list[float] | None:
    """[mean over the first steps, mean over the last steps, how many steps each]: a fifth of them, at most 10."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    count = max(1, min(10, len(known) // 5))
    return [_rounded(float(np.mean(known[:count]))), _rounded(float(np.mean(known[-count:]))), count]  # type: ignore[list-item]


def _met(verdicts: Iterable[Sequence[bool | None]]) -> list[list[int]]:
    counts: list[list[int]] = []
    for row in verdicts:
        counts.extend([0, 0] for _ in range(len(row) - len(counts)))
        for count, verdict in zip(counts, row):
            count[0] += verdict is True
            count[1] += verdict is not None
    return counts


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _rounded(value: float | None) -> float | None:
    """Six significant digits: more than a drawing can show."""
    return None if value is None else float(f"{value:.6g}")
