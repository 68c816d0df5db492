"""Training metrics as JSON lines and TensorBoard events, cut back to the checkpoint on resume so that no step is written twice."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papergym.errors import InputError
from papergym.files import append_jsonl, reopen_jsonl

EVENTS = "events.out.tfevents.metrics"  # TensorBoard reads any file with "tfevents" in its name


def reopen_steps(path: str | Path, last_step: int, several: bool = False) -> list[dict[str, Any]]:
    """Cuts a file of records that carry a "step" back to those up to `last_step`, and returns them.

    several: a step may have any number of records, and a file none at all. Raises InputError, before anything is cut, naming the steps that
    are missing, and a line without a step or out of order.
    """
    remedy = f"put back what was removed, or remove {Path(path).parent / 'checkpoints'} to train from the start"
    reached = 0

    def reach(step: int) -> None:
        nonlocal reached
        if (first := reached + 1) < step:
            missing = f"steps {first} to {step - 1} are" if first < step - 1 else f"step {first} is"
            raise InputError(f"{path}: {missing} missing, though the checkpoint is of step {last_step}; {remedy}")
        reached = step

    def keep(record: Mapping[str, Any]) -> bool:
        if type(step := record.get("step")) is not int:
            raise InputError(f"{path}: a line without a step behind those of step {reached}; {remedy}")
        if step < max(1, reached if several else reached + 1):
            raise InputError(f"{path}: a line of step {step} behind those of step {reached}; {remedy}")
        reach(min(step, last_step + 1))
        return step <= last_step

    records = reopen_jsonl(path, keep)
    if records or not several:
        reach(max(reached, last_step + 1))
    return records


class MetricsWriter:
    """Writes one record an optimizer step to metrics.jsonl and to a TensorBoard event file, which follows from metrics.jsonl alone.

    directory: the stage's folder. last_step: the step of the checkpoint that training continues from, 0 for a fresh run. Raises InputError
    as reopen_steps does, and naming a value that is no number.
    """

    def __init__(self, directory: str | Path, last_step: int = 0):
        self._lines = Path(directory) / "metrics.jsonl"
        before = reopen_steps(self._lines, last_step)
        for record in before:
            if wrong := [name for name in {"time": None, **record} if not _is_value(record.get(name), name)]:
                what = f"{self._lines}: {wrong[0]} of step {record['step']} is {record.get(wrong[0])!r}"
                raise InputError(f"{what}, where a number belongs; put the line back as it was")
        self._events = EventFile(Path(directory) / "tensorboard" / EVENTS)
        for record in before:
            self._events.write(record)

    def write(self, step: int, time: float, values: Mapping[str, float]) -> None:
        """step: optimizer steps done, from 1. time: seconds since the epoch. values: name to number."""
        record = {"step": step, "time": time, **values}
        append_jsonl(self._lines, [record])
        self._events.write(record)

    def close(self) -> None:
        self._events.close()


def _is_value(value: Any, name: str) -> bool:
    """Whether a metric is a number, or null where it was not finite."""
    return (value is None and name != "time") or (isinstance(value, int | float) and not isinstance(value, bool))


class EventFile:
    """A TensorBoard event file of scalars, under a fixed name, not one with clock, host and process, so that a resumed run has just one."""

    def __init__(self, path: Path):
        from tensorboard.summary.writer.record_writer import RecordWriter

        path.parent.mkdir(parents=True, exist_ok=True)
        self._records = RecordWriter(open(path, "wb"))  # noqa: SIM115, kept open for the run
        self._empty = True

    def write(self, record: Mapping[str, float | None]) -> None:
        """One record of metrics.jsonl; values that are not finite are left out, as JSON leaves them out."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        time, step = record["time"], record["step"]
        if self._empty:
            self._records.write(Event(wall_time=time, file_version="brain.Event:2").SerializeToString())
            self._empty = False
        scalars = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in record.items()
            if name not in ("step", "time") and value is not None and math.isfinite(value)
        ]
        self._records.write(Event(wall_time=time, step=step, summary=Summary(value=scalars)).SerializeToString())
        self._records.flush()

    def close(self) -> None:
        self._records.close()
