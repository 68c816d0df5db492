"""Which of many files is the paper: hints of arXiv first, else a score over name, class, content and place."""

import math
import posixpath
import re
from collections.abc import Callable, Mapping, Set

from papergym.data_pipeline.latex.decoding import decode, is_binary
from papergym.data_pipeline.latex.hints import read_hints
from papergym.data_pipeline.latex.scanner import Dialect, strip_comments

DOCUMENT_CLASS = re.compile(r"\\document(?:class|style)\s*(?:\[[^\[\]]{0,2000}\])?\s*\{\s*([^{}\s]{1,200})\s*\}")
INPUT = re.compile(r"\\(?:input|include|subfile)\s*\{?\s*([^{}\s\\]{1,200})")
TITLE = re.compile(r"\\title\s*(?:\[[^\[\]]{0,500}\])?\s*\{([^{}]{0,400})")
BEGIN = re.compile(r"\\begin\s*\{\s*document\s*\}")
SUFFIXES = (".tex", ".ltx", ".latex")

NAME_SCORES = {
    "main": 12, "ms": 12, "paper": 12, "article": 10, "manuscript": 10, "root": 8, "arxiv": 8, "final": 4, "thesis": 4, "submission": 4,
    "supplement": -60, "supplementary": -60, "supplemental": -60, "supp": -60, "suppl": -60, "si": -50, "sm": -50, "supplementals": -60,
    "appendix": -40, "cover": -60, "coverletter": -90, "letter": -15, "response": -80, "responses": -80, "rebuttal": -90, "reply": -70,
    "referee": -70, "referees": -70, "reviewer": -70, "reviewers": -70, "review": -15, "reviews": -40, "diff": -60, "latexdiff": -60,
    "changes": -40, "draft": -25, "old": -50, "backup": -60, "bak": -60, "copy": -40, "template": -50, "sample": -50, "example": -40,
    "examples": -40, "instructions": -50, "guidelines": -50, "slides": -60, "talk": -60, "presentation": -60, "beamer": -60, "poster": -60,
    "figure": -50, "figures": -50, "fig": -50, "figs": -50, "table": -50, "tables": -50, "tikz": -50, "plot": -40, "test": -30,
    "notes": -30,
    "note": -10, "readme": -40, "highlights": -50, "cv": -50, "checklist": -50, "unused": -60, "archive": -40, "outline": -40, "todo": -40,
    "previous": -40, "original": -10, "deprecated": -60, "tmp": -40, "temp": -40,
}  # fmt: skip
CLASS_SCORES = {
    "standalone": -120, "subfiles": -100, "letter": -110, "scrlttr2": -110, "dinbrief": -110, "exam": -80, "beamer": -80, "tikzposter": -90,
    "beamerposter": -90, "a0poster": -90, "minimal": -60, "moderncv": -90, "ltxdoc": -60, "leaflet": -60, "docmute": -60, "preview": -80,
}  # fmt: skip
OFF_TOPIC_TITLE = re.compile(r"\b(?:supplement\w*|supporting information|response to|reply to|rebuttal|cover letter|appendix)\b", re.I)
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
MAX_LOOK = 400_000


def choose_main(files: Mapping[str, bytes], warnings: list[str]) -> str | None:
    """The path of the paper's main file, or None when no file is LaTeX text."""
    hints = read_hints(files)
    if hints.toplevel:
        return hints.toplevel[0]
    texts = _candidates(files, hints.ignored, lambda path: _suffix(path) in SUFFIXES)
    # A paper may be called paper.txt or have no suffix at all; such files are read only when there is no other candidate.
    texts = texts or _candidates(files, hints.ignored, lambda path: _suffix(path) in ("", ".txt") and b"\\documentclass" in files[path])
    if not texts:
        return None
    documents = _documents(texts)
    if not documents:
        used = _used_by(texts)
        free = {path: text for path, text in texts.items() if path not in used} or texts
        best = max(free, key=lambda path: (_name_score(path), len(free[path]), path))
        warnings.append(f"no file has a \\documentclass; {best} is taken for the paper")
        return best
    used = _used_by(documents)
    scores = {path: _score(path, text, files) - 60 * (path in used) for path, text in documents.items()}
    ranked = sorted(scores, key=lambda path: (-scores[path], path.count("/"), path))
    if len(ranked) > 1 and scores[ranked[0]] - scores[ranked[1]] < 5:
        warnings.append(f"{ranked[0]} is taken for the paper, but {ranked[1]} looks as likely")
    return ranked[0]


