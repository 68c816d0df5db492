"""Dates as papers have them: a day, a month or a year, in ISO form."""

import re
from datetime import date

from papergym.environment import Environment
from papergym.errors import InputError

_ISO = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ].*)?)?)?")


def side_of(environment: Environment, day: date) -> bool | None:
    """Whether an environment's paper is of that day or later; None without a date, and for a month or a year that holds the day inside.

    Raises InputError naming the environment when provenance.date is no date.
    """
    text = environment.provenance.get("date")
    if text is None:
        return None
    match = _ISO.fullmatch(text.strip()) if isinstance(text, str) else None
    try:
        if match is None:
            raise ValueError
        year, month, number = (int(part) if part else None for part in match.groups())
        first = date(year or 0, month or 1, number or 1)
        following = date(first.year + 1, 1, 1) if month is None else date(first.year + month // 12, month % 12 + 1, 1)
    except ValueError as error:
        raise InputError(
            f"environment {environment.id!r}, provenance.date: {text!r} is no date; write 2026-01-31, 2026-01 or 2026"
        ) from error
    if first >= day:
        return True
    return False if number is not None or following <= day else None
