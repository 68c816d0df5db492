"""The papers that a build has finished, on disk as soon as each is: what a killed build has made is neither lost nor made again."""

import os
from pathlib import Path
from typing import Any

import orjson

from papergym.errors import InputError
from papergym.files import json_line


class Journal:
    """A file of records beside the environments, one a paper, known by the paper and a key of its content.

    fingerprint: of what the records were made with; a file with another one is begun anew. The caller keeps other writers out. Only the
    records' places are kept in memory.
    """

    def __init__(self, path: Path, fingerprint: str):
        self._path = path
        self._places: dict[tuple[str, str], tuple[int, int]] = {}
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        head = json_line({"made_with": fingerprint})
        if self._file.readline() != head:
            self._file.truncate(0)
            self._file.seek(0)
            self._write(head)
            return
        while line := self._file.readline():
            start = self._file.tell() - len(line)
            if not line.endswith(b"\n"):  # what a kill cut
                self._file.truncate(start)
                break
            try:
                record = orjson.loads(line)
                self._places[record["paper"], record["key"]] = start, len(line)
            except (ValueError, KeyError, TypeError) as error:
                self._file.close()
                raise InputError(f"{path}: byte {start}: not a record of a build; remove the file, and the build begins anew") from error

    def get(self, paper: str, key: str) -> dict[str, Any] | None:
        """The record of a paper, None without one."""
        place = self._places.get((paper, key))
        if place is None:
            return None
        self._file.seek(place[0])
        return orjson.loads(self._file.read(place[1]))

    def add(self, paper: str, key: str, record: dict[str, Any]) -> None:
        """Keeps a record; it is on disk when this returns."""
        self._file.seek(0, os.SEEK_END)
        line = json_line({"paper": paper, "key": key, **record})
        self._places[paper, key] = self._file.tell(), len(line)
        self._write(line)

    def close(self, *, finished: bool) -> None:
        """finished: nothing is left to do with it, so that it goes, as does one without records."""
        self._file.close()
        if finished or not self._places:
            self._path.unlink()

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
