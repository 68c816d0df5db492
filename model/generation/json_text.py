"""Reads JSON as language models write it, without loss: Python literals, trailing commas, unescaped quotes, text around it, a cut end.

One pass over the text, an explicit stack instead of recursion: time and memory are linear in the length, whatever the nesting. What an
entry means, and whether a doubled key or a container that was never closed counts, is the caller's to decide; nothing is repaired here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

Unescape = Callable[[str], str]  # from what stands between the quotes to the text that it means

_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?[0-9.][0-9A-Za-z_.+-]*")
_BAREWORD = re.compile(r"[A-Za-z_]+")
_COLON = re.compile(r"\s*:")
_LONE_BACKSLASH = {quote: re.compile(rf"\s*,\s*{quote}\w{{1,40}}{quote}\s*:") for quote in "\"'"}
_SPECIAL = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
# What may follow the closing quote of a value, in an object and in an array. Any other quote is taken for one inside the text.
_AFTER_VALUE = {"{": re.compile(r"""\s*(?:\}|,\s*(?:["'}\d]|\Z))"""), "[": re.compile(r"\s*[\],]"), "(": re.compile(r"\s*[),]")}


@dataclass
class Container:
    """An object, array or tuple by its opening bracket. entries: values, or (key, value) pairs; strings, Decimals, booleans or None."""

    opener: str
    entries: list[Any] = field(default_factory=list)
    closed: bool = False


def objects(text: str, unescape: Unescape) -> Iterator[Container]:
    """Every outermost object of the text, whole or with the part of it that could be read."""
    position = text.find("{")
    while position >= 0:
        end = position + 1
        if _starts_object(text, position):
            container, end = parse(text, position, unescape)
            yield container
        position = text.find("{", end)


def _starts_object(text: str, position: int) -> bool:
    """A number as first key is a Python literal, or the index of a formula: x_{1:T}."""
    first = _SPACE.match(text, position + 1).end()  # type: ignore[union-attr]
    if text[first : first + 1] in ("'", '"'):
        return True
    return text[first : first + 1].isdecimal() and not re.match(r"[\w^}\]\\]", text[position - 1 : position])


def parse(text: str, position: int, unescape: Unescape) -> tuple[Container, int]:
    """Reads one container from its opening bracket on. Returns it and where to read on.

    At a cut end, and at text that is no JSON even leniently, it stops: the containers still open stay marked as not closed, and hold the
    entries that were whole. Reading on happens behind what was looked at, so that no part of the text is read again and again.
    """
    root = Container(text[position])
    stack, position = [root], position + 1
    while stack:
        top, key = stack[-1], None
        position = _skip_space(text, position)
        if text[position : position + 1] == _CLOSERS[top.opener]:
            top.closed = True
            stack.pop()
            position, whole = _after_entry(text, position + 1, stack[-1].opener) if stack else (position + 1, True)
            if not whole:
                break
            continue
        if top.opener == "{":
            key, position, whole = _key(text, position, unescape)
            if not whole:
                break
        if text[position : position + 1] in ("{", "[", "("):
            value: Any = Container(text[position])
            stack.append(value)
            position += 1
        else:
            value, position, whole = _scalar(text, position, top.opener, unescape)
            if whole:
                position, whole = _after_entry(text, position, top.opener)
            if not whole:
                break
        top.entries.append((key, value) if top.opener == "{" else value)
    return root, position


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


# The readers below return what they read, the place behind it, and whether it was there.


def _after_entry(text: str, position: int, opener: str) -> tuple[int, bool]:
    """A comma, which is read, or the closing bracket, which is not."""
    position = _skip_space(text, position)
    comma = text[position : position + 1] == ","
    return position + comma, comma or text[position : position + 1] == _CLOSERS[opener]


def _key(text: str, start: int, unescape: Unescape) -> tuple[Any, int, bool]:
    """An object's key, a string or a number, with its colon."""
    quote, end = text[start : start + 1], start + 1
    if quote in _SPECIAL:
        while (special := _SPECIAL[quote].search(text, end)) and special.group() == "\\":
            end = special.end() + 1
        key: Any = unescape(text[start + 1 : special.start()]) if special else None
        end, whole = (special.end(), True) if special else (start, False)
    else:
        key, end, whole = _number(text, start)
    colon = _COLON.match(text, end) if whole else None
    return (key, _skip_space(text, colon.end()), True) if colon else (None, start, False)


def _scalar(text: str, start: int, opener: str, unescape: Unescape) -> tuple[Any, int, bool]:
    """A string, number or word; the words other than true and false are values that say nothing."""
    if text[start : start + 1] in _SPECIAL:
        return _string(text, start, opener, unescape)
    if word := _BAREWORD.match(text, start):
        return {"true": True, "false": False}.get(word.group().lower()), word.end(), True
    return _number(text, start)


def _number(text: str, start: int) -> tuple[Decimal | None, int, bool]:
    """A Decimal, so that 1.0000000000000000001 is not 1; None for one that is malformed, or longer than any verdict."""
    number = _NUMBER.match(text, start)
    if not number:
        return None, start, False
    try:
        value = Decimal(number.group()) if number.end() - start <= 32 else None
    except InvalidOperation:
        value = None
    return value, number.end(), True


def _string(text: str, start: int, opener: str, unescape: Unescape) -> tuple[str | None, int, bool]:
    """A string value. Quotes that nobody escaped are read through, but never across a `"key":`, which may be another item's."""
    quote, end = text[start], start + 1
    while special := _SPECIAL[quote].search(text, end):
        end = special.end()
        if special.group() == "\\":
            if text[end : end + 1] == quote and _LONE_BACKSLASH[quote].match(text, end + 1):
                return unescape(text[start + 1 : end]), end + 1, True
            end += 1
        elif _AFTER_VALUE[opener].match(text, end):
            return unescape(text[start + 1 : special.start()]), end, True
        elif _COLON.match(text, end):
            return None, end, False
    return None, len(text), False
