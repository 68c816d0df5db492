"""Rubric data sets of others, and exported environments, as environments: `papergym import`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from papergym.data_pipeline.imports.fields import Fields
from papergym.data_pipeline.imports.files import read_records
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import atomic_write, json_line, write_jsonl
from papergym.registry import check_takes, resolve

# name: a function from (one record, an id for it if it has none) to its Environment, which raises InputError naming field and value.
Format = Callable[[Fields, str], Environment]
FORMATS: Mapping[str, str | Format] = {
    "research-plan-gen": "papergym.data_pipeline.imports.formats:research_plan_gen",
    "researchqa": "papergym.data_pipeline.imports.formats:researchqa",
    "rubrichub": "papergym.data_pipeline.imports.formats:rubrichub",
    "rar-science": "papergym.data_pipeline.imports.formats:rar_science",
    "healthbench": "papergym.data_pipeline.imports.formats:healthbench",
    "papergym": "papergym.data_pipeline.imports.formats:papergym",
}


@dataclass(frozen=True)
class ImportSummary:
    """What an import did: environments written, records rejected, and the two files."""

    environments: int
    rejected: int
    out: Path
    rejects: Path


def import_files(format_name: str, files: Sequence[str | Path], out: str | Path, *, domain: str | None = None) -> ImportSummary:
    """Writes the records as environments, in order, and {"file", "record", "reason"} of the others to OUT.rejects.jsonl, both atomically.

    format_name: a key of FORMATS, or module:function. files: parquet, a JSON array or JSON lines, told apart by their content; of the
    format papergym also the folder of an export. domain: of all environments, in place of the data set's own. Rejected is a record that
    lacks a field or has a wrong value in one, repeats an id, or has no criterion with positive points, so that nothing could be scored.
    Raises InputError when no record is left (the rejects are written, OUT is not), OSError.
    """
    convert: Format = resolve("format", format_name, FORMATS)
    check_takes("format", format_name, convert, "record", "fallback_id")
    out = Path(out)
    rejects = out.with_name(f"{out.stem}.rejects.jsonl")
    used: dict[str, str] = {}
    rejected: list[dict[str, Any]] = []
    with atomic_write(out) as file:
        for path in _data_files(files):
            for number, record in read_records(path):
                try:
                    environment = _environment(convert, record, f"{path.stem}-{number}", domain)
                    if environment.id in used:
                        raise InputError(f"id: {environment.id!r} was already used by {used[environment.id]}")
                    line = json_line(environment.to_record())
                    Environment.from_record(orjson.loads(line))
                except InputError as error:
                    rejected.append({"file": str(path), "record": number, "reason": f"{path}, record {number}, {error}"})
                    continue
                used[environment.id] = f"record {number} of {path}"
                file.write(line)
        write_jsonl(rejects, rejected)
        if not used:
            reason = f"; the first reason: {rejected[0]['reason']}; all are in {rejects}" if rejected else ", since there are none"
            raise InputError(f"{files[0]}: no record can be read as {format_name}{reason}")
    return ImportSummary(len(used), len(rejected), out, rejects)


def _environment(convert: Format, record: Any, fallback_id: str, domain: str | None) -> Environment:
    if isinstance(record, InputError):
        raise record
    if not isinstance(record, Mapping):
        raise InputError(f"an object is needed, not {type(record).__name__}")
    environment = convert(Fields(record), fallback_id)
    if not isinstance(environment, Environment):
        raise InputError(f"the format returned {type(environment).__name__}, where an Environment is needed")
    if not any(criterion.weight > 0 for criterion in environment.rubric):
        raise InputError("rubric: no criterion has positive points, so no plan could be scored")
    return replace(environment, domain=domain) if domain else environment


def _data_files(files: Sequence[str | Path]) -> Iterator[Path]:
    for path in map(Path, files):
        if not path.is_dir():
            yield path
        elif found := sorted(path.glob("data/*.parquet")):
            yield from found
        else:
            raise InputError(f"{path}: holds no data/*.parquet; name the files to import")
