"""The papers of a build and what became of each."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papergym.data_pipeline.collection import plainly_no_paper
from papergym.data_pipeline.domains import read_sidecar
from papergym.data_pipeline.journal import Journal
from papergym.data_pipeline.latex.paper import files_read
from papergym.data_pipeline.latex.sources import read_sources
from papergym.environment import Environment, checked_records
from papergym.errors import InputError
from papergym.files import json_line
from papergym.progress import Bar

_SOURCE_SUFFIXES = (".tex", ".ltx", ".sty", ".cls", ".def", ".latex")


def printable(text: str) -> str:
    """Text with the bytes of a file name that are no UTF-8 replaced, as JSON can hold it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def source_digest(path: Path) -> str:
    """SHA-256 of a paper's LaTeX files, names and bytes in the order of names: the same for a folder and for an archive of it.

    Of a file that is given by name: itself and the files that it inputs, as its neighbours may be other papers.
    """
    sources = read_sources(path)
    if sources.main is None:
        files = sources.files
        names = sorted(name for name in files if name.lower().endswith(_SOURCE_SUFFIXES)) or sorted(files)
    else:
        files = files_read(sources, sources.main)
        names = sorted(files)
    digest = hashlib.sha256()
    for name in names:
        content = files[name]
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class Job:
    """A paper to make an environment of. digest: see source_digest; key: the same with what its sidecar says."""

    index: int
    path: Path
    digest: str
    key: str

    @classmethod
    def read(cls, index: int, path: Path) -> "Job":
        """Raises InputError and OSError for a paper that can't be read."""
        if plainly_no_paper(path):
            raise InputError("is no LaTeX source by its name: a paper is a folder, a .tex file or an archive")
        digest = source_digest(path)
        return cls(index, path, digest, hashlib.sha256(digest.encode() + json_line(read_sidecar(path))).hexdigest())

    @property
    def name(self) -> str:
        return printable(str(self.path))


def made_record(environment: Environment, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The outcome of a paper that gives an environment. account: what it took, for the summary."""
    (record,) = checked_records([environment])
    return {"environment": record, "account": account}


def rejected_record(reason: str, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The outcome of a paper that gives none."""
    return {"reason": printable(reason), "account": account}


class Ledger:
    """Every paper has one outcome: an environment, a reason why there is none, or neither yet."""

    def __init__(self, paths: Sequence[Path], journal: Journal, bar: Bar):
        self._paths, self._journal, self._bar = paths, journal, bar
        self._reasons: dict[int, str] = {}  # of papers that are not read on
        self._keys: dict[int, str] = {}  # of those that the journal has

    def to_do(self) -> Iterator[Job]:
        """The papers that have no outcome, in order; those that can't be read, or repeat another, get theirs on the way."""
        seen: dict[str, int] = {}
        for index, path in enumerate(self._paths):
            try:
                job = Job.read(index, path)
            except (ValueError, OSError) as error:
                self._reasons[index] = printable(str(error))
                self._bar.skip()
                continue
            first = seen.setdefault(job.digest, index)
            if first != index:
                name = printable(self._paths[first].name)
                self._reasons[index] = f"has the same content as {name}, which is given before it"
                self._bar.skip()
            elif self._journal.get(job.name, job.key) is not None:
                self._keys[index] = job.key
                self._bar.skip()
            else:
                yield job

    def made(self, job: Job, environment: Environment, account: Mapping[str, Any] | None = None) -> None:
        """Keeps an environment, on disk when this returns. account: what it took, for the summary."""
        self.keep(job, made_record(environment, account))

    def rejected(self, job: Job, reason: str, account: Mapping[str, Any] | None = None) -> None:
        """Keeps the reason why there is no environment."""
        self.keep(job, rejected_record(reason, account))

    def keep(self, job: Job, record: dict[str, Any]) -> None:
        """Keeps a paper's outcome."""
        self._journal.add(job.name, job.key, record)
        self._keys[job.index] = job.key
        self._bar.advance()

    def outcomes(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Every paper's name and outcome, in order; None for one that is left over."""
        for index, path in enumerate(self._paths):
            name = printable(str(path))
            if index in self._reasons:
                yield name, rejected_record(self._reasons[index])
            else:
                yield name, self._journal.get(name, self._keys[index]) if index in self._keys else None

    def accounts(self) -> Iterator[Mapping[str, Any]]:
        """What the papers took that language models were asked about."""
        for _, record in self.outcomes():
            if record and record["account"]:
                yield record["account"]