def _documents(texts: Mapping[str, str]) -> dict[str, str]:
    """The files with a \\documentclass, and those that begin a document whose class is in a file that they input."""
    classes = {path: text for path, text in texts.items() if DOCUMENT_CLASS.search(text)}
    inner = {*classes} | _used_by(texts)
    begun = {path: text for path, text in texts.items() if path not in inner and BEGIN.search(text)}
    return classes | {path: text for path, text in begun.items() if not classes.keys().isdisjoint(_used_by(texts, {path: text}))}


def _candidates(files: Mapping[str, bytes], ignored: Set[str], wanted: Callable[[str], bool]) -> dict[str, str]:
    """The beginnings, without comments, of the files that may be documents."""
    texts = {}
    for path in files:
        name = posixpath.basename(path)
        if path not in ignored and not name.startswith(("00README", "._")) and wanted(path):  # ._ is for macOS's notes on a file
            data = files[path]
            if data.strip() and not is_binary(data):
                texts[path] = strip_comments(decode(data[:MAX_LOOK]), Dialect())[0]
    return texts


def _suffix(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


def _used_by(texts: Mapping[str, str], users: Mapping[str, str] | None = None) -> set[str]:
    """Paths of texts that another of them inputs, or one of `users`."""
    used = set()
    by_stem: dict[str, list[str]] = {}
    for path in texts:
        by_stem.setdefault(posixpath.splitext(posixpath.basename(path))[0].casefold(), []).append(path)
    for user, text in (users or texts).items():
        for match in INPUT.finditer(text):
            stem = posixpath.splitext(posixpath.basename(match[1]))[0].casefold()
            folder = posixpath.dirname(match[1]).lstrip("./")
            used |= {path for path in by_stem.get(stem, []) if path != user and posixpath.dirname(path).endswith(folder)}
    return used


def _name_score(path: str) -> float:
    stem = posixpath.splitext(posixpath.basename(path))[0]
    score = float(sum(NAME_SCORES.get(word.lower(), 0) for word in set(WORDS.findall(stem))))
    folders = {word.lower() for word in WORDS.findall(posixpath.dirname(path))}
    score += sum(min(NAME_SCORES.get(word, 0), 0) for word in folders)
    return score - 3 * path.count("/")


def _score(path: str, text: str, files: Mapping[str, bytes]) -> float:
    score = _name_score(path)
    match = DOCUMENT_CLASS.search(text)
    score += CLASS_SCORES.get(match[1].split("/")[-1], 0) if match else 0
    begin = BEGIN.search(text)
    score += 40 if begin else 0
    score += 10 if "\\title" in text or "\\icmltitle" in text else 0
    score += 10 if "{abstract}" in text or "\\abstract" in text else 0
    score += 5 if "\\bibliography" in text or "{thebibliography}" in text or "\\printbibliography" in text else 0
    score += 5 if f"{posixpath.splitext(path)[0]}.bbl" in files else 0
    score += min(10, 2 * len(INPUT.findall(text))) + min(6, text.count("\\section"))
    body = len(text) - begin.end() if begin else 0
    score += min(12.0, 3 * math.log10(1 + body))
    if (title := TITLE.search(text)) and OFF_TOPIC_TITLE.search(title[1]):
        score -= 40
    if "\\DIFadd" in text or "\\DIFdel" in text:
        score -= 60
    return score
