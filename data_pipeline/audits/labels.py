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
from typing import Any, NamedTuple

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


class Labels(NamedTuple):
    """One person's labels, by rubric; None for a criterion that was skipped, and rubrics without any label left out."""

    leakage: dict[Key, list[bool | None]]
    verdicts: dict[Key, list[bool | None]]


def by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Files by their names without the ending, which are the rows of tables. Raises InputError for two of one name."""
    found: dict[str, Path] = {}
    for path in paths:
        if path.stem in found:
            raise InputError(f"{path}: another file is named {path.stem} too; rename one, the name is its row in tables")
        found[path.stem] = path
    return found


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
) -> dict[str, Labels]:
    """person -> labels. A file is a person, by its name.

    Raises InputError naming the file and the key of a label that is neither yes nor no, or of nothing in the given files.
    """
    asked: list[dict[Key, list[str]]] = [
        {(name, e.id): [label_key(e.question, c.text) for c in e.rubric] for name, found in datasets.items() for e in found},
        {
            (row, a.environment.id, a.sample): [label_key(a.environment.question, c.text, a.plan) for c in a.environment.rubric]
            for row, found in rows.items()
            for a in found
        },
    ]
    known = {key for part in asked for keys in part.values() for key in keys}
    people = {}
    for name, path in by_name(paths).items():
        given = _read_json(path) if path.suffix == ".json" else _read_csv(path)
        if unknown := sorted(set(given) - known):
            raise InputError(
                f"{path}, {unknown[0]}: a label of nothing in the files that are audited; give the files that the sheet was made of"
            )
        labels = [
            {place: [given.get(key) for key in keys] for place, keys in part.items() if not given.keys().isdisjoint(keys)} for part in asked
        ]
        people[f"person {name}"] = Labels(*labels)
    return people


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
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:  # a field of more than 131072 characters, or a quote that is not closed
        raise InputError(f"{path}, after line {reader.line_num}: not CSV ({error}); save the sheet again") from error
    for line, row in rows:
        if None in (key := row.get("key"), value := row.get("label")):
            raise InputError(f"{path}, line {line}: the columns key and label are needed")
        if not str(value).strip():
            continue
        if str(value).strip().casefold() not in _VALUES:
            raise InputError(f"{path}, line {line}, label: 1 or 0 is needed, not {value!r}")
        labels[str(key)] = _VALUES[str(value).strip().casefold()]
    return labels
