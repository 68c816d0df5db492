"""Whether two run directories hold the same files: equal bytes but for the values that are times.

Left out of the comparison: "time" (unix seconds), "seconds", "minutes" and "created" in JSON, JSON lines and the report's data; metrics
and TensorBoard scalars whose name begins with "time/", and the clock of TensorBoard's events; a profiler's traces.
"""

from pathlib import Path
from typing import Any

import orjson

TIMES = ("time", "seconds", "minutes", "created")
PROFILES = "profile"


def differing_files(a: Path, b: Path) -> tuple[int, list[str]]:
    """The number of files in either directory, and the relative paths of those that only one has or that differ."""
    files = {path.relative_to(root) for root in (a, b) for path in root.rglob("*") if path.is_file()}
    files = {path for path in files if PROFILES not in path.parts}
    return len(files), [str(path) for path in sorted(files) if not _same(a / path, b / path)]


def _same(a: Path, b: Path) -> bool:
    return a.is_file() and b.is_file() and (a.read_bytes() == b.read_bytes() or comparable(a) == comparable(b))


def comparable(path: Path) -> Any:
    """The content of a file without times."""
    data = path.read_bytes()
    if path.suffix == ".json":
        return _timeless(orjson.loads(data))
    if path.suffix == ".jsonl":
        return [_timeless(orjson.loads(line)) for line in data.splitlines()]
    if path.suffix == ".html":
        before, _, rest = data.partition(b'<script type="application/json" id="data">')
        payload, _, after = rest.partition(b"</script>")
        return before, _timeless(orjson.loads(payload)), after
    if "tfevents" in path.name:
        return _scalars(path)
    return data


def _timeless(value: Any) -> Any:
    """JSON as a string of its bytes, so that 1 and 1.0, or keys in another order, differ."""
    return orjson.dumps(_without_times(value))


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in TIMES and not key.startswith("time/")}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _scalars(path: Path) -> list[tuple[int, str, float]]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    events = LegacyEventFileLoader(str(path)).Load()
    return [
        (event.step, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
        if not value.tag.startswith("time/")
    ]
