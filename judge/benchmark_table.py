"""The table of a set of benchmarks: mean rubric coverage of each row on each, the average, and differences to a base row (paper, table 1).

An environment's value is the mean coverage of its scored answers. Intervals are bootstrap intervals over environments, 95 %; differences
are paired within environments; for the average over benchmarks, each counting alike, every benchmark is resampled by itself. All in points
of a hundred.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from papergym.errors import InputError
from papergym.files import read_json, read_jsonl
from papergym.judge.answer import is_refusal
from papergym.statistics import estimate, estimate_average

Means = dict[str, float]  # environment id -> coverage


def benchmark_table(folders: Mapping[str, Path], digests: Mapping[str, str], bases: Sequence[str] = ()) -> dict[str, Any]:
    """{"benchmarks": names, "judge", "rows": [...]}, ready for JSON, of every row that an evaluation wrote into a benchmark's folder.

    folders: benchmark -> folder of ROW.json and ROW.jsonl. digests: of its environments; rows that answered others are left out. bases: by
    default "base" if there is such a row. A row's base is the one whose name its own begins with, the longest; else the only one.
    A row: "row", "base", "cells" (benchmark -> figures, None where it was not evaluated), "average" (None unless on all benchmarks).
    Figures: "coverage" and, with a base, "difference", each {"mean", "low", "high"}; a cell's "environments", and of its "answers" how many
    are "unscored" (in no mean), "empty" and "refused" (both scored as what they are). Raises InputError for a base that is no row.
    """
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    judges = []
    for benchmark, folder in folders.items():
        for path in sorted(folder.glob("*.json")):
            arguments = _arguments(path)
            if arguments.get("judge") is not None and arguments.get("environments_sha256") == digests[benchmark]:
                found.setdefault(path.stem, {})[benchmark] = [record for _, record in read_jsonl(path.with_suffix(".jsonl"))]
                judges.append(arguments["judge"])
    bases = bases or [row for row in found if row == "base"]
    if absent := [base for base in bases if base not in found]:
        raise InputError(f"--base {absent[0]}: no row of that name; there are {', '.join(sorted(found))}")
    means = {row: {benchmark: environment_means(answers) for benchmark, answers in cells.items()} for row, cells in found.items()}
    rows = [_row(row, base_of(row, bases), found[row], means, list(folders)) for row in _in_order(found, bases)]
    return {"benchmarks": list(folders), "judge": judges[0] if judges else None, "rows": rows}


def _arguments(path: Path) -> Mapping[str, Any]:
    """What an evaluation's summary was made with, {} for any other file."""
    summary = read_json(path)
    arguments = summary.get("arguments") if isinstance(summary, dict) else None
    return arguments if isinstance(arguments, dict) else {}


def check_same_judge(folders: Iterable[Path], judge: Mapping[str, Any]) -> None:
    """Raises InputError when a row in one of the folders was scored by another judge, or by this one with other options."""
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            other = _arguments(path).get("judge")
            if other is not None and other != judge:
                raise InputError(
                    f"{path}: it was scored by the judge {other}, not {judge}; rows of one place need the same one, choose another"
                )


def base_of(row: str, bases: Sequence[str]) -> str | None:
    """The base that a row is compared with, itself for a base."""
    fitting = [base for base in bases if row.startswith(base)]
    return max(fitting, key=len) if fitting else bases[0] if len(bases) == 1 else None


def _in_order(rows: Iterable[str], bases: Sequence[str]) -> list[str]:
    """Rows without a base first, then each base with its own, by name."""
    places = {base: number for number, base in enumerate(bases, 1)}
    return sorted(rows, key=lambda row: (places.get(base_of(row, bases) or "", 0), row not in bases, row))


def environment_means(answers: Sequence[Mapping[str, Any]]) -> Means:
    """Environment id -> mean coverage of its scored answers, in points of a hundred; those without any are left out."""
    values: dict[str, list[float]] = {}
    for answer in answers:
        if answer.get("coverage") is not None:
            values.setdefault(answer["environment"], []).append(100 * answer["coverage"])
    return {environment: fmean(found) for environment, found in values.items()}


def _row(
    row: str,
    base: str | None,
    answers: Mapping[str, Sequence[Mapping[str, Any]]],
    means: Mapping[str, Mapping[str, Means]],
    benchmarks: Sequence[str],
) -> dict[str, Any]:
    own, other = means[row], means[base] if base not in (None, row) else {}
    pairs = {name: [own[name][key] - other[name][key] for key in own[name] if key in other[name]] for name in own if name in other}
    cells: dict[str, Any] = dict.fromkeys(benchmarks)
    for name, found in answers.items():
        cells[name] = {
            "coverage": estimate(list(own[name].values())),
            "difference": estimate(pairs[name]) if name in pairs else None,
            "environments": len({answer["environment"] for answer in found}),
            "answers": len(found),
            "unscored": sum(answer.get("coverage") is None for answer in found),
            "empty": sum(not answer["plan"] for answer in found),
            "refused": sum(is_refusal(answer["plan"] or "") for answer in found),
        }
    average = None
    if all(name in own for name in benchmarks):
        difference = estimate_average([pairs[name] for name in benchmarks]) if set(pairs) == set(benchmarks) else None
        average = {"coverage": estimate_average([list(own[name].values()) for name in benchmarks]), "difference": difference}
    return {"row": row, "base": base, "cells": cells, "average": average}
