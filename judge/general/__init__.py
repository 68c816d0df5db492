"""General criteria: the same for every environment, read from a data file that a user can replace."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.registry import resolve

Check = Callable[[Environment, str], bool | None]
CHECKS: Mapping[str, str | Check] = {name: f"papergym.judge.general.checks:{name}" for name in ("handles_all", "detailed", "justified")}


@dataclass(frozen=True)
class GeneralCriterion:
    """name: a few words, for tables. text: what a judge is told. check: the rule that decides it, None where no rule can."""

    name: str
    text: str
    check: Check | None = None

    @property
    def identity(self) -> str:
        """All of it as text."""
        return "\n".join((self.name, self.text, getattr(self.check, "__qualname__", repr(self.check is not None))))


def load_general(path: str | Path | None = None) -> tuple[GeneralCriterion, ...]:
    """Reads general criteria from a TOML file of [[criterion]] tables, by default the seven of papergym.

    Raises InputError naming the file, the criterion and the field; FileNotFoundError.
    """
    source = files(__name__) / "criteria.toml" if path is None else Path(path)
    try:
        tables = tomllib.loads(source.read_text(encoding="utf-8")).get("criterion")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from error
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{path}: no [[criterion]] tables in the file")
    return tuple(_criterion(table, f"{path}, criterion {number}") for number, table in enumerate(tables, 1))


def _criterion(table: object, where: str) -> GeneralCriterion:
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: a table with name and text is needed, not {table!r}")
    if unknown := sorted(set(table) - {"name", "text", "check"}):
        raise InputError(f"{where}: unknown key {unknown[0]!r}; the keys are name, text and check")
    for key in ("name", "text", "check"):
        value = table.get(key)
        if not (isinstance(value, str) and value.strip()) and not (key == "check" and value is None):
            raise InputError(f"{where}, {key}: a non-empty string is needed, not {value!r}")
    check = table.get("check")
    return GeneralCriterion(table["name"], table["text"], resolve("check", check, CHECKS) if check else None)
