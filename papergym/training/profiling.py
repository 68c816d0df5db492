"""Traces by torch.profiler: of optimizer steps, with the loop's phases as ranges in them, and of memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from papergym.files import atomic_directory


@contextmanager
def profiled_steps(directory: Path, steps: int) -> Iterator[Callable[[], None]]:
    """Yields a function to call after every step. The second step and those after it, `steps` in all, are traced; 0 traces none.

    Writes directory/trace.json.gz, for https://ui.perfetto.dev or chrome://tracing, and directory/operators.txt, the dearest operators.
    """
    if not steps:
        yield lambda: None
        return
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    with profile(activities=_activities(), schedule=plan, on_trace_ready=lambda p: _write(p, directory, "time_total")) as profiler:
        yield profiler.step


def profile_call(run: Callable[[], object], directory: Path) -> None:
    """Calls run twice and traces the second call: the files of profiled_steps."""
    run()
    with profile(activities=_activities()) as profiler:
        run()
    _write(profiler, directory, "time_total")


def snapshot_memory(run: Callable[[], object], directory: Path) -> None:
    """Calls run twice and records what the second call allocates.

    Writes directory/operators.txt, the operators that allocate most, and directory/trace.json.gz with every allocation; on a GPU also
    directory/snapshot.pickle, every allocation with its stack, for https://docs.pytorch.org/memory_viz.
    """
    run()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.memory._record_memory_history()
    with profile(activities=_activities(), profile_memory=True) as profiler:
        run()
    _write(profiler, directory, "memory_usage")
    if on_gpu:
        torch.cuda.memory._dump_snapshot(str(directory / "snapshot.pickle"))
        torch.cuda.memory._record_memory_history(enabled=None)


def _activities() -> list[ProfilerActivity]:
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]


def _write(profiler: profile, directory: Path, quantity: str) -> None:
    order = f"self_{'cuda' if torch.cuda.is_available() else 'cpu'}_{quantity}"
    with atomic_directory(directory) as temporary:
        profiler.export_chrome_trace(str(temporary / "trace.json.gz"))
        table = profiler.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=60)
        (temporary / "operators.txt").write_text(table, encoding="utf-8")
