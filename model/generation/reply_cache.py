"""Replies of model servers on disk: a call that was answered once is never paid for again, whatever stopped the program in between."""

import hashlib
import sqlite3
from pathlib import Path
from typing import Protocol

from papergym.errors import InputError


class Replies(Protocol):
    """What keeps replies by their requests."""

    def get(self, request: bytes) -> bytes | None: ...

    def put(self, request: bytes, reply: bytes) -> None: ...


class ReplyCache:
    """A SQLite file from request to reply, both bytes. Several processes may share it; a kill loses no reply that was put.

    The key is the request itself: its text, the model's name and every parameter, but not the server's address.
    """

    def __init__(self, path: str | Path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            # A call may run in another thread, where an event loop is running already; never in two at once.
            self._file = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply BLOB NOT NULL) WITHOUT ROWID")
        except sqlite3.Error as error:
            raise InputError(f"{path}: it can't be used as a cache of replies ({error}); name another file or remove it") from error

    def get(self, request: bytes) -> bytes | None:
        """The reply that was put for this request, None without one."""
        row = self._file.execute("SELECT reply FROM replies WHERE key = ?", (_key(request),)).fetchone()
        return row[0] if row else None

    def put(self, request: bytes, reply: bytes) -> None:
        """Keeps a reply; the first one for a request stays."""
        self._file.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (_key(request), reply))

    def __len__(self) -> int:
        return self._file.execute("SELECT count(*) FROM replies").fetchone()[0]

    def close(self) -> None:
        self._file.close()


def _key(request: bytes) -> bytes:
    return hashlib.sha256(request).digest()
