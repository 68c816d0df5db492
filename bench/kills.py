"""What the two benches of kills share: run undisturbed once, then kill at random moments, run again and compare every file."""

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click

from papergym.bench.provenance import provenance
from papergym.bench.same_files import differing_files
from papergym.files import append_jsonl, write_jsonl


def compare_after_kills(
    work: Path,
    kills: int,
    seed: int,
    out: Path,
    command: str,
    run: Callable[[], float],
    run_and_kill: Callable[[float], bool],
    stage_of: Callable[[str | None], str] = lambda file: str(file),
) -> None:
    """Kills at `kills` moments drawn from `seed` and writes a record of each to `out`, JSON lines; exits with 1 if any files differ.

    run: to the end in the directory work / "run", returning CPU seconds. run_and_kill: the same, killed after so many CPU seconds; False
    when it had ended by itself. stage_of: what to call the moment, from the file that was written last. command: for the provenance.
    """
    seconds = run()
    (work / "run").rename(work / "undisturbed")  # so that every run has the same path in its files
    write_jsonl(out, [provenance(command) | {"undisturbed": {"cpu_seconds": round(seconds, 2)}}])
    moments, failures = random.Random(seed), 0
    for number in range(kills):
        moment = moments.uniform(0, seconds)
        killed = run_and_kill(moment)
        file = last_written(work / "run")
        again = run()
        files, differing = differing_files(work / "undisturbed", work / "run")
        record = {"kill": number, "moment": round(moment, 3), "killed": killed, "stage": stage_of(file), "last_written": file}
        record |= {"files": files, "equal": not differing, "differing": differing, "cpu_seconds": round(again, 2)}
        append_jsonl(out, [record])
        click.echo(f"{number + 1}/{kills} at {moment:.2f} s in {record['stage']}: {', '.join(differing) or 'equal'}")
        failures += bool(differing)
        shutil.rmtree(work / "run")
    if failures:
        sys.exit(f"{failures} of {kills} runs ended with other files than the undisturbed one")


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process, as Linux tells it in its stat file, fields 14 and 15."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def last_written(run: Path) -> str | None:
    """The file of a run directory that was touched last."""
    files = [path for path in run.rglob("*") if path.is_file()] if run.exists() else []
    return str(max(files, key=lambda path: path.stat().st_mtime_ns).relative_to(run)) if files else None
