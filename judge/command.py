"""What `papergym judge` does: written answers scored by judges, with agreement between them or probes of what they pay for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.files import atomic_write, write_json
from papergym.judge.agreement import agreement, calibration, verdict_table
from papergym.judge.rescoring import read_rows, score_answers
from papergym.judge.scoring import Judge, open_judge
from papergym.judge.tables import markdown_table, shown
from papergym.statistics import estimate


def judge_answers(answers: Sequence[Path], environments: Path, specs: Sequence[str], out: Path, *, runs: int, agree: bool) -> str:
    """Scores the answers with every judge into OUT and returns what to print: mean rewards, or the agreement of the judges.

    agree: writes agreement.json, agreement.md and agreement.svg beside verdicts.jsonl; the last judge counts as the strongest, against
    whose verdicts the chances of the others are calibrated. Raises InputError as its parts do, and without answers.
    """
    if not answers:
        raise InputError("no files of answers: name some, such as RUN/eval/*.jsonl")
    judges = open_judges(specs)
    known = {environment.id: environment for environment in read_environments(environments)}
    chosen = [answer for row in read_rows(answers, known).values() for answer in row]
    records = score_answers(judges, dict(zip(judges, specs, strict=True)), chosen, known, out, runs=runs)
    text = _rewards(records) + _usage(judges)
    if not agree:
        return text
    from papergym.judge.agreement_figure import draw, markdown

    table = verdict_table(records, known)
    *others, strongest = judges
    figures = agreement(table) | {"calibration": {judge: calibration(table, judge, strongest) for judge in others}}
    write_json(out / "agreement.json", figures)
    with atomic_write(out / "agreement.md") as file:
        file.write(markdown(figures).encode())
    draw(figures, out / "agreement.svg")
    return f"{text}\n{markdown(figures)}\n{out / 'agreement.svg'}"


def open_judges(specs: Sequence[str]) -> dict[str, Judge]:
    """Judges by their names in tables: the file's name without its ending, or the kind. Raises InputError for two of one name."""
    judges: dict[str, Judge] = {}
    for spec in specs:
        name = Path(spec).stem if spec.endswith(".toml") else spec
        if name in judges:
            raise InputError(f"judge {spec!r}: another one is named {name} too; give its file another name")
        judges[name] = open_judge(spec)
    return judges


def _rewards(records: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of mean rewards with intervals over environments, over all runs."""
    rewards: dict[tuple[str, str], dict[str, list[float | None]]] = {}
    for record in records:
        by_environment = rewards.setdefault((record["judge"], record["row"]), {})
        by_environment.setdefault(record["environment"], []).append(record["reward"])
    rows = []
    for (judge, row), by_environment in rewards.items():
        scored = [[reward for reward in found if reward is not None] for found in by_environment.values()]
        mean = estimate([sum(found) / len(found) for found in scored if found])
        without = sum(reward is None for found in by_environment.values() for reward in found)
        rows.append((judge, row, len(by_environment), shown(mean), without))
    return markdown_table(("judge", "answers of", "environments", "reward", "answers without one"), rows)


def _usage(judges: Mapping[str, Judge]) -> str:
    """A line for each judge that asks a model."""
    lines = []
    for name, judge in judges.items():
        if (usage := getattr(judge, "usage", None)) is not None:
            lines.append(
                f"{name}: {usage.requests} requests, {usage.from_cache} answered from the cache; {usage.prompt_tokens} prompt tokens, "
                f"{usage.cached_tokens} of them in the server's prefix cache; {usage.completion_tokens} tokens generated\n"
            )
    return "".join(lines)
