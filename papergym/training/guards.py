"""What a run does when it is told to stop, and what it leaves behind when a step goes wrong."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from papergym.files import atomic_directory, write_jsonl
from papergym.model.decoder import CausalLM
from papergym.model.lora import save_adapter

_CURSOR = b"\x1b[?25h"  # shown again: a progress bar hides it, and an end at once would leave it hidden
_ONCE_MORE = _CURSOR + b"\nCtrl-C: this step ends and is saved; once more ends the run at once, without saving\n"


@contextmanager
def stop_requests(talks: bool = True) -> Iterator[Callable[[int], bool]]:
    """Inside, neither SIGTERM nor the first SIGINT (Ctrl-C) ends the process: the function that is yielded says whether a signal has come.

    A second Ctrl-C ends it at once, as the first one says on stderr if this process `talks`. A signal that is ignored stays so. Only the
    main thread may take signals: in another one nothing changes.
    """
    come = set[int]()

    def note(number: int, _: Any) -> None:
        come.add(number)
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the system's, which waits for no Python
            if talks:
                os.write(2, _ONCE_MORE if os.isatty(2) else _ONCE_MORE.removeprefix(_CURSOR))

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if threading.current_thread() is not threading.main_thread():
        before = {}
    taken = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in taken:
        signal.signal(number, note)
    try:
        yield come.__contains__
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def save_for_replay(directory: Path, step: int, model: CausalLM, adapter: Mapping[str, Tensor], samples: Sequence[Any]) -> Path:
    """Writes what a step computed its loss from, batch.jsonl with the samples of all ranks and the adapter; returns their directory."""
    final = directory / "failed" / f"step_{step:08d}"
    with atomic_directory(final) as temporary:
        write_jsonl(temporary / "batch.jsonl", samples)
        save_adapter(model, temporary, adapter)
    return final
