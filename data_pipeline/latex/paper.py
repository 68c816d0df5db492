"""From a path to a Paper."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from papergym.data_pipeline.latex.decoding import is_binary
from papergym.data_pipeline.latex.expand import expand_document
from papergym.data_pipeline.latex.macros import Macro
from papergym.data_pipeline.latex.main_file import choose_main
from papergym.data_pipeline.latex.plain import has_words
from papergym.data_pipeline.latex.scanner import Dialect
from papergym.data_pipeline.latex.sections import Section, read_document
from papergym.data_pipeline.latex.sources import Sources, read_sources
from papergym.errors import InputError


@dataclass(frozen=True)
class Paper:
    """A paper's LaTeX, read and in order.

    title: plain text. abstract: LaTeX without comments. sections: flat, in document order.
    main_file: its path inside the folder or archive. warnings: what was skipped, guessed or missing, a sentence each.
    macros: the paper's own commands, for turning its text into plain sentences.
    """

    title: str
    abstract: str
    sections: tuple[Section, ...]
    main_file: str
    warnings: tuple[str, ...]
    macros: Mapping[str, Macro] = field(default_factory=dict, repr=False, compare=False)


def load_paper(path: str | Path) -> Paper:
    """Reads a paper from a folder, a .tex file, or a .gz, .tar, .tar.gz or .zip of its source.

    Inputs are spliced in, comments and dead conditionals removed; nothing outside the folder or archive is read.
    Raises InputError (a ValueError) when there is no paper in it, with the reason, and OSError when it can't be read.
    """
    sources = read_sources(path)
    warnings = sources.warnings
    main = sources.main or choose_main(sources.files, warnings)
    if main is None:
        raise InputError(f"{path}: no LaTeX text in it{_because(warnings)}; give a folder, .tex file or archive of a paper's source")
    data = sources.files[main]
    if not data.strip():
        raise InputError(f"{path}: {main} is empty; give a LaTeX file with text")
    if is_binary(data):
        raise InputError(f"{path}: {main} is binary, not LaTeX text")
    dialect = Dialect()
    text, macros = expand_document(sources, main, dialect)
    document = read_document(text, macros, dialect)
    if not document.abstract and not any(has_words(section.text) or section.title for section in document.sections):
        raise InputError(f"{path}: no text in {main}{_because(warnings)}")
    if not any(section.title for section in document.sections):
        warnings.append(f"{main}: no section headings; all text is one section without a title")
    if not document.abstract:
        warnings.append(f"{main}: no abstract found")
    return Paper(document.title, document.abstract, tuple(document.sections), main, tuple(warnings), macros)


def files_read(sources: Sources, main: str) -> dict[str, bytes]:
    """The main file and those that load_paper reads with it. Raises InputError as load_paper does when the inputs don't end."""
    files = _Read(sources.files)
    if not is_binary(files[main]):
        expand_document(replace(sources, files=files), main, Dialect())
    return files.read


class _Read(Mapping[str, bytes]):
    """Files, of which `read` gathers those that were asked for."""

    def __init__(self, files: Mapping[str, bytes]):
        self._files = files
        self.read: dict[str, bytes] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __getitem__(self, name: str) -> bytes:
        return self.read.setdefault(name, self._files[name])


def _because(warnings: list[str]) -> str:
    return f" ({'; '.join(warnings[:3])})" if warnings else ""
