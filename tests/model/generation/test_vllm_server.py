"""Starting, watching and stopping a server, with a script in vLLM's place."""

import json
import os
import stat
import subprocess
import sys
import time
import urllib.request

import pytest

from papergym.errors import InputError
from papergym.model.generation.vllm_server import vllm_server

SCRIPT = """\
#!{python}
import http.server, json, os, subprocess, sys, time
print("arguments", json.dumps(sys.argv[1:]), os.environ.get("SOME_SETTING"), flush=True)
mode = os.environ["MODE"]
if mode == "dies":
    sys.exit("no such model")
if mode == "hangs":
    time.sleep(60)
subprocess.Popen(["sleep", "61"])  # as the engine's processes
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def serve(tmp_path):
    script = tmp_path / "python"
    script.write_text(SCRIPT.format(python=sys.executable))
    script.chmod(script.stat().st_mode | stat.S_IEXEC)

    def start(mode, **options):
        return vllm_server("a/model", log=tmp_path / "logs" / "server.log", python=str(script), environment={"MODE": mode}, **options)

    return start


def group_is_alive(leader):
    # A child that ended stays a member until somebody waits for it, which init does; states other than Z are alive.
    listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return any(line.split()[0] == str(leader) and not line.split()[1].startswith("Z") for line in listed.splitlines())


def test_it_is_healthy_inside_the_block_and_gone_with_its_children_after_it(serve, tmp_path):
    with serve(
        "works",
        name="judge",
        max_model_len=4096,
        enforce_eager=True,
        lora_target_modules=["q", "k"],
        structured_outputs_config={"backend": "guidance"},
    ) as server:
        with urllib.request.urlopen(server.url.removesuffix("/v1") + "/health", timeout=10) as reply:
            assert reply.status == 200
        assert group_is_alive(server.group)
    assert not group_is_alive(server.group)
    said = (tmp_path / "logs" / "server.log").read_text()
    arguments = json.loads(said.removeprefix("arguments ").rpartition("]")[0] + "]")
    port = server.url.split(":")[-1].removesuffix("/v1")
    assert arguments[:6] == ["-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", port]
    assert arguments[6:10] == ["--model", "a/model", "--served-model-name", "judge"]
    assert arguments[10:13] == ["--max-model-len", "4096", "--enforce-eager"]
    assert arguments[13:] == ["--lora-target-modules", "q", "k", "--structured-outputs-config", '{"backend": "guidance"}']


def test_it_is_gone_after_an_error_in_the_block_and_after_a_kill(serve):
    with pytest.raises(KeyError), serve("works") as server:
        raise KeyError
    assert not group_is_alive(server.group)
    with serve("works") as server:
        server.kill()
        assert server.process.poll() is not None
    assert not group_is_alive(server.group)


def test_it_is_gone_with_its_children_when_the_process_that_started_it_is_killed(serve, tmp_path):
    code = """
import sys
from pathlib import Path
from papergym.model.generation.vllm_server import vllm_server
with vllm_server("m", log=Path(sys.argv[1]), python=sys.argv[2], environment={"MODE": "works"}) as server:
    print(server.group, flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "log"), str(tmp_path / "python")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        group = parent.stdout.readline().strip()
        assert group_is_alive(group)
        parent.kill()
    wait_until(lambda: not group_is_alive(group))


def wait_until(true, seconds=30):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_adapter_that_the_server_refuses_is_said(serve):
    with serve("works") as server, pytest.raises(InputError, match=r"some/adapter: the vLLM server can't load this adapter"):
        server.load_adapter("mine", "some/adapter")


def test_a_server_that_dies_is_shown_with_the_end_of_its_log(serve):
    with (
        pytest.raises(InputError, match=r"ended with code 1 before it was ready; the end of .*server\.log:\n(.|\n)*no such model"),
        serve("dies"),
    ):
        pytest.fail("it is not ready")


def test_a_server_that_is_never_ready_is_given_up(serve):
    started = time.monotonic()
    with pytest.raises(InputError, match=r"not ready within 0\.5 s"), serve("hangs", start_timeout=0.5):
        pytest.fail("it is not ready")
    assert time.monotonic() - started < 30
    assert os.environ.get("MODE") is None
