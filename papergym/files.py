"""Files that are either the old ones or the new ones, never half of each; and JSON lines that name the line that is wrong."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import orjson

from papergym.errors import InputError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Yields a binary file beside `path` that takes its place, flushed to disk, when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


@contextmanager
def exclusive(path: str | Path, message: str) -> Iterator[None]:
    """Holds a lock file while the block runs; the lock goes with the process, however it ends. Raises InputError(message) if taken."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(message) from error
        yield


def sync_directory(path: str | Path) -> None:
    """Makes a rename inside the directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str | Path, value: Any) -> None:
    """Writes one JSON document, indented, atomically."""
    with atomic_write(path) as file:
        file.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY))


def read_json(path: str | Path) -> Any:
    """Reads one JSON document. Raises InputError naming the file."""
    try:
        return orjson.loads(Path(path).read_bytes())
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not valid JSON ({error})") from error


def write_jsonl(path: str | Path, records: Iterable[Any]) -> None:
    """Writes one JSON record a line, atomically."""
    with atomic_write(path) as file:
        for record in records:
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY))


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, record) for every non-blank line. Raises InputError naming file and line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                cut = "" if line.endswith(b"\n") else "; the line has no end, so the file was probably cut off"
                raise InputError(f"{path}, line {number}: not valid JSON ({error}){cut}") from error
            if not isinstance(record, dict):
                raise InputError(f"{path}, line {number}: a JSON object is needed, not {type(record).__name__}")
            yield number, record
