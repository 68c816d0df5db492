"""A vLLM server as a child process: started, waited for until it is healthy, and stopped with everything that it started, also when this
process is killed."""

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

_LOG_LINES = 60  # of the server's log in the message about a failure


@dataclass(frozen=True)
class Server:
    """A running server. url: its address, up to and with /v1. process: the server itself. group: of it and of all that it started."""

    url: str
    process: subprocess.Popen
    group: int

    def kill(self) -> None:
        """Ends it at once, with everything that it started."""
        os.killpg(self.group, signal.SIGKILL)
        self.process.wait()

    def load_adapter(self, name: str, path: str | Path) -> None:
        """Serves a LoRA adapter (PEFT layout) as a model called `name` beside the base model, in place of what had that name before.

        The server needs enable_lora=True and the environment variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. Raises InputError with what it
        says when it refuses.
        """
        body = json.dumps({"lora_name": name, "lora_path": str(Path(path).absolute()), "load_inplace": True}).encode()
        request = urllib.request.Request(f"{self.url}/load_lora_adapter", body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=300).close()
        except urllib.error.HTTPError as error:
            raise InputError(f"{path}: the vLLM server can't load this adapter, {error.read().decode(errors='replace')[:300]}") from error


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
) -> Iterator[Server]:
    """Serves a checkpoint on 127.0.0.1 while the block runs.

    log: file for what the server prints. name: what clients call the model. port: a free one by default. start_timeout: seconds until it
    has to be healthy. python: the interpreter of an installation that has vLLM. environment: variables on top of this process's own.
    options: vLLM's own, max_model_len=4096 for --max-model-len 4096; True is a bare flag, a list several
    words, a mapping JSON.
    Raises InputError with the end of the log when the server dies or is not healthy in time.
    """
    port = port or _free_port()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--model", str(model), "--served-model-name", name, *_flags(options)]
    log.parent.mkdir(parents=True, exist_ok=True)
    # The watchdog leads the group, and reads from a pipe that ends when this process does, however it does; then it ends the group.
    watchdog = subprocess.Popen(["/bin/sh", "-c", "read -r _; kill -KILL 0"], stdin=subprocess.PIPE, process_group=0)
    server = None
    try:
        with open(log, "ab") as output:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=watchdog.pid,
                env={**os.environ, **(environment or {})},
            )
        _wait_until_healthy(server, port, log, start_timeout)
        yield Server(f"http://127.0.0.1:{port}/v1", server, watchdog.pid)
    finally:
        if server is not None:
            _ask_to_end(server)
        with suppress(ProcessLookupError):  # raised when nobody of the group is left
            os.killpg(watchdog.pid, signal.SIGKILL)
        for process in (server, watchdog):
            if process is not None:
                process.wait()
        watchdog.stdin.close()  # type: ignore[union-attr]


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield "--" + name.replace("_", "-")
        if value is not True:
            values = value if isinstance(value, list | tuple) else [value]
            yield from (json.dumps(one) if isinstance(one, Mapping) else str(one) for one in values)


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


def _ask_to_end(process: subprocess.Popen, patience: float = 20.0) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
