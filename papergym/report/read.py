"""Reads a run directory for the report: whatever of it is there, checked, with the oddities it tolerates kept as notes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import read_json, read_jsonl

TABLE_FIELDS = ("row", "environments", "samples", "reward", "difference", "tokens", "truncated", "unscored")
SPLITS = ("train", "heldout")
ROW_ORDER = ("base", "sft", "opsd", "grpo", "opsd_grpo")
TEXT_LIMIT = 20_000  # characters of one text that the page keeps; thinking can run to hundreds of thousands

Verdicts = tuple[bool | None, ...]


@dataclass(frozen=True)
class Answer:
    """One sampled response, of an evaluation (row) or of training (stage, step). reward and verdicts: None means not scored.

    thinking + plan + stop is the response; raw is the whole response where the plan can't be found in it, else "".
    Every text is cut to TEXT_LIMIT characters, with the cut stated in the text.
    """

    source: str  # row or stage
    environment: str
    sample: int
    thinking: str
    plan: str
    stop: str
    raw: str
    tokens: int
    finish_reason: str
    specialised: Verdicts
    general: Verdicts
    reward: float | None
    step: int | None = None
    advantage: float | None = None
    entropy: float | None = None  # nats a token, of an evaluation's answer


@dataclass(frozen=True)
class Stage:
    """A training stage. metrics: one mapping a step, ascending, numbers only (None where the value was not finite)."""

    name: str
    metrics: Sequence[Mapping[str, float | None]]
    rollouts: Sequence[Answer]


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
    notes: Sequence[str] = ()


def read_run(run_dir: str | Path) -> Run:
    """Reads what is there. Raises InputError naming the directory when nothing is, or file, line and field of what is wrong."""
    directory = Path(run_dir)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; give the directory that a training or demo run wrote")
    notes: list[str] = []
    info = _object(directory / "run.json")
    environments = _environments(directory)
    rubrics = {environment.id: len(environment.rubric) for _, environment in environments}
    run = Run(
        directory,
        info=info,
        environments=environments,
        rejects=[record for path in _existing(directory, "rejects.jsonl") for _, record in read_jsonl(path)],
        stages=_stages(directory, info.get("stages") or (), rubrics, notes),
        rows=read_answers(directory, rubrics),
        summaries={path.stem: _object(path) for path in sorted((directory / "eval").glob("*.json"))},
        table=_table(directory / "table.json"),
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
            answer = _answer(record, path.stem, f"{path}, line {number}", rubrics or {})
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


def _stages(directory: Path, named: Sequence[str], rubrics: Mapping[str, int], notes: list[str]) -> list[Stage]:
    folders = {path.parent for name in ("metrics.jsonl", "rollouts.jsonl") for path in directory.glob(f"*/{name}")}
    stages = []
    for folder in folders:
        metrics = _metrics(folder / "metrics.jsonl", directory, notes)
        rollouts = _rollouts(folder / "rollouts.jsonl", directory, rubrics, notes)
        if metrics or rollouts:
            stages.append(Stage(folder.name, metrics, rollouts))

    def order(stage: Stage) -> tuple[int, float, str]:
        place = list(named).index(stage.name) if stage.name in named else len(named)
        start = stage.metrics[0].get("time") if stage.metrics else None
        return (place, start if start is not None else float("inf"), stage.name)

    return sorted(stages, key=order)


def _metrics(path: Path, directory: Path, notes: list[str]) -> list[dict[str, float | None]]:
    steps: dict[int, dict[str, float | None]] = {}
    repeated = 0
    for number, record in _appended(path, directory, notes):
        step = _integer(record, "step", f"{path}, line {number}")
        repeated += step in steps
        steps[step] = {key: value for key, value in record.items() if value is None or isinstance(value, int | float)}
    if repeated:
        notes.append(f"{path.relative_to(directory)}: {_steps(repeated)} recorded twice, as after a resume; the later record is shown.")
    return [steps[step] for step in sorted(steps)]


def _rollouts(path: Path, directory: Path, rubrics: Mapping[str, int], notes: list[str]) -> list[Answer]:
    rollouts: dict[tuple[int, str, int], Answer] = {}
    for number, record in _appended(path, directory, notes):
        answer = _answer(record, path.parent.name, where := f"{path}, line {number}", rubrics, step=_integer(record, "step", where))
        rollouts[answer.step or 0, answer.environment, answer.sample] = answer
    return sorted(rollouts.values(), key=lambda answer: answer.step or 0)


def _steps(count: int) -> str:
    return "1 step was" if count == 1 else f"{count} steps were"


def _appended(path: Path, directory: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records of a file that training appends to: a last line without an end that can't be read is what a kill leaves."""
    if not path.exists():
        return
    try:
        yield from read_jsonl(path)
    except InputError as error:
        data = path.read_bytes()
        last = data[data.rfind(b"\n") + 1 :]
        lines = data.count(b"\n") + 1
        if not last or not str(error).startswith(f"{path}, line {lines}:") or _parses(last):
            raise
        notes.append(
            f"{path.relative_to(directory)}: the last line ({lines}) is cut off, as after a kill or in a run under way; it is left out."
        )


