"""What `papergym generate` and `papergym eval` do: one row on one benchmark or several, and the table of all rows there are."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.judge.benchmark_table import benchmark_table, check_same_judge
from papergym.judge.benchmark_text import write_benchmark_table
from papergym.judge.evaluation import environments_digest, score_written
from papergym.judge.scoring import judge_record, open_judge
from papergym.judge.tables import shown


def evaluate_benchmarks(
    answer: Callable[..., Mapping[str, Any]] | None,
    *,
    environments: Sequence[Path],
    out: Path,
    judge: str | None,
    answers: Sequence[Path] = (),
    bases: Sequence[str] = (),
) -> str:
    """Answers and scores one benchmark, into OUT.jsonl, or several, into OUT.parent/BENCHMARK/OUT.name.jsonl; returns what to print.

    answer(environments=path, out=place, judge=judge): does one and returns its summary; None where `answers`, a file for each benchmark,
    are scored instead. judge: None only answers. With one the table of all rows there goes to OUT.parent/coverage.{json,txt,md,tex}.
    Raises InputError when other rows there were scored by another judge, before anything is done.
    """
    if out.name == "coverage":
        raise InputError(f"--out {out}: 'coverage' is the name of the table beside the rows; give the row another")
    if (answer is None) == (not answers):
        raise InputError("give either --model, to answer the environments, or --answers, to score what is written")
    if answers and len(answers) != len(environments):
        raise InputError(f"--answers: {len(answers)} files for {len(environments)} files of environments; give one for each, in order")
    folders = {path.stem: out.parent / path.stem if len(environments) > 1 else out.parent for path in environments}
    if len(folders) < len(environments):
        raise InputError("--environments: two files have the same name, which is the benchmark's; rename one")
    for base in bases:
        if base != out.name and not any((folder / f"{base}.json").exists() for folder in folders.values()):
            raise InputError(f"--base {base}: no row of that name in {out.parent}")
    digests = {path.stem: environments_digest(read_environments(path)) for path in environments}
    if judge is not None:
        check_same_judge(folders.values(), judge_record(judge, open_judge(judge)))
    lines = []
    for number, path in enumerate(environments):
        place = folders[path.stem] / out.name
        if answer is not None:
            summary = answer(environments=path, out=place, judge=judge)
        else:
            _, summary = score_written(answers[number], read_environments(path), open_judge(str(judge)), out=place, judge_spec=str(judge))
        lines.append(("" if len(folders) == 1 else f"{path.stem}: ") + _said(summary, judge))
    if judge is not None:
        lines.append("\n" + write_benchmark_table(benchmark_table(folders, digests, bases), out.parent / "coverage"))
    return "\n".join(lines).rstrip()


def _said(summary: Mapping[str, Any], judge: str | None) -> str:
    reward = "" if judge is None else f"reward {shown(summary['reward'])} over "
    unscored = "" if judge is None else f", unscored {summary['unscored']}"
    return (
        f"{reward}{summary['environments']} environments, tokens {shown(summary['tokens'], '{:.0f}')}, "
        f"truncated {summary['truncated']:.0%}, without an answer {summary['unanswered']}, refused {summary['refused']}{unscored}"
    )
