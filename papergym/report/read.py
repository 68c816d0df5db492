"""Reads a run directory for the report: whatever of it is there, checked, with the oddities it tolerates kept as notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import read_json, read_jsonl
from papergym.report.records import Answer, read_answer, read_object
from papergym.report.stages import Stage, read_seed_stages, read_stages

TABLE_FIELDS = ("row", "environments", "samples", "reward", "difference", "tokens", "truncated", "unscored")
SPLITS = ("train", "heldout")
ROW_ORDER = ("base", "sft", "opsd", "grpo", "opsd_grpo")


@dataclass(frozen=True)
class Run:
    """A run directory. info: run.json. environments: (split, environment). rows: answers of each evaluation, base first."""

    directory: Path
    info: Mapping[str, Any] = field(default_factory=dict)
    environments: Sequence[tuple[str, Environment]] = ()
    rejects: Sequence[Mapping[str, Any]] = ()
    stages: Sequence[Stage] = ()
    rows: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    summaries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    table: Sequence[Mapping[str, Any]] = ()
    judge_exam: Mapping[str, Any] = field(default_factory=dict)  # what `python -m papergym.judge.exam` says of the run's judge
    notes: Sequence[str] = ()


def read_run(run_dir: str | Path) -> Run:
    """Reads what is there. Raises InputError naming the directory when nothing is, or file, line and field of what is wrong."""
    directory = Path(run_dir)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; give the directory that a training or demo run wrote")
    notes: list[str] = []
    info = read_object(directory / "run.json")
    environments = _environments(directory)
    rubrics = {environment.id: len(environment.rubric) for _, environment in environments}
    run = Run(
        directory,
        info=info,
        environments=environments,
        rejects=[record for path in _existing(directory, "rejects.jsonl") for _, record in read_jsonl(path)],
        stages=read_stages(directory, info.get("stages") or (), rubrics, notes) or read_seed_stages(directory, rubrics, notes),
        rows=read_answers(directory, rubrics),
        summaries={path.stem: read_object(path) for path in sorted((directory / "eval").glob("*.json"))},
        table=_table(directory / "table.json"),
        judge_exam=_judge_exam(directory, info),
        notes=notes,
    )
    if not (run.info or run.environments or run.stages or run.rows or run.summaries or run.table):
        raise InputError(
            f"{directory}: nothing to report on; a run directory holds run.json, environments/, eval/ or a stage's metrics.jsonl"
        )
    return run


def read_answers(run_dir: str | Path, rubrics: Mapping[str, int] | None = None) -> dict[str, list[Answer]]:
    """Answers of eval/<row>.jsonl, base first. rubrics: environment id -> number of criteria, to check the verdicts against."""
    paths = [path for path in (Path(run_dir) / "eval").glob("*.jsonl") if not path.stem.endswith(".partial")]  # of a running evaluation
    rows = {}
    for path in sorted(paths, key=lambda path: _row_key(path.stem)):
        answers: dict[tuple[str, int], Answer] = {}
        for number, record in read_jsonl(path):
            answer = read_answer(record, path.stem, f"{path}, line {number}", rubrics or {})
            if (answer.environment, answer.sample) in answers:
                raise InputError(
                    f"{path}, line {number}, sample: {answer.sample} of environment {answer.environment!r} is there twice;"
                    " remove the file and evaluate again"
                )
            answers[answer.environment, answer.sample] = answer
        if answers:
            rows[path.stem] = list(answers.values())
    return rows


def _row_key(name: str) -> tuple[int, str]:
    return (ROW_ORDER.index(name) if name in ROW_ORDER else len(ROW_ORDER), name)


def _judge_exam(directory: Path, info: Mapping[str, Any]) -> dict[str, Any]:
    """RUN/judge_exam.json, else the exam of the built-in judge of that name."""
    if exam := read_object(directory / "judge_exam.json"):
        return exam
    known = orjson.loads((files("papergym.report") / "lexical_judge.json").read_bytes())
    return known if known["judge"] == info.get("judge") else {}


def _environments(directory: Path) -> list[tuple[str, Environment]]:
    """Environments with the name of their file: train and heldout, which must not overlap, then what only other files have."""
    splits = [path for name in SPLITS if (path := directory / "environments" / f"{name}.jsonl").exists()]
    others = [path for path in sorted((directory / "environments").glob("*.jsonl")) if path.stem not in SPLITS]
    found: dict[str, tuple[str, Environment]] = {}
    others = [path for path in others if not path.name.endswith(("rejects.jsonl", "left_out.jsonl"))]  # of `build` and `split`
    for path in splits + others:
        for environment in read_environments(path):
            if path in splits and environment.id in found:
                raise InputError(f"{path}, id: {environment.id!r} is in {found[environment.id][0]}.jsonl too; an environment has one split")
            found.setdefault(environment.id, (path.stem, environment))
    return list(found.values())


def _existing(directory: Path, name: str) -> list[Path]:
    return [path for path in (directory / name, directory / "environments" / name) if path.exists()]


def _table(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(TABLE_FIELDS) <= set(row) for row in rows):
        raise InputError(
            f"{path}: a list of rows with {', '.join(TABLE_FIELDS)} is needed; remove the file, it is made again from eval/*.jsonl"
        )
    return rows
