"""arXiv's 00README: what a submission says of its own files, as JSON, YAML, TOML or lines of "name usage"."""

import json
import posixpath
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papergym.data_pipeline.latex.decoding import decode

FORMS = (".json", ".yaml", ".yml", ".toml", ".xxx")  # the first one that names a top level file counts
_ENTRY = re.compile(r"\s*(?:-\s+)?[\"']?(filename|usage)[\"']?\s*:\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s#][^#]*))")
Usage = tuple[str, str]  # a file's name, and what it is for


@dataclass(frozen=True)
class Hints:
    """toplevel: the files that are documents, the first first. ignored: those that are no part of the paper."""

    toplevel: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()


def read_hints(files: Mapping[str, bytes]) -> Hints:
    """What the 00README files say, of files that are there. One counts only in the folder that everything lies in.

    What is no such file, or is damaged, says nothing.
    """
    shared = posixpath.commonpath([posixpath.dirname(path) for path in files]) if files else ""
    found = [path for path in files if posixpath.dirname(path) == shared and _form(path) in FORMS]
    by_case = {path.casefold(): path for path in sorted(files, reverse=True)} if found else {}
    toplevel: list[str] = []
    ignored: set[str] = set()
    for path in sorted(found, key=lambda path: FORMS.index(_form(path))):
        for name, usage in _usages(_form(path), decode(files[path])):
            full = posixpath.normpath(posixpath.join(shared, name))
            full = full if full in files else by_case.get(full.casefold(), "")
            if full and usage == "ignore":
                ignored.add(full)
            elif full and usage == "toplevel":
                toplevel.append(full)
    return Hints(tuple(toplevel), frozenset(ignored))


def _form(path: str) -> str:
    """The ending of a 00README, "" of any other file."""
    stem, ending = posixpath.splitext(posixpath.basename(path).casefold())
    return ending if stem == "00readme" else ""


def _usages(form: str, text: str) -> list[Usage]:
    if form == ".xxx":
        lines = [line.rsplit(None, 1) for line in text.split("\n")]
        return [(line[0].strip(), line[1].casefold().replace("toplevelfile", "toplevel")) for line in lines if len(line) == 2]
    if form in (".yaml", ".yml"):
        return _from_yaml(text)
    try:
        sources: Any = (json.loads if form == ".json" else tomllib.loads)(text)["sources"]
        return [(str(source["filename"]), str(source.get("usage", ""))) for source in sources]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _from_yaml(text: str) -> list[Usage]:
    """The pairs of filename and usage in a YAML file, whichever of both stands first."""
    pairs: list[Usage] = []
    entry: dict[str, str] = {}
    for line in text.split("\n"):
        if line.lstrip().startswith("- "):
            entry = {}
        if match := _ENTRY.match(line):
            entry[match[1]] = next(value for value in match.groups()[1:] if value is not None).strip()
            if len(entry) == 2:
                pairs.append((entry["filename"], entry["usage"]))
    return pairs
