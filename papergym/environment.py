"""The training environment: a question, a reference plan and a rubric, one JSON object a line."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from papergym.errors import InputError
from papergym.files import read_jsonl, write_jsonl

DIMENSIONS = ("method", "experiment")
SOURCES = ("question", "answer", "both")
STAGES = ("goal", "background", "method", "experiment")


@dataclass(frozen=True)
class Criterion:
    """One binary criterion of a rubric. weight may be negative in imported data sets (points that count against a plan)."""

    text: str
    dimension: str | None = None  # "method" | "experiment"
    source: str | None = None  # "question" | "answer" | "both"
    weight: float = 1.0


@dataclass(frozen=True)
class Environment:
    """One paper as a training environment. Student prompt: question; teacher prompt: question and rubric; reward: rubric.

    stages: goal, background, method, experiment, or None. provenance: paper, sha256, date, model, prompts, created, and
    sections (stage -> [title, characters of its text] for each run of sentences from one section).
    messages: a chat prompt that stands in for the question, as imported data sets have it.
    """

    id: str
    domain: str
    question: str
    rubric: tuple[Criterion, ...]
    reference: str | None = None
    stages: Mapping[str, str] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, str], ...] | None = None
    benchmark: str | None = None
    split: str | None = None

    def to_record(self) -> dict[str, Any]:
        """The JSON object, without the optional keys that are unset."""
        record = asdict(self)
        for key in ("messages", "benchmark", "split"):
            if record[key] is None:
                del record[key]
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Environment":
        """Checks a JSON object and returns the environment. Raises InputError naming the field and the value."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise InputError(f"unknown field {unknown[0]!r}: the fields are {', '.join(sorted(known))}")
        for name in ("id", "domain", "question"):
            _text(record, name)
        if not isinstance(record.get("rubric"), list) or not record["rubric"]:
            raise InputError("rubric: a list of at least one criterion is needed")
        rubric = tuple(_criterion(item, f"rubric[{index}]") for index, item in enumerate(record["rubric"]))
        for name in ("reference", "benchmark", "split"):
            _text(record, name, optional=True)
        return cls(
            id=record["id"],
            domain=record["domain"],
            question=record["question"],
            rubric=rubric,
            reference=record.get("reference"),
            stages=_stages(record.get("stages")),
            provenance=_mapping(record["provenance"], "provenance") if record.get("provenance") is not None else {},
            messages=_messages(record.get("messages")),
            benchmark=record.get("benchmark"),
            split=record.get("split"),
        )


def read_environments(path: str | Path) -> list[Environment]:
    """Reads and checks environments from a JSONL file. Raises InputError naming file, line and field, FileNotFoundError."""
    environments: list[Environment] = []
    seen: dict[str, int] = {}
    for number, record in read_jsonl(path):
        try:
            environment = Environment.from_record(record)
        except InputError as error:
            raise InputError(f"{path}, line {number}, {error}") from error
        if environment.id in seen:
            raise InputError(f"{path}, line {number}, id: {environment.id!r} was already used in line {seen[environment.id]}")
        seen[environment.id] = number
        environments.append(environment)
    if not environments:
        raise InputError(f"{path}: no environments in the file")
    return environments


def write_environments(path: str | Path, environments: Iterable[Environment]) -> None:
    """Checks environments and writes them as JSONL, atomically. Raises InputError naming the environment and the field."""
    write_jsonl(path, checked_records(environments))


def checked_records(environments: Iterable[Environment]) -> list[dict[str, Any]]:
    """The JSON objects of a file that read_environments accepts. Raises InputError naming the environment and the field."""
    records = []
    ids = set[str]()
    for environment in environments:
        record = environment.to_record()
        if environment.id in ids:
            raise InputError(f"environment {environment.id!r}, id: used twice")
        ids.add(environment.id)
        try:
            Environment.from_record({**record, "rubric": list(record["rubric"]), "messages": _as_list(record.get("messages"))})
        except InputError as error:
            raise InputError(f"environment {environment.id!r}, {error}") from error
        records.append(record)
    if not records:
        raise InputError("no environments to write: a file needs at least one")
    return records


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(record: Mapping[str, Any], name: str, optional: bool = False, where: str = "") -> None:
    value = record.get(name)
    if optional and value is None:
        return
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        raise InputError(f"{where}{name}: holds half a surrogate pair, which UTF-8 can't write; remove it")
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}{name}: a non-empty string is needed, not {_short(value)}")


def _criterion(item: Any, where: str) -> Criterion:
    item = _mapping(item, where)
    if unknown := sorted(set(item) - {f.name for f in fields(Criterion)}):
        raise InputError(f"{where}: unknown field {unknown[0]!r}")
    _text(item, "text", where=f"{where}.")
    for name, allowed in (("dimension", DIMENSIONS), ("source", SOURCES)):
        if item.get(name) is not None and item[name] not in allowed:
            raise InputError(f"{where}.{name}: {_short(item[name])} is not one of {', '.join(allowed)} or null")
    weight = item.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
        raise InputError(f"{where}.weight: a finite number is needed, not {_short(weight)}")
    return Criterion(item["text"], item.get("dimension"), item.get("source"), float(weight))


def _stages(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    stages = _mapping(value, "stages")
    if set(stages) != set(STAGES) or not all(isinstance(text, str) for text in stages.values()):
        raise InputError(f"stages: strings under exactly {', '.join(STAGES)} are needed")
    return dict(stages)


def _messages(value: Any) -> tuple[Mapping[str, str], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise InputError("messages: a non-empty list of {role, content} is needed, or null")
    for index, message in enumerate(value):
        _text(_mapping(message, f"messages[{index}]"), "role", where=f"messages[{index}].")
        if not isinstance(message.get("content"), str):
            raise InputError(f"messages[{index}].content: a string is needed, not {_short(message.get('content'))}")
    return tuple(value)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: an object is needed, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
