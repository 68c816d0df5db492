"""The records of a data file, one after another: parquet, a JSON array or JSON lines, told apart by their first bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from papergym.errors import InputError
from papergym.files import read_json

_ROWS = 256  # of a parquet file that are held at a time


def read_records(path: str | Path) -> Iterator[tuple[int, Any]]:
    """Yields (number from 1, record), with an InputError in place of a record that is no JSON. Blank lines have no number.

    Raises InputError naming the file that can't be read at all, OSError.
    """
    with open(path, "rb") as file:
        head = file.read(4096)
    if head.startswith(b"PAR1"):
        yield from enumerate(_parquet(path), 1)
    elif head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        yield from enumerate(read_json(path), 1)
    elif not head.strip():
        raise InputError(f"{path}: the file is empty")
    else:
        yield from enumerate(_lines(path), 1)


def _parquet(path: str | Path) -> Iterator[Any]:
    pyarrow, parquet = load_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: can't be read as parquet ({str(error).splitlines()[0]}); was the file cut off?") from error


def _lines(path: str | Path) -> Iterator[Any]:
    with open(path, "rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                yield orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
            except orjson.JSONDecodeError as error:
                yield InputError(f"not valid JSON ({error})")


def load_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises InputError saying how to install them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("parquet needs the package pyarrow: pip install pyarrow") from error
    return pyarrow, pyarrow.parquet
