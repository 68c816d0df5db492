"""A trace of a few optimizer steps by torch.profiler, with the loop's phases as ranges in it."""

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
    on_gpu = torch.cuda.is_available()

    def write(profiler: profile) -> None:
        order = f"self_{'cuda' if on_gpu else 'cpu'}_time_total"
        with atomic_directory(directory) as temporary:
            profiler.export_chrome_trace(str(temporary / "trace.json.gz"))
            table = profiler.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=60)
            (temporary / "operators.txt").write_text(table, encoding="utf-8")

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=steps, repeat=1), on_trace_ready=write) as profiler:
        yield profiler.step
