"""What TeX's eyes do: take out comments, leave verbatim text alone, pair braces. One pass each, linear in the text's length."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from papergym.data_pipeline.latex.names import names

VERBATIM = names(
    "verbatim verbatim* Verbatim Verbatim* BVerbatim LVerbatim SaveVerbatim lstlisting minted alltt filecontents"
    " filecontents* verbatimwrite VerbatimOut tcblisting pycode pyconsole luacode luacode* asy CCSXML"
)
WRITTEN = frozenset(("filecontents", "filecontents*", "verbatimwrite", "VerbatimOut"))  # to a file, instead of the page
INLINE = frozenset(("verb", "Verb", "lstinline", "mintinline", "mint", "SaveVerb"))
ADDRESSES = frozenset(("url", "href", "path", "nolinkurl", "burl", "Url", "hyperimage"))

INDENTATION = re.compile(r"[ \t]*")
BLANKS = re.compile(r"[ \t]*(?:\n[ \t]*)?")
ENVIRONMENT = re.compile(r"\s*\{\s*([^{}\\\n]{1,60}?)\s*\}")
WORD = re.compile(r"\\([A-Za-z]+|.|\Z)", re.DOTALL)
WORD_WITH_AT = re.compile(r"\\([A-Za-z@]+|.|\Z)", re.DOTALL)
BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
OPTIONAL_STOP = re.compile(r"[{}\]]|\n[ \t]*\n")
ADDRESS = re.compile(r"[ \t]*\{[^{}\n]*+(?:\{[^{}\n]*+\}[^{}\n]*+)*+\}")
OPTION = re.compile(r"(?:\[[^\[\]\n]{0,300}\])?")
LANGUAGE = re.compile(r"\s*\{[^{}\n]{0,60}\}")
DEFINED_NAME = re.compile(r"\s*\*?\s*(?:\[([^\[\]\n]{0,60})\])?\s*\{\\?([^{}\n]{1,60})\}")
SHORT_VERB = re.compile(r"\*?\s*(?:\[[^\[\]\n]{0,300}\])?\s*\{?\s*\\?([^\sA-Za-z0-9\\{}])")
MAX_INLINE = 1000
MAX_OPTIONAL = 2000
MAX_GROUPS_IN_OPTIONAL = 20


@dataclass
class Dialect:
    """What counts as verbatim in one paper: the packages' environments and those that the paper defines itself."""

    verbatim: set[str] = field(default_factory=lambda: set(VERBATIM))
    dropped: set[str] = field(default_factory=lambda: {"comment"})
    inline: set[str] = field(default_factory=lambda: set(INLINE))
    short: set[str] = field(default_factory=set)  # characters made \verb delimiters by \MakeShortVerb

    def size(self) -> tuple[int, ...]:
        """Changes whenever something is learnt."""
        return len(self.verbatim), len(self.dropped), len(self.inline), len(self.short)

    def define(self, command: str, text: str, position: int) -> None:
        """Learns from a defining command whose name ends at `position`."""
        if command in ("MakeShortVerb", "lstMakeShortInline"):
            if match := SHORT_VERB.match(text, position):
                self.short.add(match[1])
        elif match := DEFINED_NAME.match(text, position):
            option, name = match[1], match[2].strip()
            if command == "newminted":
                self.verbatim |= {option or f"{name}code", f"{option or name + 'code'}*"}
            elif command in ("newmintinline", "newmint"):
                self.inline.add(option or (f"{name}inline" if command == "newmintinline" else name))
            elif command in ("excludecomment", "excludeversion"):
                self.dropped.add(name)
            elif command in ("includecomment", "includeversion"):
                self.dropped.discard(name)
            else:
                self.verbatim.add(name)


DEFINERS = names(
    "MakeShortVerb lstMakeShortInline newminted newmintinline newmint excludecomment includecomment excludeversion includeversion"
    " lstnewenvironment DefineVerbatimEnvironment newtcblisting NewTCBListing newverbatim"
)


def strip_comments(text: str, dialect: Dialect) -> tuple[str, dict[int, int]]:
    """Text without comments, and the spans {start: end} of it that are verbatim.

    A comment takes its line end and the next line's indentation with it, as in TeX; a line of nothing but comment vanishes; a blank
    line after it still ends the paragraph. Environments in `dialect.dropped` vanish too. The dialect learns what is defined on the way.
    """
    parts: list[str] = []
    spans: dict[int, int] = {}
    unended: set[str] = set()
    length = mark = position = 0
    pattern = _pattern(dialect)

    def emit(end: int) -> None:
        nonlocal length
        if end > mark:
            parts.append(text[mark:end])
            length += end - mark

    while match := pattern.search(text, position):
        start, position = match.span()
        character = text[start]
        if character == "%":
            line = text.rfind("\n", 0, start) + 1
            alone = not text[line:start].strip(" \t")
            emit(max(mark, line) if alone else start)
            end = text.find("\n", start)
            mark = position = len(text) if end < 0 else end + 1
            if parts and not parts[-1].endswith("\n"):
                mark = position = INDENTATION.match(text, mark).end()  # type: ignore[union-attr]
                if text.startswith("\n", mark):
                    parts.append("\n")
                    length += 1
            continue
        span_end = 0
        name = match[1]
        if character != "\\":
            span_end = _delimited(text, start, character)
        elif name == "begin":
            environment = ENVIRONMENT.match(text, position)
            if environment and environment[1] not in unended and (environment[1] in dialect.verbatim or environment[1] in dialect.dropped):
                closing = f"\\end{{{environment[1]}}}"
                end = text.find(closing, environment.end())
                if end < 0:
                    unended.add(environment[1])
                elif environment[1] in dialect.dropped:
                    emit(start)
                    mark = position = end + len(closing)
                else:
                    span_end = end + len(closing)
        elif name in dialect.inline:
            span_end = _inline_verbatim(text, position, name)
        elif name in ADDRESSES:
            address = ADDRESS.match(text, position)
            if address and not (text.startswith("%\n", address.start() + 1)):
                span_end = address.end()
        elif name in DEFINERS:
            dialect.define(name, text, position)
            pattern = _pattern(dialect)
            defined = DEFINED_NAME.match(text, position) or SHORT_VERB.match(text, position)
            position = defined.end() if defined else position
        if span_end:
            spans[length + start - mark] = length + span_end - mark
            position = span_end
    emit(len(text))
    return "".join(parts), spans


