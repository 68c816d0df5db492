"""Named parts: a built-in name, or `module:function` for research code that lives outside the package."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from papergym.errors import InputError


def resolve(kind: str, name: str, builtins: Mapping[str, Any]) -> Any:
    """Returns the object that a configuration names.

    kind: what is being named, for the message ("divergence"). name: a key of builtins or "module:attribute".
    A value of builtins that is a string "module:attribute" is imported on first use, so that a registry needs no imports.
    Raises InputError naming the kind, the name and the built-in names.
    """
    target = builtins.get(name, name)
    if not isinstance(target, str):
        return target
    module_name, _, attribute = target.partition(":")
    if not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"unknown {kind} {name!r}: use one of {', '.join(sorted(builtins))}, or module:function")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise
        raise InputError(
            f"{kind} {name!r}: no module named {error.name!r} can be imported; install it or name its folder in PYTHONPATH"
        ) from error
    except AttributeError as error:
        raise InputError(f"{kind} {name!r}: module {module_name!r} has no attribute {attribute!r}") from error


def check_takes(kind: str, name: str, function: Any, /, *arguments: str, **options: Any) -> None:
    """Raises InputError unless what a configuration names can be called with so many arguments and options, which the message names."""
    form = f"a function of ({', '.join((*arguments, *options))})"
    if not callable(function):
        raise InputError(f"{kind} {name!r}: it is of the type {type(function).__name__}, where {form} is needed")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # as of some functions written in C, which don't tell
        return
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        raise InputError(f"{kind} {name!r}: it takes {signature}, where {form} is needed ({error})") from error
