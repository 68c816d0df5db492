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
        name, has_unknown_macro = _expand(name, macros)
        if OUTSIDE.match(name) or "\0" in name:
            raise Refused(OUTSIDE_REASON)
        name = name.replace("\\", "/")
        candidates = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
        inside = [path for path in candidates if path != ".." and not path.startswith("../")]
        if not inside:
            raise Refused(OUTSIDE_REASON)
        for path in inside:
            for candidate in (f"{path}.tex", path):
                if candidate in self._files:
                    return candidate
        for path in inside:
            for candidate in (f"{path}.tex", path):
                if found := self._folded.get(_fold(candidate)):
                    return found
        for path in inside:
            self._refuse_skipped(path)
        return self._by_suffix(posixpath.normpath(name), has_unknown_macro)

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
