"""A paper cut into what a model reads at a time: a section with its subsections, or as much of one as goes into the context."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from papergym.data_pipeline.latex import Paper
from papergym.data_pipeline.macros import expand
from papergym.data_pipeline.passages import ABSTRACT
from papergym.data_pipeline.sentences import split_sentences

_NO_CONTENT = re.compile(
    r"acknowledg|funding|conflict|competing interest|authors? contribution|availab|^references$|bibliograph|keyword|nomenclature|disclos",
    re.IGNORECASE,
)
_BEGIN = re.compile(r"\\begin\{(tabular[*xy]?|longtable|tikzpicture|pgfpicture|thebibliography|lstlisting|minted|verbatim)\}")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
LEAST = 200  # characters: a piece is not cut below that


@dataclass(frozen=True)
class Piece:
    """Text of one section, LaTeX with the paper's own commands written out."""

    title: str
    text: str


def pieces(paper: Paper, most: int) -> list[Piece]:
    """The abstract and every section of the body with its subsections, each in parts of up to `most` characters, in order.

    Left out are appendices, sections without content of their own (acknowledgements and the like), and tables, drawings and listings.
    """
    found: list[Piece] = []
    for title, text in _sections(paper):
        text = _prose(expand(text, paper.macros))
        found += [Piece(title, part) for part in split(text, most) if re.search(r"\w{3}", part)]
    return found


def split(text: str, most: int) -> list[str]:
    """Cuts a text at paragraphs into parts of up to `most` characters; a paragraph that is longer at sentences, a sentence anywhere."""
    parts: list[str] = []
    for paragraph in _PARAGRAPH.split(text.strip()):
        if len(paragraph) <= most:
            _append(parts, paragraph, "\n\n", most)
            continue
        parts.append("")  # a long paragraph begins a part of its own
        for sentence in split_sentences(paragraph):
            for start in range(0, len(sentence), most):
                _append(parts, sentence[start : start + most], " ", most)
    return [part for part in parts if part]


def halves(piece: Piece) -> list[Piece]:
    """The piece in two or three parts, itself where it is too short for that."""
    if len(piece.text) < 2 * LEAST:
        return [piece]
    return [Piece(piece.title, part) for part in split(piece.text, len(piece.text) // 2 + 1)]


def _append(parts: list[str], text: str, separator: str, most: int) -> None:
    if parts and len(parts[-1]) + len(separator) + len(text) <= most:
        parts[-1] += (separator if parts[-1] else "") + text
    else:
        parts.append(text)


def _sections(paper: Paper) -> Iterator[tuple[str, str]]:
    """(title, LaTeX) of the abstract and of each section, subsections and their titles inside it."""
    if paper.abstract.strip():
        yield ABSTRACT, paper.abstract
    title, level, texts = "", 0, list[str]()
    for section in paper.sections:
        if section.appendix:
            continue
        if texts and section.level > level > 0 and not _NO_CONTENT.search(section.title):
            texts += [f"{section.title}." if section.title else "", section.text]
            continue
        if texts:
            yield title, "\n\n".join(filter(None, texts))
        title, level, texts = section.title, section.level, [] if _NO_CONTENT.search(section.title) else [section.text]
    if texts:
        yield title, "\n\n".join(filter(None, texts))


def _prose(text: str) -> str:
    """Without environments that hold no sentences."""
    kept, position, without_end = [], 0, set[str]()
    while begin := _BEGIN.search(text, position):
        name = begin[1]
        end = -1 if name in without_end else text.find(f"\\end{{{name}}}", begin.end())
        if end < 0:  # looked for once, so that many beginnings cost no more than one
            without_end.add(name)
            kept.append(text[position : begin.end()])
            position = begin.end()
        else:
            kept.append(text[position : begin.start()])
            position = end + len(f"\\end{{{name}}}")
    return "".join((*kept, text[position:]))
