"""`papergym bench build`: what building costs as the papers become many, and which calls the cache of replies saves.

Memory and speed: `papergym build` on 10, 100, 1,000 and 10,000 papers, each build a process of its own, whose peak the system reports. The
papers are the samples, over and over, each with one sentence and a name of its own. The same by language models, on the scripted server and
papers of the tests, which answer at once, so that what is measured is the pipeline alone.

Calls: requests that the server got from a build, from the same again, after one paper changed, and when a build was killed and given again.
"""

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import click

from papergym.bench.provenance import provenance
from papergym.data_pipeline.collection import list_papers
from papergym.errors import InputError
from papergym.files import append_jsonl
from papergym.judge.tables import markdown_table

TESTS = Path("tests")  # whose server and scripted model answer
CALL_PAPERS = 20


@dataclass(frozen=True)
class Cost:
    """Of one process: seconds by the clock and of the CPU, and the most memory that it held, MiB."""

    seconds: float
    cpu_seconds: float
    peak_mib: float


def report(sizes: Sequence[int], asked_sizes: Sequence[int], papers: Path, out: Path | None) -> None:
    """Measures, prints two tables and appends JSON lines to `out`. sizes: papers of the builds by rules; asked_sizes: by models."""
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, _scripted(Path(folder)) as model:
        work = Path(folder)
        for extractor, chosen in (("rules", sizes), ("recipe", asked_sizes)):
            for size in chosen:
                names = _copies(work / "papers", papers, size) if extractor == "rules" else model.write_papers(work / "papers", size)
                cost = _build(work, names, extractor)
                environments = (work / "out.jsonl").read_bytes().count(b"\n")
                record = {"extractor": extractor, "papers": size, "environments": environments, **vars(cost)}
                records.append(_say(record | {"papers_per_second": size / cost.seconds}, out))
                _clear(work)
                model.take_requests()
        calls = [_say(record, out) for record in _calls(work, model)]
    click.echo(
        markdown_table(
            ("extractor", "papers", "environments", "papers/s", "CPU s a paper", "peak MiB"),
            [
                (
                    record["extractor"],
                    f"{record['papers']:,}",
                    f"{record['environments']:,}",
                    f"{record['papers_per_second']:.1f}",
                    f"{record['cpu_seconds'] / record['papers']:.3f}",
                    f"{record['peak_mib']:.0f}",
                )
                for record in records
            ],
        )
    )
    click.echo(markdown_table(("build", "papers", "requests"), [(r["build"], r["papers"], r["requests"]) for r in calls]))


# The command line, and its peak in KiB at the end. What wait4 says of a child is never less than its parent had at the fork.
_RUN = """
import atexit, pathlib, re, sys
peak = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: peak.write_text(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]))
from papergym.cli import main
main()
"""


def _say(record: dict[str, Any], out: Path | None) -> dict[str, Any]:
    record = {key: round(value, 4) if isinstance(value, float) else value for key, value in record.items()}
    click.echo(record, err=True)
    if out is not None:
        append_jsonl(out, [provenance("papergym") | record])
    return record


def _copies(folder: Path, papers: Path, count: int) -> list[str]:
    """Writes so many papers and returns their names: the samples in turn, each copy with a sentence of its own before its end."""
    names = [f"p{number:05d}" for number in range(count)]
    for number, (name, paper) in enumerate(zip(names, islice(cycle(list_papers(papers, selected=False)), count))):
        for source in (path for path in paper.rglob("*") if path.is_file()):
            copy = folder / name / source.relative_to(paper)
            copy.parent.mkdir(parents=True, exist_ok=True)
            own = f"\nThis text is copy {number} of the sample.\n\\end{{document}}"
            copy.write_bytes(source.read_bytes().replace(b"\n\\end{document}", own.encode()))
    return names


def _command(work: Path, names: Sequence[str], extractor: str) -> list[str]:
    chosen = "rules" if extractor == "rules" else str(work / "recipe.toml")
    return [sys.executable, "-c", _RUN, str(work / "peak"), "build", *names, "--out", str(work / "out.jsonl"), "--extractor", chosen]


def _build(work: Path, names: Sequence[str], extractor: str) -> Cost:
    """Runs a build to its end. Raises RuntimeError with its last words when it fails."""
    with open(work / "log", "wb") as log:
        started = time.perf_counter()
        process = subprocess.Popen(_command(work, names, extractor), cwd=work / "papers", stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    if status:
        raise RuntimeError(f"the build ended with {os.waitstatus_to_exitcode(status)}: {(work / 'log').read_text()[-2000:]}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, int((work / "peak").read_text()) / 1024)


def _clear(work: Path) -> None:
    """Leaves nothing of a build, its replies included."""
    for path in work.glob("*out*"):
        path.unlink()


class _Model:
    """The tests' scripted model behind a real HTTP server."""

    def __init__(self, work: Path):
        server, script = (TESTS / "scripted_server.py", TESTS / "data_pipeline/conftest.py")
        for path in (server, script):
            if not path.exists():
                raise InputError(f"{path}: no such file; run from the repository's root, whose tests have the scripted server")
        self._script = runpy.run_path(str(script))
        self.server = runpy.run_path(str(server))["ScriptedServer"]()
        self.server.answer = self._script["reply"]
        (work / "recipe.toml").write_text(f'[extractor.model]\nkind = "http"\nurl = "{self.server.url}"\nmodel = "scripted"\n')

    def write_papers(self, folder: Path, count: int) -> list[str]:
        names = ["k" + "".join("abcdefghij"[int(digit)] for digit in f"{number:05d}") for number in range(count)]
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "main.tex").write_text(self._script["paper_text"](name))
        return names

    def take_requests(self) -> int:
        """How many came since the last time."""
        count = len(self.server.requests)
        self.server.requests.clear()
        self.server.headers.clear()
        return count


@contextmanager
def _scripted(work: Path) -> Iterator[_Model]:
    model = _Model(work)
    try:
        yield model
    finally:
        model.server.stop()


def _calls(work: Path, model: _Model) -> Iterator[dict[str, Any]]:
    """The requests of each build."""
    names = model.write_papers(work / "papers", CALL_PAPERS)
    model.take_requests()

    def built(what: str) -> dict[str, Any]:
        _build(work, names, "recipe")
        return {"build": what, "papers": CALL_PAPERS, "requests": model.take_requests()}

    yield (first := built("first"))
    yield built("the same again")
    changed = work / "papers" / names[0] / "main.tex"
    changed.write_text(changed.read_text().replace("shake the maple hopper", "shake and tilt the maple hopper"))
    yield built("one paper changed")
    _clear(work)
    _kill_after(work, names, model, first["requests"] // 2)
    yield {"build": "killed half-way", "papers": CALL_PAPERS, "requests": model.take_requests()}
    yield built("the same again")


def _kill_after(work: Path, names: Sequence[str], model: _Model, requests: int) -> None:
    answer = model.server.answer
    process = subprocess.Popen(
        _command(work, names, "recipe"), cwd=work / "papers", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )

    def until(body: Any) -> Any:
        if len(model.server.requests) >= requests:
            process.send_signal(signal.SIGKILL)
        return answer(body)

    model.server.answer = until
    process.wait()
    model.server.answer = answer
