"""Reads the verdicts out of a judge's reply, and never invents one.

Three forms are read: {"verdicts": [{"criterion": 1, "reason": "...", "verdict": 0}, ...]}, {"1": 0, "2": 1, ...}, and a bare array of
exactly n verdicts when it is the whole answer. The reader is lenient about spelling (Python literals, trailing commas, lone backslashes
and unescaped quotes in reasons, text around the JSON, a cut end) and strict about meaning: whatever could be read in two ways is None.

One pass over the text, an explicit stack instead of recursion: time and memory are linear in the length, whatever the nesting.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from papergym.judge.answer import plan_of

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?[0-9.][0-9A-Za-z_.+-]*")
_BAREWORD = re.compile(r"[A-Za-z_]+")
_COLON = re.compile(r"\s*:")
_FENCE_OPEN = re.compile(r"[`~]+[ \t]*[\w+-]*")
_LONE_BACKSLASH = {quote: re.compile(rf"\s*,\s*{quote}\w{{1,40}}{quote}\s*:") for quote in "\"'"}
_ESCAPE = re.compile(r"\\(?:u00([0-7][0-9a-fA-F])|[nrt])")
_SPECIAL = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
# What may follow the closing quote of a value, in an object and in an array. Any other quote is taken for one inside the text.
_AFTER_VALUE = {"{": re.compile(r"""\s*(?:\}|,\s*(?:["'}\d]|\Z))"""), "[": re.compile(r"\s*[\],]"), "(": re.compile(r"\s*[),]")}


@dataclass
class _Container:
    opener: str
    entries: list[Any] = field(default_factory=list)  # values, or (key, value) pairs
    closed: bool = False


def parse_verdicts(reply: str, n_criteria: int) -> list[bool | None]:
    """Returns one verdict for each of the criteria 1..n_criteria: True (met), False (not met) or None (not scored).

    Only what follows the last `</think>` counts; an unclosed `<think>` leaves all None. Of several objects, the last one that holds a
    criterion number in 1..n counts alone; inside it, duplicates that disagree are None. Numbers other than 0 and 1 are None; strings are
    stripped and case-folded (true, yes, 1; false, no, 0; anything else is None). Of a reply that was cut, an item counts once it is closed
    and an entry of {"1": 0} once something follows it. Never raises on any reply.
    """
    answer = plan_of(reply)
    if answer is None:
        return [None] * n_criteria
    array = _whole_array(answer)
    if array is not None:
        return [_verdict(value) for value in array] if len(array) == n_criteria else [None] * n_criteria
    claims: list[tuple[int, bool | None]] = []
    for container in _objects(answer):
        claims = list(_claims(container, n_criteria)) or claims
    return _settle(claims, n_criteria)


def _settle(claims: list[tuple[int, bool | None]], n_criteria: int) -> list[bool | None]:
    """One verdict a criterion: the one that all its claims share."""
    stated: dict[int, set[bool | None]] = {}
    for number, verdict in claims:
        stated.setdefault(number, set()).add(verdict)
    return [next(iter(stated[number])) if len(stated.get(number, ())) == 1 else None for number in range(1, n_criteria + 1)]


def _claims(container: _Container, n_criteria: int) -> Iterator[tuple[int, bool | None]]:
    """(criterion number, verdict) of every whole entry of one object, in both forms."""
    for key, value in container.entries:
        if (number := _criterion_number(key, n_criteria)) is not None:
            yield number, _verdict(value)
        elif _is_key(key, "verdicts") and isinstance(value, _Container) and value.opener != "{":
            for item in value.entries:
                if isinstance(item, _Container) and item.opener == "{" and item.closed:
                    yield from _item_claims(item, n_criteria)


def _item_claims(item: _Container, n_criteria: int) -> Iterator[tuple[int, bool | None]]:
    numbers = {_criterion_number(value, n_criteria) for key, value in item.entries if _is_key(key, "criterion")}
    verdicts = {_verdict(value) for key, value in item.entries if _is_key(key, "verdict")}
    settled = next(iter(verdicts)) if len(verdicts) == len(numbers) == 1 else None
    for number in numbers - {None}:
        yield number, settled  # type: ignore[misc]


