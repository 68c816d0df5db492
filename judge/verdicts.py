"""Reads the verdicts out of a judge's reply, and never invents one.

Three forms are read: {"verdicts": [{"criterion": 1, "reason": "...", "verdict": 0}, ...]}, {"1": 0, "2": 1, ...}, and a bare array of
exactly n verdicts when it is the whole answer. Lenient about spelling (json_text) and strict about meaning: whatever could be read in two
ways is None.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from papergym.judge.answer import plan_of
from papergym.model.generation.json_text import Container, objects, parse

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_FENCE_OPEN = re.compile(r"[`~]+[ \t]*[\w+-]*")
_ESCAPE = re.compile(r"\\(?:u00([0-7][0-9a-fA-F])|[nrt])")


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
    for container in objects(answer, _unescape):
        claims = list(_claims(container, n_criteria)) or claims
    return _settle(claims, n_criteria)


def _settle(claims: list[tuple[int, bool | None]], n_criteria: int) -> list[bool | None]:
    """One verdict a criterion: the one that all its claims share."""
    stated: dict[int, set[bool | None]] = {}
    for number, verdict in claims:
        stated.setdefault(number, set()).add(verdict)
    return [next(iter(stated[number])) if len(stated.get(number, ())) == 1 else None for number in range(1, n_criteria + 1)]


def _claims(container: Container, n_criteria: int) -> Iterator[tuple[int, bool | None]]:
    """(criterion number, verdict) of every whole entry of one object, in both forms."""
    for key, value in container.entries:
        if (number := _criterion_number(key, n_criteria)) is not None:
            yield number, _verdict(value)
        elif _is_key(key, "verdicts") and isinstance(value, Container) and value.opener != "{":
            for item in value.entries:
                if isinstance(item, Container) and item.opener == "{" and item.closed:
                    yield from _item_claims(item, n_criteria)


def _item_claims(item: Container, n_criteria: int) -> Iterator[tuple[int, bool | None]]:
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
    container, end = parse(text, 0, _unescape)
    return container.entries if container.closed and end == len(text) else None


def _unescape(text: str) -> str:
    """Only the escapes that a key or a verdict could carry; reasons are not read."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
