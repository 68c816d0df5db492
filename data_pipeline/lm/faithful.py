"""Whether a sentence that a model gives as copied stands in its section; what is kept is the section's own text."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from papergym.data_pipeline import cues
from papergym.data_pipeline.math_text import DISPLAY, HOLE
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.sentences import split_sentences
from papergym.data_pipeline.words import words

LEAST_TOKENS = 2
LONGEST_OPENING = 6  # tokens before a comma that a copy may leave out: "However,", "In this paper,"
_POINTERS = r"\\(?:[A-Za-z]*[Cc]ite[A-Za-z]*|label|index|hspace|vspace)\*?(?:\s*\[[^\[\]]*\]){0,2}\s*\{[^{}]*\}"
_TOKEN = re.compile(rf"(?P<pointer>{_POINTERS})|\\[A-Za-z@]+\*?|\\.|[^\W_]+|[^\w\s]|_", re.DOTALL)
_STYLES = words(
    r"\emph \textbf \textit \textsl \textsc \textsf \texttt \textrm \textup \text \it \bf \em \sl \sc \tt \rm \bfseries \itshape \left "
    r"\right \big \Big \bigl \bigr \noindent \par \xspace \protect \mbox \hbox \item \, \; \: \! \/ \- \( \) \\ \quad \qquad"
) | {"\\ ", "\\\n"}
_SILENT = frozenset("{}$~'\"`´‘’“”«»-‐‑‒–—−" + HOLE + DISPLAY)
_ENDS = frozenset(".?!:;")
_PLAIN_ESCAPE = re.compile(r"\\([%&#_$])")
_BREAK = re.compile(r"\n[ \t]*\n|\\item\b|\\\\")
_CITATION = re.compile(rf"~?\s*(?:{_POINTERS})")
_VALUE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w|-[a-z])")  # not TF2, nor an 8.2-meter telescope
_MEASURED = re.compile(
    r"\b(?:accurac\w*|scores?|precision|recall|F1|AUC|BLEU|ROUGE|perplexity|R2|(?:error|success|win|failure|detection|hit|pass) rates?)\b"
    r"[^.;]{0,40}?\b(?:of|is|was|were|at|to|by|reach\w*|equals?|rose|fell)\b[^.;]{0,25}?\d(?:[\d.,]*\s*(?:%|percent|points?)|\.\d|\d)|"
    r"\bfrom [^.;]{0,12}\d[\d.,]*\s?%?\s+to [^.;]{0,12}\d[\d.,]*\s*(?:%|percent|points?)|"
    r"\b(?:achiev|attain|yield|obtain|outperform|surpass|exceed|improv|beat)\w*\b[^.;]{0,60}?\d[\d.,]*\s*(?:%|percent|points?|×|x\b)|"
    r"\d[\d.,]*\s*(?:%|percent|points?|×|x|times)\s+(?:\w+\s+)?(?:higher|lower|better|worse|faster|slower|more|less|fewer|larger|smaller|"
    r"improvement|gain|reduction|increase|decrease|speed-?up)\b|"
    r"\b(?:was|were|rose|fell|dropped|grew|averaged|increased|decreased)\b[^.;]{0,30}?\d[\d.,]*\s*(?:%|percent|per cent|points?)|"
    r"\b(?:was|were) (?:only |about |at |found to be )?\d+\.\d",
    re.IGNORECASE,
)


def is_numerical_result(sentence: str) -> bool:
    """Whether a sentence, LaTeX or plain, states a measured outcome with its number; sizes and settings of a set-up are none."""
    text = plain_text(sentence)
    return bool(_VALUE.search(text) and (cues.RESULT.search(text) or _MEASURED.search(text)))


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    opens: bool  # a sentence may begin here


@dataclass(frozen=True)
class Found:
    """A sentence in its section. words: its normal form, tokens parted by blanks, by which sentences are compared."""

    text: str
    words: str


class Passage:
    """A section as the sentences that are looked for see it: as LaTeX, and as plain text."""

    def __init__(self, latex: str):
        self._forms = (_Form(latex), _Form(plain_text(latex)))

    def find(self, copied: str) -> tuple[list[Found], int]:
        """The sentences of a text that stand in the section, word for word and whole, in the section's own spelling; and how many don't.

        White space, styles, quotes, dashes, citations, case and the way to write a formula don't count; every word, number and sign does.
        """
        found: list[Found] = []
        missing = 0
        for sentence in split_sentences(" ".join(copied.split())):
            place = self._find(sentence)
            parts = re.split(r"(?<=[.?!])\W*\s+", sentence) if place is None else []
            places = [place] if place else [self._find(part) for part in parts]
            if all(places) or len(parts) > 1:
                found += [place for place in places if place]
            missing += sum(place is None for place in places)
        return found, missing

    def _find(self, sentence: str) -> Found | None:
        plain = plain_text(sentence)
        return self._forms[0].find(sentence) or self._forms[1].find(plain)


class _Form:
    """One spelling of a section, as tokens."""

    def __init__(self, text: str):
        self._text = unicodedata.normalize("NFC", text)
        self._tokens = _tokens(self._text)
        self._joined = _join([token.text for token in self._tokens])
        self._offsets: list[int] = []
        offset = 0
        for token in self._tokens:
            self._offsets.append(offset)
            offset += len(token.text) + 1

    def find(self, sentence: str) -> Found | None:
        tokens = [token.text for token in _tokens(unicodedata.normalize("NFC", sentence))]
        while tokens and tokens[-1] in _ENDS | {","}:
            tokens.pop()
        if len(tokens) < LEAST_TOKENS:
            return None
        normal, position = _join(tokens), -1
        while (position := self._joined.find(normal, position + 1)) >= 0:
            first = bisect_right(self._offsets, position) - 1
            last = first + len(tokens) - 1
            if self._begins(first) and self._ends(last):
                return Found(self._slice(first, last), normal.strip())
        return None

    def _begins(self, first: int) -> bool:
        """At the beginning of a sentence, or behind a short opening with its comma."""
        if self._tokens[first].opens:
            return True
        if self._tokens[first - 1].text != ",":
            return False
        opening = self._tokens[max(0, first - LONGEST_OPENING - 1) : first]
        start = next((index for index in range(len(opening) - 1, -1, -1) if opening[index].opens), None)
        return start is not None and not {"not", "no", "never", "unless", "if"} & {token.text for token in opening[start:]}

    def _ends(self, last: int) -> bool:
        following = self._tokens[last + 1] if last + 1 < len(self._tokens) else None
        return following is None or following.opens or following.text in _ENDS

    def _slice(self, first: int, last: int) -> str:
        """From the first to the last token with the marks that belong to them, without citations, on one line."""
        tokens, text = self._tokens, self._text
        if last + 1 < len(tokens) and tokens[last + 1].text in _ENDS:
            last += 1
        before = text[tokens[first - 1].end if first else 0 : tokens[first].start]
        behind = text[tokens[last].end : tokens[last + 1].start if last + 1 < len(tokens) else len(text)]
        start = tokens[first].start - len(re.split(r"\s", before)[-1])
        end = tokens[last].end + len(re.split(r"\s", behind)[0])
        return re.sub(r"\s+([.,;:?!])", r"\1", " ".join(_CITATION.sub("", text[start:end]).replace("~", " ").split()))


def _tokens(text: str) -> list[_Token]:
    """What counts of a text: words and numbers in lower case, signs, and commands that aren't mere style."""
    tokens: list[_Token] = []
    previous: tuple[str, int] | None = None  # the last token that counts, and its end
    for match in _TOKEN.finditer(text):
        token = match.group()
        if match["pointer"] or token in _STYLES or token in _SILENT:
            continue
        token = unicodedata.normalize("NFKC", _PLAIN_ESCAPE.sub(r"\1", token)).casefold()
        between = text[previous[1] : match.start()] if previous else ""
        opens = previous is None or bool(_BREAK.search(between)) or (previous[0] in _ENDS and bool(re.search(r"\s", between)))
        tokens.append(_Token(token, match.start(), match.end(), opens))
        previous = token, match.end()
    return tokens


def _join(tokens: Sequence[str]) -> str:
    """Tokens between blanks, so that only whole ones match; the offset of a token is that of the blank before it."""
    return " " + " ".join(tokens) + " "
