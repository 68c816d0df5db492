"""What `papergym judge` does: written answers scored by judges, with agreement between them or probes of what they pay for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import atomic_write, write_json
from papergym.judge.agreement import agreement, calibration, verdict_table
from papergym.judge.probes import length_correlation, materials, probe
from papergym.judge.probes import markdown as probe_table
from papergym.judge.rescoring import Answer, read_rows, score_answers
from papergym.judge.scoring import Judge, open_judge
from papergym.judge.tables import markdown_table, shown
from papergym.statistics import estimate


def run_judges(
    answers: Sequence[Path],
    environments: Path,
    specs: Sequence[str],
    out: Path,
    *,
    runs: int = 1,
    agree: bool = False,
    probing: bool = False,
) -> str:
    """Scores the answers with every judge into OUT and returns what to print: mean rewards, and what was asked for beside them.

    agree: agreement.json, agreement.md and agreement.svg; the last judge counts as the strongest, against whose verdicts the chances of
    the others are calibrated. probing: probes.json and probes.md; honest plans are the first answers of the first file, or without
    answers halves of the references. Raises InputError as its parts do, and when there is nothing to do.
    """
    if not answers and (agree or not probing):
        raise InputError("no files of answers: name some, such as RUN/eval/*.jsonl")
    judges = open_judges(specs)
    known = {environment.id: environment for environment in read_environments(environments)}
    chosen = [answer for row in read_rows(answers, known).values() for answer in row]
    parts = []
    records: list[dict[str, Any]] = []
    if answers:
        records = score_answers(judges, dict(zip(judges, specs, strict=True)), chosen, known, out, runs=runs)
        parts.append(_rewards(records))
    if agree:
        parts.append(_agreement(records, known, list(judges), out))
    if probing:
        parts.append(_probes(judges, chosen, records, known, out))
    return "\n".join([*parts, _usage(judges)]).rstrip()


def _agreement(records: Sequence[Mapping[str, Any]], environments: Mapping[str, Environment], judges: list[str], out: Path) -> str:
    from papergym.judge.agreement_figure import draw, markdown  # matplotlib takes a second to import

    table = verdict_table(records, environments)
    *others, strongest = judges
    figures = agreement(table) | {"calibration": {judge: calibration(table, judge, strongest) for judge in others}}
    write_json(out / "agreement.json", figures)
    _write_text(out / "agreement.md", markdown(figures))
    draw(figures, out / "agreement.svg")
    return f"{markdown(figures)}\n{out / 'agreement.svg'}\n"


def _probes(
    judges: Mapping[str, Judge],
    answers: Sequence[Answer],
    records: Sequence[Mapping[str, Any]],
    environments: Mapping[str, Environment],
    out: Path,
) -> str:
    honest: dict[str, str] = {}
    for answer in answers:
        if answer.plan:
            honest.setdefault(answer.environment, answer.plan)
    chosen = materials(list(environments.values()), honest if answers else None)
    out.mkdir(parents=True, exist_ok=True)
    figures, texts = {}, []
    for name, judge in judges.items():
        figures[name] = probe(judge, chosen)
        texts.append(f"{name}, {len(chosen)} environments\n\n{probe_table(figures[name])}")
        scored = [record for record in records if (record["judge"], record["run"]) == (name, 0)]
        if scored:
            lengths = [(answer.environment, answer.plan or "", record["reward"]) for answer, record in zip(answers, scored, strict=True)]
            figures[name]["answers"] = correlation = length_correlation(lengths)
            texts[-1] += (
                f"correlation of reward and words over the answers to one question: {shown(correlation, '{:+.2f}')}, "
                f"{correlation['environments']} questions\n"
            )
    write_json(out / "probes.json", figures)
    _write_text(out / "probes.md", "\n".join(texts))
    return "\n".join(texts)


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


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())
