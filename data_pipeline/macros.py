"""Writes a paper's own commands out in its text, within bounds that hostile input can't stretch."""

import re
from collections.abc import Mapping

from papergym.data_pipeline.latex.macros import Macro, read_arguments, substitute
from papergym.data_pipeline.latex.scanner import Dialect, Source

_COMMAND = re.compile(r"\\([A-Za-z@]+)[ \t]*")
_DEPTH = 8
_GROWTH = 4  # the text may grow to this many times its length, plus a little
# Definitions that draw, compute or switch are not text: their uses stay as they are, and plain_text decides.
_NOT_TEXT = re.compile(
    r"\\(?:begin|includegraphics|tikz|ifx?|else|fi|csname|expandafter|def|newcommand|input|section|subsection|[a-z]*@[a-z@]*)\b"
)


def expand(text: str, macros: Mapping[str, Macro]) -> str:
    """Returns the text with user commands written out; those without a textual body, or whose arguments are missing, stay as they are."""
    usable = {name: macro for name, macro in macros.items() if not _NOT_TEXT.search(macro.body)}
    return _expand(text, usable, [_GROWTH * len(text) + 10_000], 0) if usable else text


def _expand(text: str, macros: Mapping[str, Macro], budget: list[int], depth: int) -> str:
    source: Source | None = None
    pieces, position = [], 0
    for match in _COMMAND.finditer(text):
        macro = macros.get(match.group(1))
        if macro is None or match.start() < position or depth >= _DEPTH or budget[0] <= 0:
            continue
        source = source or Source(text, Dialect())
        found = read_arguments(macro, source, match.end())
        if found is None:
            continue
        arguments, end = found
        body = substitute(macro.body, arguments)
        budget[0] -= len(body)
        # A control word swallows the blanks behind it, unless \xspace puts one back; and it must not fuse with the letters that follow.
        spaced = "\\xspace" in body and end < len(text) and text[end - 1].isspace() and text[end] not in ".,;:!?)'"
        body = body.replace("\\xspace", "")
        separator = " " if spaced else "{}" if re.search(r"\\[A-Za-z@]+$", body) else ""
        end += 2 if text.startswith("{}", end) else 0
        pieces += [text[position : match.start()], _expand(body, macros, budget, depth + 1), separator]
        position = end
    return "".join((*pieces, text[position:]))
