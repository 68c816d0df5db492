"""Typed configuration: frozen dataclasses read from TOML, `--set key=value` on top; mistakes are found before a model is loaded."""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from papergym.errors import InputError

T = TypeVar("T")
_DEEPEST = 50  # tables and lists within each other: far more than any setting has, far less than Python's stack


def load_config(cls: type[T], path: str | Path, overrides: Iterable[str] = ()) -> T:
    """Reads a TOML file into the dataclass `cls` and applies overrides of the form "optim.lr=1e-5".

    Nested dataclasses are tables. Raises InputError that names the key, the value and what is allowed, FileNotFoundError.
    """
    overrides = tuple(overrides)
    values = read_values(path, overrides)
    try:
        return from_mapping(cls, values)
    except InputError as error:
        where = f"{path} with --set {' '.join(overrides)}" if overrides else str(path)
        raise InputError(f"{where}: {error}") from error


def read_values(path: str | Path, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The nested values of a TOML file with overrides applied, before any check. Raises InputError when the file is not TOML."""
    if "\0" in str(path):
        raise InputError(f"file {str(path)!r}: the name holds the character NUL, which no file's name can; write another")
    try:
        values = _loads(Path(path).read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from error
    except _Unreadable as error:
        raise InputError(f"{path}: {error}") from error
    for override in overrides:
        _apply(values, override)
    if _too_deep(values):
        raise InputError(f"{path} with its --set: more than {_DEEPEST} tables or lists within each other")
    return values


def from_mapping(cls: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Builds the dataclass from nested mappings, checking names, types and the dataclass's own __post_init__."""
    hints = typing.get_type_hints(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise InputError(f"unknown key {prefix + unknown[0]!r}: allowed here are {', '.join(known)}")
    arguments = {name: _convert(value, hints[name], prefix + name) for name, value in values.items()}
    for name, f in known.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in arguments:
            if not dataclasses.is_dataclass(hints[name]):
                raise InputError(f"key {prefix + name!r} is missing: a value of type {_type_name(hints[name])} is needed")
            arguments[name] = from_mapping(typing.cast(type, hints[name]), {}, f"{prefix}{name}.")
    return cls(**arguments)


def to_mapping(config: Any) -> dict[str, Any]:
    """The nested dictionary of a configuration, as written to run directories."""
    return dataclasses.asdict(config)


class _Unreadable(Exception):
    """TOML by its grammar, that holds what can't be read."""


def _loads(text: str) -> dict[str, Any]:
    """The values of a TOML text. Raises tomllib.TOMLDecodeError and _Unreadable."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as error:
        raise _Unreadable(f"more than {_DEEPEST} tables or lists within each other") from error
    except ValueError as error:
        raise _Unreadable(f"a number or a date in it can't be read ({error})") from error
    if _too_deep(values):
        raise _Unreadable(f"more than {_DEEPEST} tables or lists within each other")
    return values


def _too_deep(values: Any) -> bool:
    level = [values]
    for _ in range(_DEEPEST):
        level = [
            item for value in level if isinstance(value, dict | list) for item in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)


def _apply(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {override}: the form is key=value, for example optim.lr=1e-5")
    try:
        read = _loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        read = {"value": text}  # an unquoted string: --set model.path=checkpoints/base
    except _Unreadable as error:
        raise InputError(f"--set {_short(override)}: {error}") from error
    if len(read) > 1:
        raise InputError(f"--set {override}: more than one line; give one key=value for each setting")
    *tables, name = key.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise InputError(f"--set {override}: {table!r} is a value, not a table")
    values[name] = read["value"]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _convert(value: Any, hint: Any, key: str) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"key {key!r} has the value {_short(str(value))}: whole numbers have 64 bits at most")
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"key {key!r} has the value {_short(repr(value))}: the character NUL is in it, which no path or name can hold")
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InputError(f"key {key!r} is a table, not {value!r}")
        return from_mapping(typing.cast(type, hint), value, f"{key}.")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None or (value == "none" and type(None) in arguments and str not in arguments):
            if type(None) in arguments:
                return None
        else:
            for option in arguments:
                if option is not type(None) and _matches(value, option):
                    return _convert(value, option, key)
    elif _matches(value, hint):
        if origin in (tuple, list):
            return origin(_convert(item, arguments[0], f"{key}[{index}]") for index, item in enumerate(value))
        return float(value) if hint is float else value
    raise InputError(f"key {key!r} has the value {value!r}: {_type_name(hint)} is needed")


def _matches(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if hint is Any:
        return True
    if dataclasses.is_dataclass(hint):
        return isinstance(value, Mapping)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (tuple, list):
        return isinstance(value, list | tuple)
    if origin is dict or hint is dict:
        return isinstance(value, Mapping)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(hint, type) and isinstance(value, hint)


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    return getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
