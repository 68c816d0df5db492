"""Answers that are written already, scored by one judge or several, once or over several runs; a stopped scoring goes on."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import append_jsonl, exclusive, read_json, read_jsonl, reopen_jsonl, write_json
from papergym.judge.answer import plan_of
from papergym.judge.ensemble import EnsembleScored
from papergym.judge.llm import Graded
from papergym.judge.scoring import Judge, Scored, for_run, judge_record, score_all
from papergym.progress import progress_bar

BATCH = 32  # plans that are scored, and kept, together


@dataclass(frozen=True)
class Answer:
    """One answer to an environment's question. row: the model that gave it, by the name of the file. plan: None for no answer."""

    row: str
    environment: str
    sample: int
    plan: str | None


def read_rows(paths: Sequence[Path], environments: Mapping[str, Environment]) -> dict[str, list[Answer]]:
    """Reads files of answers, as an evaluation writes them: {file name without its ending: answers}.

    A line needs "environment" and "plan" or "response"; "sample" counts from 0 where it is missing. Raises InputError naming file, line
    and field, and files of the same name.
    """
    rows: dict[str, list[Answer]] = {}
    for path in paths:
        if path.stem in rows:
            raise InputError(f"{path}: another file of answers is named {path.stem} too; rename one, the name is the row's")
        rows[path.stem] = list(_read_row(path, environments))
        if not rows[path.stem]:
            raise InputError(f"{path}: no answers in the file")
    return rows


def _read_row(path: Path, environments: Mapping[str, Environment]) -> Iterator[Answer]:
    for record in read_records(path, environments):
        yield Answer(path.stem, record["environment"], record["sample"], record["plan"])


def read_records(path: Path, environments: Collection[str]) -> Iterator[dict[str, Any]]:
    """Answers with every field that an evaluation's have: plan (None for no answer), and None where tokens and so on are missing.

    environments: ids that are known. A line needs what read_rows says. Raises InputError naming file, line and field.
    """
    count: dict[str, int] = {}
    for number, record in read_jsonl(path):
        name: Any = record.get("environment")
        if name not in environments:
            raise InputError(f"{path}, line {number}, environment: {name!r} is not one of the environments that were given")
        text = record.get("plan", record.get("response"))
        if not isinstance(text, str):
            raise InputError(f"{path}, line {number}, plan: a string is needed, not {text!r}")
        count[name] = count.get(name, -1) + 1
        missing = {key: None for key in ("response", "tokens", "finish_reason", "entropy") if key not in record}
        yield record | missing | {"sample": record.get("sample", count[name]), "plan": text if "plan" in record else plan_of(text)}


def score_answers(
    judges: Mapping[str, Judge],
    specs: Mapping[str, Any],
    answers: Sequence[Answer],
    environments: Mapping[str, Environment],
    out: Path,
    *,
    runs: int = 1,
) -> list[dict[str, Any]]:
    """Scores every answer `runs` times with every judge and returns the records, in that order, as OUT/verdicts.jsonl holds them.

    A record: {"judge", "run", "row", "environment", "sample", "specialised", "general", "reward"}, with the chances of both from a judge
    that gives them, and the members' verdicts of an ensemble. A second call goes on behind the last answer that was written. In each run
    a language model gets another seed. Raises InputError when OUT was made from other judges, answers or environments, naming which.
    """
    chosen = {answer.environment for answer in answers}
    made_of = {
        "judges": {name: judge_record(spec, judges[name]) for name, spec in specs.items()},
        "runs": runs,
        "answers": digest([asdict(answer) for answer in answers]),
        "environments": digest([environments[name].to_record() for name in sorted(chosen)]),
    }
    with exclusive(out / ".lock", f"{out}: another process is scoring into it; wait for it"):
        check_same(out / "judge.json", made_of)
        path = out / "verdicts.jsonl"
        records = reopen_jsonl(path, lambda record: True)
        jobs = [(name, run, answer) for name in judges for run in range(runs) for answer in answers]
        with progress_bar("judge", len(jobs)) as bar:
            bar.advance(len(records))
            while rest := jobs[len(records) :][:BATCH]:
                name, run, _ = rest[0]
                batch = [answer for judge, number, answer in rest if (judge, number) == (name, run)]
                scores = score_all(for_run(judges[name], run), [(environments[answer.environment], answer.plan) for answer in batch])
                made = [_record(name, run, answer, score) for answer, score in zip(batch, scores, strict=True)]
                append_jsonl(path, made)
                records += made
                bar.advance(len(made))
    return records


def _record(judge: str, run: int, answer: Answer, score: Scored) -> dict[str, Any]:
    record = {"judge": judge, "run": run, "row": answer.row, "environment": answer.environment, "sample": answer.sample}
    record |= {"specialised": list(score.specialised), "general": list(score.general), "reward": score.reward}
    if isinstance(score, Graded):
        record |= {"specialised_chances": list(score.specialised_chances), "general_chances": list(score.general_chances)}
    if isinstance(score, EnsembleScored):
        record["disagreement"] = score.disagreement
        record["members"] = [{"specialised": list(member.specialised), "general": list(member.general)} for member in score.members]
    return record


def check_same(path: Path, made_of: Mapping[str, Any]) -> None:
    """Writes what the verdicts are made of, or checks that they were made of the same."""
    made_of = orjson.loads(orjson.dumps(made_of))
    if not path.exists():
        write_json(path, made_of)
    before = read_json(path)
    if differing := [name for name in made_of if not isinstance(before, dict) or before.get(name) != made_of[name]]:
        raise InputError(f"{path}: it was made with other {differing[0]}; choose another --out or remove {path.parent}")


def digest(records: Sequence[Mapping[str, Any]]) -> str:
    return hashlib.sha256(orjson.dumps(records)).hexdigest()
