"""The table that compares the rows of a run, from eval/*.jsonl: means over environments with bootstrap 95 % intervals.

An environment's value is the mean of its scored answers and every environment counts the same, so the environment is the unit
that is resampled: several answers to one question are not independent evidence. The difference to base is paired: it is formed
inside each environment first, which removes the spread between easy and hard questions.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papergym.errors import InputError
from papergym.files import write_json
from papergym.report.read import read_answers
from papergym.report.records import Answer
from papergym.statistics import estimate

BASE = "base"


def comparison_table(run_dir: str | Path) -> list[dict[str, Any]]:
    """One mapping for each eval/<row>.jsonl, base first.

    row, environments (number with an answer), samples (number of answers), reward and tokens {"mean", "low", "high"},
    difference {"mean", "low", "high", "environments"} of the reward to base, paired (None for base or without one), entropy {"mean", "low",
    "high"} (nats a token, estimated from the sampled tokens; its numbers are None for answers written without it),
    truncated (share of answers that reached the token limit), unscored (number of answers without a reward; they are in no mean).
    seeds, where answers of several training runs are joined: name -> {"reward", "difference"}, that seed's means.
    Means without data and intervals of fewer than two environments are None. Raises InputError naming the directory or the line.
    """
    rows = read_answers(run_dir)
    if not rows:
        raise InputError(f"{run_dir}: no answers in eval/*.jsonl to compare; evaluate a model into this directory first")
    return compare(rows)


def compare(rows: Mapping[str, Sequence[Answer]]) -> list[dict[str, Any]]:
    """The table of comparison_table from answers already read."""
    rewards = {row: environment_means(answers, lambda answer: answer.reward) for row, answers in rows.items()}
    table = []
    for row, answers in rows.items():
        tokens = environment_means(answers, lambda answer: answer.tokens)
        seeds = sorted({answer.seed for answer in answers})
        table.append(
            {
                "row": row,
                "environments": len(tokens),
                "samples": len(answers),
                "reward": estimate(list(rewards[row].values())),
                "difference": _difference(rewards[row], rewards[BASE]) if row != BASE and BASE in rewards else None,
                "tokens": estimate(list(tokens.values())),
                "entropy": estimate(list(environment_means(answers, lambda answer: answer.entropy).values())),
                "truncated": sum(answer.finish_reason == "length" for answer in answers) / len(answers),
                "unscored": sum(answer.reward is None for answer in answers),
                **({"seeds": {seed: _seed_means(answers, rows.get(BASE, ()), seed) for seed in seeds}} if len(seeds) > 1 else {}),
            }
        )
    return table


def _seed_means(answers: Sequence[Answer], base: Sequence[Answer], seed: str) -> dict[str, float | None]:
    """{"reward", "difference"}: means over environments of one seed's answers, and of the paired differences to base's of that seed."""
    own, other = (
        environment_means([answer for answer in group if answer.seed == seed], lambda answer: answer.reward) for group in (answers, base)
    )
    return {"reward": estimate(list(own.values()))["mean"], "difference": _difference(own, other)["mean"]}


def write_table(run_dir: str | Path) -> list[dict[str, Any]]:
    """Computes the table, writes it to table.json in the run directory and returns it."""
    table = comparison_table(run_dir)
    write_json(Path(run_dir) / "table.json", table)
    return table


def print_table(table: Sequence[Mapping[str, Any]], console: Any = None) -> None:
    """Prints the table to a rich console (a fresh one on stdout by default), narrow enough for 80 columns."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    out = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, caption=_caption(table), caption_justify="left")
    out.add_column("row", no_wrap=True)
    unscored = any(row["unscored"] for row in table)
    for heading in ("reward", "difference to base", "entropy", "tokens", "cut", *(["unscored"] if unscored else [])):
        out.add_column(heading, justify="right", no_wrap=True)
    for row in table:
        out.add_row(
            row["row"],
            format_estimate(row["reward"]),
            format_estimate(row["difference"], "{:+.3f}"),
            _mean(row.get("entropy"), "{:.2f}"),
            _mean(row["tokens"], "{:.0f}"),
            f"{row['truncated']:.0%}",
            *([str(row["unscored"])] if unscored else []),
            style="bold" if row["difference"] and row["difference"]["low"] is not None and row["difference"]["low"] > 0 else None,
        )
    (console or Console()).print(out)


def _caption(table: Sequence[Mapping[str, Any]]) -> str:
    counts = {f"{row['environments']} environments, {row['samples']} answers" for row in table}
    return (
        f"Held out: {' or '.join(sorted(counts))} a row. Brackets: 95 % intervals, bootstrap over environments; differences are paired "
        "within environments. Entropy: nats a token. Cut: share of answers that reached the token limit."
    )


def _mean(value: Mapping[str, Any] | None, number: str) -> str:
    return "–" if value is None or value["mean"] is None else number.format(value["mean"])


def format_estimate(value: Mapping[str, Any] | None, number: str = "{:.3f}") -> str:
    """ "0.412 [0.371, 0.455]", "0.412" without an interval, "–" without a value."""
    if value is None or value["mean"] is None:
        return "–"
    mean = number.format(value["mean"])
    return mean if value["low"] is None else f"{mean} [{number.format(value['low'])}, {number.format(value['high'])}]"


def environment_means(answers: Sequence[Answer], value: Callable[[Answer], float | None]) -> dict[str, float]:
    """Environment id -> mean of the value over its answers that have one; environments without any are left out."""
    values = defaultdict(list)
    for answer in answers:
        if (number := value(answer)) is not None:
            values[answer.environment].append(number)
    return {environment: float(np.mean(numbers)) for environment, numbers in values.items()}


def _difference(row: Mapping[str, float], base: Mapping[str, float]) -> dict[str, float | int | None]:
    shared = [environment for environment in row if environment in base]
    return {**estimate([row[environment] - base[environment] for environment in shared]), "environments": len(shared)}