def _pattern(dialect: Dialect) -> re.Pattern[str]:
    short = "".join(re.escape(character) for character in sorted(dialect.short))
    return re.compile(rf"\\([A-Za-z]+|.|\Z)|[%{short}]", re.DOTALL)


def _delimited(text: str, position: int, delimiter: str) -> int:
    """End of `|...|` on one line, its first delimiter at `position`; 0 when it has no end."""
    end = text.find(delimiter, position + 1, position + MAX_INLINE)
    return end + 1 if end > 0 and "\n" not in text[position:end] else 0


def _inline_verbatim(text: str, position: int, command: str) -> int:
    """End of the argument of \\verb and its relatives, whose name ends at `position`; 0 when there is none."""
    if text.startswith("*", position):
        position += 1
    position = OPTION.match(text, position).end()  # type: ignore[union-attr]
    if command in ("mintinline", "mint", "SaveVerb"):
        language = LANGUAGE.match(text, position)
        position = language.end() if language else position
    if position >= len(text) or text[position] in " \t\n" or text[position].isalnum():
        return 0
    if text[position] == "{" and command not in ("verb", "Verb"):
        address = ADDRESS.match(text, position)
        return address.end() if address else 0
    return _delimited(text, position, text[position])


class Source:
    """LaTeX without comments, its verbatim spans, and the partner of every opening brace."""

    __slots__ = ("_starts", "_stop", "close", "conditionals", "text", "verbatim")

    def __init__(self, text: str, dialect: Dialect):
        self.text, self.verbatim = strip_comments(text, dialect)
        self.close = _pair_braces(self.text, self.verbatim)
        self.conditionals: dict[int, tuple[int | None, int]] | None = None
        self._starts = list(self.verbatim)
        self._stop = (0, -1)

    def is_verbatim(self, position: int) -> bool:
        """Whether the position lies in verbatim text."""
        index = bisect_right(self._starts, position) - 1
        return index >= 0 and position < self.verbatim[self._starts[index]]

    def blanks(self, position: int) -> int:
        """End of the spaces and the at most one line end that TeX skips before an argument."""
        return BLANKS.match(self.text, position).end()  # type: ignore[union-attr]

    def group(self, position: int) -> tuple[int, int] | None:
        """Start and end of what stands inside the braces that open next, or None."""
        position = self.blanks(position)
        end = self.close.get(position)
        return None if end is None else (position + 1, end)

    def groups(self, position: int, count: int) -> list[tuple[int, int]] | None:
        """That many groups behind each other, or None."""
        found = []
        for _ in range(count):
            group = self.group(position)
            if not group:
                return None
            found.append(group)
            position = group[1] + 1
        return found

    def optional(self, position: int) -> tuple[int, int] | None:
        """Start and end of what stands inside the brackets that open next, or None. Brackets inside braces don't count."""
        start = at = self.blanks(position) + 1
        if not self.text.startswith("[", start - 1):
            return None
        for _ in range(MAX_GROUPS_IN_OPTIONAL):
            stop = self._bracket_stop(at)
            if stop - start > MAX_OPTIONAL or not self.text.startswith(("{", "]"), stop):
                return None
            if self.text[stop] == "]":
                return start, stop
            at = self.close.get(stop, stop) + 1
        return None

    def _bracket_stop(self, position: int) -> int:
        """Where the search for a closing bracket halts. The last answer is kept, so that many unclosed brackets cost one search."""
        searched_from, stop = self._stop
        if not searched_from <= position <= stop:
            match = OPTIONAL_STOP.search(self.text, position)
            stop = match.start() if match else len(self.text)
            self._stop = (position, stop)
        return stop

    def argument(self, position: int) -> tuple[str, int] | None:
        """A group's content, a command or a character, with the position behind it."""
        position = self.blanks(position)
        if position in self.close:
            end = self.close[position]
            return self.text[position + 1 : end], end + 1
        if position >= len(self.text) or self.text[position] in "\n{}":
            return None
        end = WORD_WITH_AT.match(self.text, position).end() if self.text[position] == "\\" else position + 1  # type: ignore[union-attr]
        return self.text[position:end], end


def _pair_braces(text: str, verbatim: dict[int, int]) -> dict[int, int]:
    close: dict[int, int] = {}
    stack: list[int] = []
    spans = iter(verbatim.items())
    span_start, span_end = next(spans, (len(text), len(text)))
    for match in BRACES.finditer(text):
        start = match.start()
        while start >= span_end and span_end < len(text):
            span_start, span_end = next(spans, (len(text), len(text)))
        if start >= span_start and start < span_end:
            continue
        if match[0] == "{":
            stack.append(start)
        elif match[0] == "}" and stack:
            close[stack.pop()] = start
    return close
