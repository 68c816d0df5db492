"""Answers that are written already, scored by one judge or several, once or over several runs; a stopped scoring goes on."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
_OPTIONAL: dict[str, tuple[Any, str]] = {
    "response": (str, "a string"),
    "tokens": (int | float, "a number"),
    "finish_reason": (str, "a string"),
    "entropy": (int | float, "a number"),
}  # what else an answer may tell


@dataclass(frozen=True)
class Answer:
    """One answer to an environment's question. row: the model that gave it, by the name of the file. plan: None for no answer."""

    row: str
    environment: str
    sample: int
    plan: str | None


def read_rows(paths: Sequence[Path], environments: Mapping[str, Environment]) -> dict[str, list[Answer]]:
    """Reads files of answers, as an evaluation writes them: {file name without its ending: answers}.

    A line needs "environment" and "plan" or "response"; "sample" is a number of its own for each answer to an environment and counts from
    0 where it is missing. Raises InputError naming file, line and field, and files of the same name.
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
    known: dict[str, dict[int, int]] = {}  # environment -> sample -> line
    for number, record in read_jsonl(path):
        where = f"{path}, line {number}"
        name: Any = record.get("environment")
        if not isinstance(name, str) or name not in environments:
            raise InputError(f"{where}, environment: {name!r} is not one of the environments that were given")
        lines = known.setdefault(name, {})
        missing = {key: None for key in _OPTIONAL if key not in record}
        record |= missing | {"sample": record.get("sample", len(lines))}
        text = record.get("plan", record["response"])
        if not isinstance(text, str):
            raise InputError(f"{where}, plan: a string is needed, not {text!r}")
        sample = record["sample"]
        if type(sample) is not int or not 0 <= sample < 2**63:
            raise InputError(f"{where}, sample: a whole number from 0 is needed, not {sample!r}")
        if sample in lines:
            raise InputError(f"{where}, sample: {sample} of {name!r} is in line {lines[sample]} already; give each answer another number")
        lines[sample] = number
        for key, (kind, what) in _OPTIONAL.items():
            value = record[key]
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InputError(f"{where}, {key}: {what} is needed, not {value!r}; leave it out where it is not known")
        yield record | {"plan": text if "plan" in record else plan_of(text)}


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
    a language model gets another seed. Raises InputError when OUT was made from other judges, answers or environments, naming which, and
    naming the line that is about another answer than the one whose turn it is, or holds no verdicts.
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
        jobs = [(name, run, answer) for name in judges for run in range(runs) for answer in answers]
        records = reopen_jsonl(path, lambda record: True)
        check_lines(path, records, [_key(*job) for job in jobs], _wrong_verdicts)
        with progress_bar("judge", len(jobs)) as bar:
            bar.advance(len(records))
            while rest := jobs[len(records) :][:BATCH]:
                name, run, _ = rest[0]
                batch = [answer for judge, number, answer in rest if (judge, number) == (name, run)]
                scores = score_all(for_run(judges[name], run), [(environments[answer.environment], answer.plan) for answer in batch])
                made = [_record(name, run, answer, score) for answer, score in zip(batch, scores, strict=True)]
                if problem := next(filter(None, map(_wrong_verdicts, made)), None):
                    raise InputError(f"judge {name!r}: {problem}")
                append_jsonl(path, made)
                records += made
                bar.advance(len(made))
    return records


def _key(judge: str, run: int, answer: Answer) -> dict[str, Any]:
    return {"judge": judge, "run": run, "row": answer.row, "environment": answer.environment, "sample": answer.sample}


def _record(judge: str, run: int, answer: Answer, score: Scored) -> dict[str, Any]:
    record = _key(judge, run, answer) | {"specialised": list(score.specialised), "general": list(score.general), "reward": score.reward}
    if isinstance(score, Graded):
        record |= {"specialised_chances": list(score.specialised_chances), "general_chances": list(score.general_chances)}
    if isinstance(score, EnsembleScored):
        record["disagreement"] = score.disagreement
        record["members"] = [{"specialised": list(member.specialised), "general": list(member.general)} for member in score.members]
    return record


def check_lines(
    path: Path, records: Sequence[Mapping[str, Any]], keys: Sequence[Mapping[str, Any]], wrong: Callable[[Mapping[str, Any]], str | None]
) -> None:
    """Checks that the lines of a file that was begun are about what they should be, one after another, and hold what they should.

    keys: fields and values of every line that the whole file has. wrong: says what is wrong with a record, None for nothing.
    Raises InputError naming file, line and field.
    """
    remedy = "; the file was changed by hand: remove it from that line on, and the same command makes the rest again"
    for number, record in enumerate(records, 1):
        where = f"{path}, line {number}"
        if number > len(keys):
            raise InputError(f"{where}: {len(keys)} lines are all there should be{remedy}")
        for name, value in keys[number - 1].items():
            if name not in record or record[name] != value:
                raise InputError(f"{where}, {name}: {record.get(name)!r} where {value!r} belongs{remedy}")
        if problem := wrong(record):
            raise InputError(f"{where}, {problem}{remedy}")


def _wrong_verdicts(record: Mapping[str, Any]) -> str | None:
    """What keeps a record from being what _record makes."""
    members = record.get("members", [])
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        return f"members: a list of objects is needed, not {members!r}"
    for holder, where in [(record, ""), *((member, "members, ") for member in members)]:
        for kind in ("specialised", "general"):
            verdicts = holder.get(kind)
            if not isinstance(verdicts, list) or not all(verdict in (None, True, False) for verdict in verdicts):
                return f"{where}{kind}: a list of true, false and null is needed, not {verdicts!r}"
            chances = holder.get(f"{kind}_chances", [None] * len(verdicts))
            if not isinstance(chances, list) or len(chances) != len(verdicts) or not all(map(_is_chance, chances)):
                return f"{where}{kind}_chances: a number from 0 to 1 or null for each verdict is needed, not {chances!r}"
    for name in ("reward", "disagreement"):
        value = record.get(name)
        if (name == "reward" and name not in record) or not (value is None or _is_number(value)):
            return f"{name}: a number or null is needed, not {value!r}"
    return None


def _is_chance(value: Any) -> bool:
    return value is None or (_is_number(value) and 0 <= value <= 1)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