def _is_key(key: Any, name: str) -> bool:
    return isinstance(key, str) and key.strip().casefold() == name


def _criterion_number(value: Any, n_criteria: int) -> int | None:
    if isinstance(value, str):
        value = value.strip()
        value = Decimal(value) if re.fullmatch("[0-9]{1,9}", value) else None
    if not isinstance(value, Decimal) or not 1 <= value <= n_criteria or value != int(value):
        return None
    return int(value)


def _verdict(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, Decimal):
        return bool(value) if value in (0, 1) else None
    return _WORDS.get(value.strip().casefold()) if isinstance(value, str) else None


def _whole_array(answer: str) -> list[Any] | None:
    """The values of a bare array that is all there is, fences aside."""
    text = answer.strip()
    if fence := _FENCE_OPEN.match(text):
        text = text[fence.end() :].rstrip("`~ \t\r\n").lstrip()
    if not text.startswith("["):
        return None
    container, end = _parse(text, 0)
    return container.entries if container.closed and end == len(text) else None


def _objects(text: str) -> Iterator[_Container]:
    """Every outermost object of the text, whole or with the part of it that could be read."""
    position = text.find("{")
    while position >= 0:
        end = position + 1
        if _starts_object(text, position):
            container, end = _parse(text, position)
            yield container
        position = text.find("{", end)


def _starts_object(text: str, position: int) -> bool:
    """A number as first key is a Python literal, or the index of a formula: x_{1:T}."""
    first = _SPACE.match(text, position + 1).end()  # type: ignore[union-attr]
    if text[first : first + 1] in ("'", '"'):
        return True
    return text[first : first + 1].isdecimal() and not re.match(r"[\w^}\]\\]", text[position - 1 : position])


def _parse(text: str, position: int) -> tuple[_Container, int]:
    """Reads one container from its opening bracket on. Returns it and where to read on.

    At a cut end, and at text that is no JSON even leniently, it stops: the containers still open stay marked as not closed, and hold the
    entries that were whole. Reading on happens behind what was looked at, so that no part of the text is read again and again.
    """
    root = _Container(text[position])
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
            key, position, whole = _key(text, position)
            if not whole:
                break
        if text[position : position + 1] in ("{", "[", "("):
            value: Any = _Container(text[position])
            stack.append(value)
            position += 1
        else:
            value, position, whole = _scalar(text, position, top.opener)
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


def _key(text: str, start: int) -> tuple[Any, int, bool]:
    """An object's key, a string or a number, with its colon."""
    quote, end = text[start : start + 1], start + 1
    if quote in _SPECIAL:
        while (special := _SPECIAL[quote].search(text, end)) and special.group() == "\\":
            end = special.end() + 1
        key: Any = _unescape(text[start + 1 : special.start()]) if special else None
        end, whole = (special.end(), True) if special else (start, False)
    else:
        key, end, whole = _number(text, start)
    colon = _COLON.match(text, end) if whole else None
    return (key, _skip_space(text, colon.end()), True) if colon else (None, start, False)


def _scalar(text: str, start: int, opener: str) -> tuple[Any, int, bool]:
    """A string, number or word; the words other than true and false are values that say nothing."""
    if text[start : start + 1] in _SPECIAL:
        return _string(text, start, opener)
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


def _string(text: str, start: int, opener: str) -> tuple[str | None, int, bool]:
    """A string value. Quotes that nobody escaped are read through, but never across a `"key":`, which may be another item's."""
    quote, end = text[start], start + 1
    while special := _SPECIAL[quote].search(text, end):
        end = special.end()
        if special.group() == "\\":
            if text[end : end + 1] == quote and _LONE_BACKSLASH[quote].match(text, end + 1):
                return _unescape(text[start + 1 : end]), end + 1, True
            end += 1
        elif _AFTER_VALUE[opener].match(text, end):
            return _unescape(text[start + 1 : special.start()]), end, True
        elif _COLON.match(text, end):
            return None, end, False
    return None, len(text), False


def _unescape(text: str) -> str:
    """Only the escapes that a key or a verdict could carry; reasons are not read."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
