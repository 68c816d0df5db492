"""A vLLM server as a child process: started, waited for until it is healthy, and stopped with everything that it started."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papergym.errors import InputError

_LOG_LINES = 20  # of the server's log in the message about a failure


@dataclass(frozen=True)
class Server:
    """A running server. url: its address, up to and with /v1. process: the leader of a process group of its own."""

    url: str
    process: subprocess.Popen

    def kill(self) -> None:
        """Ends it at once, with everything that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def vllm_server(
    model: str | Path,
    *,
    log: Path,
    name: str = "model",
    port: int | None = None,
    start_timeout: float = 600.0,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator["Server"]:
    """Serves a checkpoint on 127.0.0.1 while the block runs.

    log: file for what the server prints. name: what clients call the model. port: a free one by default. start_timeout: seconds until it
    has to be healthy. python: the interpreter of an installation that has vLLM. environment: variables on top of this process's own.
    options: vLLM's own, max_model_len=4096 for --max-model-len 4096; True is a bare flag, a mapping becomes JSON.
    Raises InputError with the end of the log when the server dies or is not healthy in time.
    """
    port = port or _free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(model), "--served-model-name", name, *_flags(options)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as output:
        # A session of its own, so that stopping the group stops the engine's processes too.
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(environment or {})}
        )
    try:
        _wait_until_healthy(process, port, log, start_timeout)
        yield Server(f"http://127.0.0.1:{port}/v1", process)
    finally:
        _stop(process)


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield "--" + name.replace("_", "-")
        if value is not True:
            yield json.dumps(value) if isinstance(value, Mapping) else str(value)


def _wait_until_healthy(process: subprocess.Popen, port: int, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        if (code := process.poll()) is not None:
            raise InputError(f"the vLLM server ended with code {code} before it was ready; the end of {log}:\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise InputError(f"the vLLM server was not ready within {timeout:g} s; the end of {log}:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def _stop(process: subprocess.Popen, patience: float = 20.0) -> None:
    """Asks the server to end, and ends its whole group after that."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with suppress(ProcessLookupError):  # raised when nobody of the group is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
