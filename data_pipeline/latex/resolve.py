"""Which of the paper's files an \\input means. Paths that lead out of the paper are refused, whatever lies there."""

import posixpath
import re
import unicodedata
from collections.abc import Mapping

from papergym.data_pipeline.latex.macros import Macro

OUTSIDE = re.compile(r"[/~|]|[A-Za-z]:|[a-z]+://|\\\\")
OUTSIDE_REASON = "leads out of the paper's own folder, skipped"
MACRO = re.compile(r"\\([A-Za-z@]+)\s*")


class Refused(Exception):
    """The name leads out of the paper or to something that is not read; the message says which."""


class Resolver:
    """Finds files by the names that TeX would accept, then in other case, then by the end of their path."""

    def __init__(self, files: Mapping[str, bytes], skipped: Mapping[str, str]):
        self._files, self._skipped = files, skipped
        self._folded: dict[str, str] = {}
        self._by_base: dict[str, list[str]] = {}
        for path in sorted(files, key=lambda path: (path.count("/"), path)):
            folded = _fold(path)
            self._folded.setdefault(folded, path)
            self._by_base.setdefault(posixpath.basename(folded), []).append(path)

    def resolve(self, name: str, folders: list[str], macros: Mapping[str, Macro]) -> str | None:
        """The path that `name` means, tried from each folder in turn; None when there is none. Raises Refused."""
        name = name.strip().strip('"').strip()
        if "\\" in name[1:]:
            as_on_windows = _inside(name.replace("\\", "/"), folders)  # sections\intro
            if found := self._find(as_on_windows):
                return found
            if OUTSIDE.match(name) or not as_on_windows:
                raise Refused(OUTSIDE_REASON)
        name, has_unknown_macro = _expand(name, macros)
        inside = _inside(name.replace("\\", "/"), folders)
        if OUTSIDE.match(name) or "\0" in name or not inside:
            raise Refused(OUTSIDE_REASON)
        if found := self._find(inside):
            return found
        for path in inside:
            self._refuse_skipped(path)
        return self._by_suffix(posixpath.normpath(name.replace("\\", "/")), has_unknown_macro)

    def _find(self, paths: list[str]) -> str | None:
        """The first of the paths that is there as it is written, else the first that is there in other case."""
        candidates = [candidate for path in paths for candidate in (f"{path}.tex", path)]
        exact = next((path for path in candidates if path in self._files), None)
        return exact or next((self._folded[_fold(path)] for path in candidates if _fold(path) in self._folded), None)

    def _refuse_skipped(self, path: str) -> None:
        """Says why a file isn't there although it is, or a folder above it."""
        candidates = [f"{path}.tex", path]
        while path := posixpath.dirname(path):
            candidates.append(path)
        for candidate in candidates:
            if candidate in self._skipped:
                raise Refused(self._skipped[candidate])

    def _by_suffix(self, name: str, guess: bool) -> str | None:
        """The one file whose path ends like `name`; the shallowest of several when part of the name is unknown anyway."""
        while name.startswith("../"):
            name = name[3:]
        for ending in (_fold(f"{name}.tex"), _fold(name)):
            paths = self._by_base.get(posixpath.basename(ending), [])
            paths = [path for path in paths if f"/{_fold(path)}".endswith(f"/{ending}")]
            if len(paths) == 1 or (paths and guess):
                return paths[0]
        return None


def _inside(name: str, folders: list[str]) -> list[str]:
    """The paths that a name means from each folder, without those that lead out of the paper."""
    paths = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
    return [path for path in paths if path != ".." and not path.startswith("../")]


def _expand(name: str, macros: Mapping[str, Macro]) -> tuple[str, bool]:
    """The name with the paper's own commands replaced; what precedes an unknown command's end is cut off."""
    for _ in range(8):
        match = MACRO.search(name)
        macro = macros.get(match[1]) if match else None
        if not match or not macro or macro.parameters or len(name) > 1000:
            break
        name = name[: match.start()] + macro.body.strip() + name[match.end() :]
    if unknown := list(MACRO.finditer(name)):
        return name[unknown[-1].end() :].lstrip("/{} "), True
    return name.replace("{", "").replace("}", ""), False


def _fold(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
