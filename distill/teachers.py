"""Which weights the self-teacher uses: π_θ itself as in equation 1 of the paper, or the model before training."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from papergym.model.lora import adapters_disabled
from papergym.registry import resolve


def live(model: Any) -> AbstractContextManager[Any]:
    """The weights being trained, held constant within the step (stop-gradient)."""
    return nullcontext()


def initial(model: Any) -> AbstractContextManager[Any]:
    """The base model: the adapter is off while the teacher runs."""
    return adapters_disabled(model)


TEACHERS = {"live": live, "initial": initial}


def teacher(name: str) -> Callable[[Any], AbstractContextManager[Any]]:
    """The context manager, as a function of the model, under which the teacher's forward pass runs."""
    return resolve("teacher", name, TEACHERS)
