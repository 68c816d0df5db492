"""What a run does when it is told to stop, and what it leaves behind when a step goes wrong."""

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


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Inside, SIGTERM does not end the process: the function that is yielded says whether it has come.

    Only the main thread may take signals: in another one nothing changes.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    before = signal.signal(signal.SIGTERM, lambda *_: requested.set())
    try:
        yield requested.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def save_for_replay(directory: Path, step: int, model: CausalLM, adapter: Mapping[str, Tensor], samples: Sequence[Any]) -> Path:
    """Writes what a step computed its loss from, batch.jsonl with the samples of all ranks and the adapter; returns their directory."""
    final = directory / "failed" / f"step_{step:08d}"
    with atomic_directory(final) as temporary:
        write_jsonl(temporary / "batch.jsonl", samples)
        save_adapter(model, temporary, adapter)
    return final
