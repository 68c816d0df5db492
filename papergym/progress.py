"""Progress bars for long work: a live bar on a terminal, a plain line now and then in a log file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LOG_INTERVAL = 15.0  # seconds between lines where there is no terminal


class Bar:
    """One running count. advance() counts, skip() counts what an earlier call did, note() shows a short text beside it."""

    def __init__(self, description: str, total: int, progress: Progress | None):
        self._description, self._total, self._progress = description, total, progress
        self._done, self._skipped, self._note, self._started, self._printed = 0, 0, "", time.monotonic(), 0.0
        self._task = progress.add_task(description, total=total, note="") if progress else None

    def advance(self, count: int = 1, note: str | None = None) -> None:
        self._done += count
        self._note = self._note if note is None else note
        self._show()

    def skip(self) -> None:
        self._skipped += 1
        self.advance()

    def note(self, text: str) -> None:
        self._note = text
        self._show()

    def _show(self) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._done, note=self._note)
        elif self._done >= self._total or time.monotonic() - self._printed > LOG_INTERVAL:
            self._printed = time.monotonic()
            seconds = time.monotonic() - self._started
            done = self._done - self._skipped
            left = f", {seconds / done * (self._total - self._done):.0f} s left" if done and self._done < self._total else ""
            line = f"{self._description} {self._done}/{self._total} {seconds:.0f} s{left} {self._note}"
            print(line.rstrip(), file=sys.stderr, flush=True)


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Bar]:
    """Yields a Bar over `total` units on stderr."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar(description, total, None)
        return
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bar(description, total, progress)
