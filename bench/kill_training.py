"""Kills the three trainers at random moments and compares what the same command then ends with to an undisturbed run.

    python -m papergym.bench.kill_training --kills 50 --out bench/results/kill_training.jsonl

SFT, OPSD and GRPO one after the other on a random model of two layers: six steps each, a checkpoint every second one, written in the
background, the best adapter kept. The moments are uniform over the CPU seconds of the undisturbed run. The first line of OUT says what
ran; then one line a kill. Runs are forks of this process, which shares its imports with them, so that most kills hit a step or a write.
"""

import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import torch

from papergym.bench.kills import compare_after_kills, cpu_seconds_of
from papergym.bench.tiny import write_tiny_model
from papergym.config import from_mapping
from papergym.environment import Criterion, Environment, write_environments
from papergym.judge.scoring import open_judge

TRAINERS = {
    "sft": ("papergym.training.sft", "SftConfig"),
    "opsd": ("papergym.distill.train", "OpsdConfig"),
    "grpo": ("papergym.rl.train", "GrpoConfig"),
}


def prepare(work: Path, steps: int) -> Callable[[], None]:
    """Writes model and environments into a directory; returns what trains all three into work/run."""
    open_judge("lexical")  # imported now, once
    model = write_tiny_model(work / "model")
    topics = ("rod packing", "lossy caches", "school meals")
    rubric = tuple(Criterion(f"The plan measures {topic}.", "experiment", "answer") for topic in topics)
    write_environments(work / "train.jsonl", [Environment(t, "cs", f"What limits {t}?", rubric, f"Measure {t} twice.") for t in topics])
    run = {"steps": steps, "checkpoint_every": 2, "best_by": "-loss", "checkpoint_in_background": True}
    stages = []
    for stage, (module, config) in TRAINERS.items():
        values: dict[str, object] = {
            "run": run | {"dir": str(work / "run" / stage)},
            "model": {"path": str(model), "dtype": "float32"},
            "data": {"train": str(work / "train.jsonl"), "prompts_per_step": 2},
            "lora": {"rank": 4, "alpha": 8, "dropout": 0.1},
            "optim": {"lr": 1e-3},
        }
        if stage != "sft":
            values["sampling"] = {"max_tokens": 8}
        if stage == "grpo":
            values["grpo"] = {"group_size": 2, "reference": "initial"}
        stages.append((import_module(module), from_mapping(getattr(import_module(module), config), values)))

    def train() -> None:
        for trainer, recipe in stages:
            trainer.run(recipe)

    return train


def in_a_fork(work: Callable[[], None], log: Path, kill_after: float | None = None) -> tuple[bool, float]:
    """Runs work in a fork, killed after so many CPU seconds; returns whether it was, and its CPU seconds.

    log: takes what it writes to stderr. Raises RuntimeError with its last words when it fails in another way.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    while kill_after is not None and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if cpu_seconds_of(pid) >= kill_after:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(0.002)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL) or (code and kill_after is None):
        raise RuntimeError(f"a run ended with {code}: {log.read_text()[-2000:]}")
    return code != 0, usage.ru_utime + usage.ru_stime


@click.command(help="Kill the three trainers at random moments, run them again, and compare with an undisturbed run.")
@click.option("--kills", default=50, show_default=True, type=click.IntRange(1))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="results, JSON lines")
@click.option("--seed", default=0, show_default=True, help="of the moments")
@click.option("--steps", default=6, show_default=True, type=click.IntRange(2), help="optimizer steps of each trainer")
def main(kills: int, out: Path, seed: int, steps: int) -> None:
    torch.set_num_threads(1)  # the parent never trains: a fork of a process that ran a backward pass can't run another
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        train = prepare(work, steps)
        compare_after_kills(
            *(work, kills, seed, out, "python -m papergym.bench.kill_training"),
            run=lambda: in_a_fork(train, work / "log")[1],
            run_and_kill=lambda moment: in_a_fork(train, work / "log", moment)[0],
        )


if __name__ == "__main__":
    main()
