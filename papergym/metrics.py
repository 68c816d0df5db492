"""Training metrics as JSON lines and TensorBoard events, cut back to the checkpoint on resume so that no step is written twice."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from papergym.errors import InputError
from papergym.files import read_jsonl, write_jsonl


class JsonLines:
    """Appends records that carry a "step"; opening it drops whatever an interrupted run wrote after step `last_step`."""

    def __init__(self, path: str | Path, last_step: int = 0):
        self.path = Path(path)
        if self.path.exists():
            write_jsonl(self.path, _records_until(self.path, last_step))
        self._file = open(self.path, "ab")  # noqa: SIM115, kept open for the run

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Appends the records and hands them to the operating system in one write."""
        self._file.write(b"".join(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class MetricsWriter:
    """Writes one record an optimizer step to metrics.jsonl and to TensorBoard.

    directory: the stage's folder. last_step: the step of the checkpoint that training continues from, 0 for a fresh run.
    """

    def __init__(self, directory: str | Path, last_step: int = 0):
        from torch.utils.tensorboard import SummaryWriter

        self._lines = JsonLines(Path(directory) / "metrics.jsonl", last_step)
        self._events = SummaryWriter(str(Path(directory) / "tensorboard"), purge_step=last_step + 1 if last_step else None)

    def write(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """step: optimizer steps done, from 1. time: seconds since the epoch. values: name to number."""
        self._lines.write([{"step": step, "time": time, **values}])
        for name, value in values.items():
            self._events.add_scalar(name, value, step, walltime=time)

    def close(self) -> None:
        self._lines.close()
        self._events.close()


def _records_until(path: Path, last_step: int) -> list[dict[str, Any]]:
    """Records up to a step. A kill can only cut the last line, and what it cuts lies after the checkpoint."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    os.truncate(path, len(whole))
    records = [record for _, record in read_jsonl(path)]
    if any(not isinstance(record.get("step"), int) for record in records):
        raise InputError(f"{path}: a line without a step; move the file away to go on")
    return [record for record in records if record["step"] <= last_step]
