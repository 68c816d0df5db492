"""`papergym bench latex`: papers a second, and what is read wrongly, beside loading by pylatexenc, pandoc and arxiv-to-prompt.

Speed is of the same papers for all, in rounds in which the loaders take turns, so that a machine that gets slower or faster favours none.
Right and wrong is judged on small papers with one trap each (latex_checks.py) and, with --fixtures, on real papers whose title, sections,
abstract and some phrases were written down by hand, in the tests.
"""

import runpy
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import click

from papergym.bench.latex_checks import CHECKS, Loaded, faults_of_paper
from papergym.bench.latex_loaders import LOADERS, SECONDS
from papergym.bench.provenance import provenance
from papergym.errors import InputError
from papergym.files import append_jsonl
from papergym.judge.tables import markdown_table

TRUTH = Path("tests/data_pipeline/test_latex_fixtures.py")
Loader = Callable[[Path], Loaded]


def report(papers: Sequence[Path], fixtures: Path | None, rounds: int, out: Path | None) -> None:
    """Measures, prints tables and appends JSON lines to `out`. papers: folders; fixtures: one with the folder papers/ of the tests."""
    if files := [paper for paper in papers if not paper.is_dir()]:
        raise InputError(f"{files[0]}: the other loaders take a folder of LaTeX; unpack it, or leave it out")
    truths = _truths(fixtures) if fixtures is not None else {}
    papers = [*papers, *truths]
    records = [{"measured": "speed", **record} for record in speeds(LOADERS, papers, rounds)]
    records += [{"measured": "traps", **record} for record in traps(LOADERS)]
    records += [{"measured": "papers", **record} for record in real_papers(LOADERS, truths)] if truths else []
    speed = {record["loader"]: record for record in records if record["measured"] == "speed"}
    click.echo(
        markdown_table(
            ("loader", "papers/s", "rounds", "beside papergym", "failed"),
            [
                (
                    name,
                    f"{record['papers_per_second']:.1f}",
                    f"{record['slowest_round']:.1f} to {record['fastest_round']:.1f}",
                    f"{record['papers_per_second'] / speed['papergym']['papers_per_second']:.3f}",
                    record["failed"],
                )
                for name, record in speed.items()
            ],
        )
    )
    wrongs = [record for record in records if record["measured"] != "speed"]
    click.echo(
        markdown_table(("judged by", "loader", "right"), [(r["measured"], r["loader"], f"{r['right']} of {r['of']}") for r in wrongs])
    )
    for record in wrongs:
        for name, faults in record["wrong"].items():
            click.echo(f"{record['loader']}, {name}: {'; '.join(faults)}")
    if out is not None:
        header = provenance("papergym", "pylatexenc", "arxiv-to-prompt", "pypandoc_binary")
        append_jsonl(out, [header | record for record in records])


def speeds(loaders: Mapping[str, Loader], papers: Sequence[Path], rounds: int) -> Iterator[dict[str, Any]]:
    """Papers a second of each loader: the median, slowest and fastest round. A paper that it can't load counts with the time it took."""
    taken: dict[str, list[float]] = {name: [] for name in loaders}
    failed: dict[str, set[str]] = {name: set() for name in loaders}
    for _ in range(rounds):
        seconds = dict.fromkeys(loaders, 0.0)
        for paper in papers:
            for name, load in loaders.items():
                started = time.perf_counter()
                if isinstance(_tried(load, paper), str):
                    failed[name].add(paper.name)
                seconds[name] += time.perf_counter() - started
        for name in loaders:
            taken[name].append(len(papers) / seconds[name])
    for name, rates in taken.items():
        rate = {"papers_per_second": median(rates), "slowest_round": min(rates), "fastest_round": max(rates)}
        yield {"loader": name, "papers": len(papers), "rounds": rounds, **rate, "failed": len(failed[name])}


def traps(loaders: Mapping[str, Loader]) -> Iterator[dict[str, Any]]:
    """How many of the small papers each loader reads rightly, and what is wrong with the others."""
    with tempfile.TemporaryDirectory() as folder:
        for number, check in enumerate(CHECKS.values()):
            check.write(_made(Path(folder) / str(number)))
        for name, load in loaders.items():
            wrong = {}
            for number, (trap, check) in enumerate(CHECKS.items()):
                loaded = _tried(load, Path(folder) / str(number))
                if faults := [loaded] if isinstance(loaded, str) else list(check.faults(loaded)):
                    wrong[trap] = faults
            yield {"loader": name, "right": len(CHECKS) - len(wrong), "of": len(CHECKS), "wrong": wrong}


def real_papers(loaders: Mapping[str, Loader], truths: Mapping[Path, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """How many of the facts about real papers each loader reads rightly, and what is wrong with the others."""
    for name, load in loaders.items():
        wrong, right, of = {}, 0, 0
        for paper, truth in truths.items():
            loaded = _tried(load, paper)
            count, faults = faults_of_paper(Loaded("", (), "") if isinstance(loaded, str) else loaded, *truth)
            right, of = right + count - len(faults), of + count
            if faults:
                wrong[paper.name] = [loaded] if isinstance(loaded, str) else faults
        yield {"loader": name, "right": right, "of": of, "wrong": wrong}


def _truths(fixtures: Path) -> dict[Path, tuple[Any, ...]]:
    if not TRUTH.exists():
        raise InputError(f"{TRUTH}: no such file; run from the repository's root, whose tests say what the papers hold")
    tests = runpy.run_path(str(TRUTH))
    return {
        fixtures / "papers" / name: (expected, tests["PHRASES"].get(name, ()), tests["ABSENT"].get(name, ()))
        for name, expected in tests["EXPECTED"].items()
    }


def _tried(load: Loader, paper: Path) -> Loaded | str:
    """What a loader made of a paper, or how it failed: that is what is measured."""
    try:
        with _at_most(SECONDS):
            return load(paper)
    except Exception as error:
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
