"""What people said of criteria on a sheet, and how far judges agree with them.

A label belongs to texts, not to places in a file: its key is a digest of the question, the plan if there is one, and the criterion. So a
sheet can be filled over weeks and read against any file that holds the same texts.
"""

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import read_json, read_jsonl
from papergym.judge.agreement import agreement, verdict_table

Key = tuple  # (file, environment) or (row, environment, sample)
Verdicts = Mapping[Key, Sequence[bool | None]]
_VALUES = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}


@dataclass(frozen=True)
class Answer:
    """A plan for an environment and the judge's verdicts on its rubric, as a line of RUN/eval/ROW.jsonl holds them."""

    environment: Environment
    sample: int
    plan: str
    verdicts: tuple[bool | None, ...]


def label_key(question: str, criterion: str, plan: str | None = None) -> str:
    """The name of the label on a criterion of a question, or of a plan for it."""
    kind = "leakage" if plan is None else "verdict"
    return f"{kind}-{hashlib.sha256(chr(0).join((question, plan or '', criterion)).encode()).hexdigest()[:20]}"


def read_answers(path: Path, datasets: Mapping[str, Sequence[Environment]]) -> list[Answer]:
    """The answers of an evaluation whose environments are among those given; those without a plan are left out.

    Raises InputError naming file, line and field, and when none is left.
    """
    known = {environment.id: environment for environments in datasets.values() for environment in environments}
    found = []
    for number, record in read_jsonl(path):
        environment, plan, verdicts = known.get(record.get("environment", "")), record.get("plan"), record.get("specialised")
        if environment is None:
            raise InputError(f"{path}, line {number}, environment: {record.get('environment')!r} is not in the files that are audited")
        if (
            not isinstance(verdicts, list)
            or len(verdicts) != len(environment.rubric)
            or not all(v in (True, False, None) for v in verdicts)
        ):
            raise InputError(f"{path}, line {number}, specialised: a verdict for each of {len(environment.rubric)} criteria is needed")
        if plan:
            found.append(Answer(environment, int(record.get("sample", number)), plan, tuple(verdicts)))
    if not found:
        raise InputError(f"{path}: no answers with a plan in the file")
    return found


def read_labels(
    paths: Sequence[Path], datasets: Mapping[str, Sequence[Environment]], rows: Mapping[str, Sequence[Answer]]
) -> dict[str, tuple[dict[Key, list[bool | None]], dict[Key, list[bool | None]]]]:
    """person -> (labels on leakage, labels on verdicts), None for a criterion that was skipped. A file is a person, by its name.

    Raises InputError naming the file and the key of a label that is neither yes nor no, or of nothing in the given files.
    """
    people = {}
    for path in paths:
        given = _read_json(path) if path.suffix == ".json" else _read_csv(path)
        used: set[str] = set()

        def labels(environment: Environment, plan: str | None, given: dict = given, used: set = used) -> list[bool | None]:
            keys = [label_key(environment.question, criterion.text, plan) for criterion in environment.rubric]
            used.update(keys)
            return [given.get(key) for key in keys]

        leakage: dict[Key, list[bool | None]] = {(n, e.id): labels(e, None) for n, found in datasets.items() for e in found}
        verdicts: dict[Key, list[bool | None]] = {
            (row, answer.environment.id, answer.sample): labels(answer.environment, answer.plan)
            for row, answers in rows.items()
            for answer in answers
        }
        if unknown := sorted(set(given) - used):
            raise InputError(
                f"{path}, {unknown[0]}: a label of nothing in the files that are audited; give the files that the sheet was made of"
            )
        people[f"person {path.stem}"] = tuple(
            {k: v for k, v in part.items() if any(x is not None for x in v)} for part in (leakage, verdicts)
        )
    return people  # type: ignore[return-value]


def compare(
    judges: Mapping[str, Verdicts], people: Mapping[str, Verdicts], environments: Mapping[Key, Environment]
) -> dict[str, Any] | None:
    """papergym.judge.agreement.agreement, its figures by criterion left out, of judges and people; None for fewer than two of them.

    Compared is what all judges have verdicts on and, where there are people, one of them has a label on; what others skipped is not scored.
    """
    judges, people = ({name: verdicts for name, verdicts in given.items() if verdicts} for given in (judges, people))
    known = [set(verdicts) for verdicts in judges.values()] + ([set().union(*people.values())] if people else [])
    units = sorted(set.intersection(*known)) if known else []
    if len(judges) + len(people) < 2 or not units:
        return None
    names = {unit: f"{unit[0]}: {unit[1]}" for unit in units}
    records = [
        {
            "judge": judge,
            "run": 0,
            "row": str(unit[0]),
            "environment": names[unit],
            "sample": unit[2] if len(unit) > 2 else 0,
            "specialised": list(verdicts.get(unit, [None] * len(environments[unit].rubric))),
            "general": [],
        }
        for judge, verdicts in {**judges, **people}.items()
        for unit in units
    ]
    figures = agreement(verdict_table(records, {names[unit]: environments[unit] for unit in units}))
    return {key: value for key, value in figures.items() if key != "criteria"}


def _read_json(path: Path) -> dict[str, bool]:
    record = read_json(path)
    labels = record.get("labels") if isinstance(record, dict) else None
    if not isinstance(labels, dict):
        raise InputError(f"{path}, labels: an object is needed, as the page saves it")
    for key, value in labels.items():
        if not isinstance(value, bool):
            raise InputError(f"{path}, {key}: true or false is needed, not {value!r}")
    return labels


def _read_csv(path: Path) -> dict[str, bool]:
    """Rows without a label are skipped criteria."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error}); save it as CSV in UTF-8") from error
    delimiter = ";" if text.partition("\n")[0].count(";") > text.partition("\n")[0].count(",") else ","
    labels: dict[str, bool] = {}
    for row in (reader := csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)):
        if None in (key := row.get("key"), value := row.get("label")):
            raise InputError(f"{path}, line {reader.line_num}: the columns key and label are needed")
        if not str(value).strip():
            continue
        if str(value).strip().casefold() not in _VALUES:
            raise InputError(f"{path}, line {reader.line_num}, label: 1 or 0 is needed, not {value!r}")
        labels[str(key)] = _VALUES[str(value).strip().casefold()]
    return labels
