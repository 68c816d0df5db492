"""The values of one record, each read under the type that its format promises, or refused with a sentence that names field and value."""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from papergym.errors import InputError


class Fields:
    """One object of a record. prefix: how to get to it, as "rubric[2]."; it goes in front of the names in messages."""

    def __init__(self, values: Mapping[str, Any], prefix: str = ""):
        self._values, self._prefix = values, prefix

    def text(self, name: str) -> str:
        """A string that is not blank."""
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self._needed(name, "a non-empty string")
        return value

    def label(self, name: str) -> str | None:
        """A name, date or number as text; None where it is missing, null or blank."""
        value = self._values.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if isinstance(value, bool) or not (isinstance(value, str | int) or hasattr(value, "isoformat")):
            raise self._needed(name, "a string, a whole number or a date")
        return value.isoformat() if hasattr(value, "isoformat") else str(value).strip()

    def number(self, name: str) -> float:
        """A finite number."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._needed(name, "a finite number")
        return float(value)

    def texts(self, name: str) -> list[str]:
        """A list of at least one string, none of them blank."""
        return [Fields({f"{name}[{index}]": value}, self._prefix).text(f"{name}[{index}]") for index, value in enumerate(self._list(name))]

    def objects(self, name: str) -> "list[Fields]":
        """A list of at least one object."""
        found = []
        for index, value in enumerate(self._list(name)):
            if not isinstance(value, Mapping):
                raise Fields({f"{name}[{index}]": value}, self._prefix)._needed(f"{name}[{index}]", "an object")
            found.append(Fields(value, f"{self._prefix}{name}[{index}]."))
        return found

    def rest(self, *names: str) -> dict[str, Any]:
        """All values but those of these names, as JSON can hold them."""
        kept = {key: value for key, value in self._values.items() if key not in names and value is not None}
        return orjson.loads(orjson.dumps(kept, default=str, option=orjson.OPT_NON_STR_KEYS))

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        if not isinstance(value, list) or not value:
            raise self._needed(name, "a list with at least one entry")
        return value

    def _needed(self, name: str, what: str) -> InputError:
        value = self._values.get(name)
        shown = "nothing" if value is None else repr(value)
        return InputError(f"{self._prefix}{name}: {what} is needed, not {shown if len(shown) <= 60 else shown[:57] + '...'}")