def _parses(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _environments(directory: Path) -> list[tuple[str, Environment]]:
    """Environments with the name of their file: train and heldout, which must not overlap, then what only other files have."""
    splits = [path for name in SPLITS if (path := directory / "environments" / f"{name}.jsonl").exists()]
    others = [path for path in sorted((directory / "environments").glob("*.jsonl")) if path.stem not in (*SPLITS, "rejects")]
    found: dict[str, tuple[str, Environment]] = {}
    for path in splits + others:
        for environment in read_environments(path):
            if path in splits and environment.id in found:
                raise InputError(f"{path}, id: {environment.id!r} is in {found[environment.id][0]}.jsonl too; an environment has one split")
            found.setdefault(environment.id, (path.stem, environment))
    return list(found.values())


def _existing(directory: Path, name: str) -> list[Path]:
    return [path for path in (directory / name, directory / "environments" / name) if path.exists()]


def _object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: a JSON object is needed, not {type(value).__name__}")
    return value


def _table(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    rows = read_json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(TABLE_FIELDS) <= set(row) for row in rows):
        raise InputError(
            f"{path}: a list of rows with {', '.join(TABLE_FIELDS)} is needed; remove the file, it is made again from eval/*.jsonl"
        )
    return rows


def _answer(record: Mapping[str, Any], source: str, where: str, rubrics: Mapping[str, int], step: int | None = None) -> Answer:
    for name in ("environment", "response", "plan", "finish_reason"):
        if not isinstance(record.get(name), str) and not (name == "plan" and record.get(name, "") is None):
            raise InputError(f"{where}, {name}: a string is needed, not {record.get(name)!r}")
    environment = record["environment"]
    specialised = _verdicts(record, "specialised", where)
    expected = rubrics.get(environment)
    if specialised and expected is not None and len(specialised) != expected:
        raise InputError(
            f"{where}, specialised: {len(specialised)} verdicts for the {expected} criteria of environment {environment!r};"
            " the answers belong to other environments than those in environments/"
        )
    plan = record["plan"] or ""  # null where the response never left its thinking block
    thinking, stop, raw = _around(record["response"], plan)
    return Answer(
        source=source,
        environment=environment,
        sample=_integer(record, "sample", where),
        thinking=clip(thinking),
        plan=clip(plan),
        stop=clip(stop),
        raw=clip(raw),
        tokens=_integer(record, "tokens", where),
        finish_reason=record["finish_reason"],
        specialised=specialised,
        general=_verdicts(record, "general", where),
        reward=_number(record, "reward", where),
        step=step,
        advantage=_number(record, "advantage", where),
        entropy=_number(record, "entropy", where),
    )


def _around(response: str, plan: str) -> tuple[str, str, str]:
    """What stands before and after the plan, or the whole response as the third where the plan isn't part of it."""
    start = response.rfind(plan) if plan else len(response)
    if start < 0:
        return "", "", response
    return response[:start], response[start + len(plan) :], ""


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its two ends with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n\n[… {len(text) - 2 * half:,} characters left out of this report …]\n\n{text[-half:]}"


def _verdicts(record: Mapping[str, Any], name: str, where: str) -> Verdicts:
    values = record.get(name) or []
    if not isinstance(values, list) or not all(value is None or isinstance(value, bool) for value in values):
        raise InputError(f"{where}, {name}: a list of true, false or null is needed, not {str(values)[:60]}")
    return tuple(values)


def _number(record: Mapping[str, Any], name: str, where: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}, {name}: a number or null is needed, not {value!r}")
    return float(value)


def _integer(record: Mapping[str, Any], name: str, where: str) -> int:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}, {name}: a whole number is needed, not {value!r}")
    return value
