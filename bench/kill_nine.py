"""Kills the demo at random moments and compares what the same command then ends with to an undisturbed run.

    python -m papergym.bench.kill_nine --kills 30 --out bench/results/kill_nine.jsonl

A random model of two layers, three of the sample papers, three steps a stage, a checkpoint each step. The moments are uniform over the
CPU seconds of the undisturbed run, which other work on the machine doesn't stretch. The first line of OUT says what ran; then one line a
kill: the moment, the stage and the file that was written last, how many files the directories hold, and which of them differ
(papergym/bench/same_files.py says what is compared).
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from papergym.bench.kills import compare_after_kills, cpu_seconds_of
from papergym.bench.tiny import RECIPE, write_tiny_model
from papergym.errors import InputError, exit_on_input_error

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # for so small a model more threads only wait for each other
PAPERS = ("bid-preparation", "bursty-compaction", "late-invoices")  # the last one is marked as held out


def prepare(work: Path, papers: Path, steps: int = 3) -> list[str]:
    """Writes model, papers and recipe into a directory and returns the demo's command, whose run directory is work/run."""
    for name in PAPERS:
        if not (papers / name).is_dir():
            raise InputError(f"{papers / name}: no such paper; run from the repository's root or give --papers")
        shutil.copytree(papers / name, work / "papers" / name)
    model = write_tiny_model(work / "model", context=16384)
    (work / "recipe.toml").write_text(RECIPE.format(model=model, steps=steps))
    arguments = ("--papers", work / "papers", "--run", work / "run", "--config", work / "recipe.toml")
    return [sys.executable, "-m", "papergym.cli", "demo", *map(str, arguments)]


def run_to_the_end(command: list[str]) -> float:
    """Runs a command and returns the CPU seconds it took. Raises RuntimeError with its last words when it fails."""
    before = _cpu_seconds_of_children()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return _cpu_seconds_of_children() - before


def run_and_kill(command: list[str], cpu_seconds: float) -> bool:
    """Runs a command and kills it, with every process it started, after so many CPU seconds; False when it had ended by itself."""
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **silent, start_new_session=True, env=ENVIRONMENT)
    try:
        while process.poll() is None and cpu_seconds_of(process.pid) < cpu_seconds:
            time.sleep(0.005)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def stage_of(file: str | None) -> str:
    """The stage that a file belongs to: start, environments, eval/<row>, a training stage, or report."""
    if file is None:
        return "start"
    first, *rest = Path(file).parts
    if first == "eval":
        return f"eval/{rest[0].removeprefix('.').split('.')[0]}"
    return first if rest else {"run.json": "environments", ".lock": "environments"}.get(first, "report")


@click.command(help="Kill the demo at random moments, run it again, and compare with an undisturbed run.")
@click.option("--kills", default=30, show_default=True, type=click.IntRange(1))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="results, JSON lines")
@click.option("--seed", default=0, show_default=True, help="of the moments")
@click.option("--papers", type=click.Path(path_type=Path), default=Path("examples/papers"), show_default=True)
def main(kills: int, out: Path, seed: int, papers: Path) -> None:
    with exit_on_input_error(), tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        command = prepare(work, papers)
        compare_after_kills(
            *(work, kills, seed, out, "python -m papergym.bench.kill_nine"),
            run=lambda: run_to_the_end(command),
            run_and_kill=lambda moment: run_and_kill(command, moment),
            stage_of=stage_of,
        )


if __name__ == "__main__":
    main()
