"""Several requests of one paper at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. After the first that fails the others are stopped, and its own error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except* Exception as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


def first_error(group: BaseExceptionGroup) -> BaseException:
    """The first error inside a group, however deep."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
