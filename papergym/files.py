"""Files and directories that are either the old ones or the new ones, never half of each; and JSON lines that name the line that is wrong.

What a killed process left beside a path is replaced by the next writer of that path.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import orjson

from papergym.errors import NO_ROOM, InputError

_BOM = b"\xef\xbb\xbf"  # some editors put it in front of UTF-8


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Gives an error of a write that finds no room the name of its file: the system does not say it, and of a copy it says both names."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and (error.filename is None or error.filename2 is not None):
            error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Yields a binary file beside `path` that takes its place, flushed to disk, when the block ends without an error.

    Raises InputError when another process is in such a block for the same path, and for what check_replaceable refuses.
    """
    path = Path(path)
    check_replaceable(path)
    temporary = path.with_name(f".{path.name}.tmp")
    busy = f"{path}: another process is writing this file; wait for it or write to another place"
    with naming(path), exclusive(temporary, busy) as file:  # closing the file writes too
        try:
            file.truncate()
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink()
            raise
    sync_directory(path.parent)


def check_replaceable(path: str | Path) -> None:
    """Raises InputError for a path at which something other than a regular file is: a folder, a device, a pipe."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(
            f"{path}: is {'a folder' if path.is_dir() else 'a device or pipe'}, which no file may replace; name a file to write"
        )


@contextmanager
def atomic_directory(path: str | Path) -> Iterator[Path]:
    """Yields an empty directory beside `path` that takes its place, flushed to disk, when the block ends without an error.

    For a moment neither the old nor the new one is at `path`. The caller keeps other writers out. Raises InputError for a path at which
    something other than a directory is, a link included.
    """
    path = Path(path)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        kind = "a link" if path.is_symlink() else "a file" if path.is_file() else "a device or pipe"
        raise InputError(f"{path}: is {kind}, which no folder may replace; name a folder to write, or remove it")
    remove_leftovers(path)
    temporary, old = _beside(path)
    temporary.mkdir(parents=True)
    with naming(path):
        try:
            yield temporary
            for file in (child for child in temporary.rglob("*") if child.is_file()):
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)  # what stays is removed by the next writer
            raise
    if path.exists():
        os.rename(path, old)
    os.rename(temporary, path)
    sync_directory(path.parent)
    remove_leftovers(path)


def remove_directory(path: str | Path) -> None:
    """Removes a directory at one stroke, and what a killed atomic_directory or remove_directory left beside it."""
    path = Path(path)
    remove_leftovers(path)
    if path.exists():
        os.rename(path, _beside(path)[1])
        remove_leftovers(path)


def remove_leftovers(path: str | Path) -> None:
    """Removes what a killed atomic_directory or remove_directory left beside `path`."""
    for leftover in _beside(Path(path)):
        if leftover.exists():
            shutil.rmtree(leftover)


def _beside(path: Path) -> tuple[Path, Path]:
    """Where a directory is while it is written, and while it is removed."""
    return path.with_name(f".{path.name}.tmp"), path.with_name(f".{path.name}.old")


@contextmanager
def exclusive(path: str | Path, message: str) -> Iterator[IO[bytes]]:
    """Holds a file, created when absent, while the block runs, and yields it; the lock goes with the process, however it ends.

    Raises InputError(message) when another process holds it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(path, "r+b", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o666)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(message) from error
            except OSError as error:  # as of some network file systems
                raise InputError(f"{path}: can't be locked ({error.strerror}); write to a file system that has locks") from error
            # Its holder may have renamed or removed the file between our opening it and locking it.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield file
                return


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
    data = Path(path).read_bytes().removeprefix(_BOM)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: not valid JSON ({error}){_cut_off(data, error)}") from error


def json_line(record: Any) -> bytes:
    """A record of a JSONL file, its line end included."""
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def write_jsonl(path: str | Path, records: Iterable[Any]) -> None:
    """Writes one JSON record a line, atomically."""
    with atomic_write(path) as file:
        file.writelines(map(json_line, records))


def append_jsonl(path: str | Path, records: Iterable[Any]) -> None:
    """Appends one JSON record a line, in one write that is flushed to disk; a kill or power cut can only shorten it."""
    with naming(path), open(path, "ab") as file:
        file.write(b"".join(map(json_line, records)))
        file.flush()
        os.fsync(file.fileno())


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number from 1, record) for every non-blank line. Raises InputError naming file and line."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(_BOM) if number == 1 else line
            if line.strip():
                yield number, _record(path, number, line)


def reopen_jsonl(path: str | Path, keep: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Cuts a file that append_jsonl wrote back to the records before the first that `keep` refuses, and returns them; none without a file.

    A last line without an end is dropped. Raises InputError naming file and line for one that is damaged otherwise.
    """
    path = Path(path)
    records: list[dict[str, Any]] = []
    if not path.exists():
        return records
    size = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or not keep(record := _record(path, number, line)):
                break
            records.append(record)
            size += len(line)
    os.truncate(path, size)
    return records


def _record(path: str | Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        cut = "" if line.endswith(b"\n") else _cut_off(line, error)
        raise InputError(f"{path}, line {number}: not valid JSON ({error}){cut}") from error
    if not isinstance(record, dict):
        raise InputError(f"{path}, line {number}: a JSON object is needed, not {type(record).__name__}")
    return record


def _cut_off(data: bytes, error: orjson.JSONDecodeError) -> str:
    """The likely reason why JSON ends too early."""
    try:
        data.decode()
    except UnicodeDecodeError as cut:
        early = cut.reason == "unexpected end of data"
    else:
        early = error.msg == "unexpected end of data"
    return "; the text has no end, so the file was probably cut off" if early else ""
