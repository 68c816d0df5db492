"""Splits scientific prose into sentences: knows e.g., et al., Fig., initials, decimals, and brackets and quotes that close late."""

import re

from papergym.data_pipeline.words import load_words, words

_ABBREVIATIONS = load_words("abbreviations")
_UNSURE = load_words("unsure_abbreviations")
_STARTERS = load_words("starters")
_WINDOW = 400  # characters looked back at; a bracket that is open for longer was never closed
_BEFORE_NAMES = words("of and or due via per named called")
_END = re.compile(r"[.?!]+[\"'”’)\]]*(?=\s)")
_NEXT = re.compile(r"\s+[\"'“‘(\[]{0,5}(\S{1,60})")
_WORD_BEFORE = re.compile(r"([^\s(\[\"'“—–/,;:]+)$")


def split_sentences(paragraph: str) -> list[str]:
    """Returns the sentences of one paragraph of plain text, in order; joined by blanks they give the paragraph back."""
    sentences, start = [], 0
    for match in _END.finditer(paragraph):
        if match.end() > start and _ends(paragraph, start, match):
            sentences.append(paragraph[start : match.end()].strip())
            start = match.end()
    rest = paragraph[start:].strip()
    return [*sentences, rest] if rest else sentences


def _ends(paragraph: str, start: int, match: re.Match[str]) -> bool:
    following = _NEXT.match(paragraph, match.end())
    if following is None:
        return True
    word, mark = following.group(1), match.group()
    if word[0].islower() and not _is_name(word):
        return False
    start = max(start, match.start() - _WINDOW)
    inside = paragraph[start : match.start()]
    for opening, closing in ("()", "[]"):
        if inside.count(opening) > inside.count(closing) and closing not in mark:
            return False
    if mark[0] != "." or mark.startswith(".."):
        return True
    before = _WORD_BEFORE.search(paragraph, max(start, match.start() - 40), match.start())
    if before is None:
        return True
    token = before.group(1).rstrip(".").lower()
    if re.search(r"\d\s?$", paragraph[start : before.start()]):
        return True  # a unit ends the sentence: "bins of 15 ms. Lifts"
    if token in _ABBREVIATIONS:
        return token in ("no", "min", "max", "app", "def", "int", "ed", "p", "st", "co") and not word[0].isdigit() and _starts(word)
    if token in _UNSURE:
        return _starts(word)
    if len(token) == 1 and before.group(1)[0].isupper():
        # "J. M. Burgers" goes on; "of diameter D. Rods are cut" does not: a symbol follows a noun, an initial a name or a small word.
        previous = re.search(r"([\w'-]+)\s+$", paragraph[start : before.start()])
        return _starts(word) or bool(previous and previous.group(1).islower() and previous.group(1) not in _STARTERS | _BEFORE_NAMES)
    return True


def _starts(word: str) -> bool:
    return word.strip(",.;:").lower() in _STARTERS and word[0].isupper()


def _is_name(word: str) -> bool:
    """iPhone, mRNA, t-SNE: words that begin a sentence in lower case and carry a capital behind it."""
    return any(character.isupper() for character in word[1:])
