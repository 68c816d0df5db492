"""A model server on 127.0.0.1 that answers chat requests as a test tells it to, or misbehaves."""

import json
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


@dataclass(frozen=True)
class Misbehaviour:
    """A reply as bytes. cut: the connection closes before the length that was announced; hang: nothing comes until the server stops."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=dict)
    cut: bool = False
    hang: bool = False


PROBLEMS = {
    "busy": Misbehaviour(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "0.02"}),
    "broken": Misbehaviour(500, b"Internal Server Error"),
    "hang": Misbehaviour(hang=True),
    "cut": Misbehaviour(body=b'{"choices": [{"index": 0, "message": {"content": "{\\"verdicts\\": [', cut=True),
    "junk": Misbehaviour(body=b"<html>Bad gateway</html>"),
    "truncated": Misbehaviour(body=b'{"choices": [{"index": 0, "mess'),
    "wrong shape": Misbehaviour(body=b'{"choices": [{"index": 0, "message": {"content": 7}}]}'),
    "nothing": Misbehaviour(body=b""),
    "no choices": Misbehaviour(body=b'{"choices": []}'),
}


def completion(texts, top_logprobs=None, usage=None):
    """The JSON of a chat completion. texts: one string for each of its choices; top_logprobs: of the first token, {text: nats}."""
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} for index, text in enumerate(texts)
    ]
    if top_logprobs is not None:
        entries = [{"token": token, "logprob": value} for token, value in top_logprobs.items()]
        for choice in choices:
            choice["logprobs"] = {"content": [{"token": entries[0]["token"], "logprob": 0.0, "top_logprobs": entries}]}
    return {"id": "1", "object": "chat.completion", "choices": choices, "usage": usage or {"prompt_tokens": 10, "completion_tokens": 2}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # connections made at once; those beyond it would wait a second

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # a client that was killed
            super().handle_error(request, client_address)


class ScriptedServer:
    """answer(body) gives a text, the JSON of a completion, or a Misbehaviour; requests holds every body that came, in order."""

    Misbehaviour, completion = Misbehaviour, staticmethod(completion)
    problems: ClassVar = PROBLEMS

    def __init__(self):
        self.answer = lambda body: "ok"
        self.requests = []
        self.headers = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def misbehave_first(self, problems, answer):
        """Each distinct request meets the problems in turn, then its answer."""
        seen = {}

        def next_answer(body):
            key = json.dumps(body, sort_keys=True)
            with self._lock:
                count = seen[key] = seen.get(key, -1) + 1
            return problems[count] if count < len(problems) else answer(body)

        self.answer = next_answer

    def stop(self):
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(scripted):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one packet: a second one would wait for the first's acknowledgement

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with scripted._lock:
                    scripted.requests.append(body)
                    scripted.headers.append(dict(self.headers))
                    scripted._at_once += 1
                    scripted.most_at_once = max(scripted.most_at_once, scripted._at_once)
                try:
                    reply = scripted.answer(body)
                finally:
                    with scripted._lock:  # before the reply, on which the next request may follow
                        scripted._at_once -= 1
                self._reply(body, reply)

            def _reply(self, body, reply):
                if isinstance(reply, str):
                    reply = completion([reply] * body.get("n", 1))
                if not isinstance(reply, Misbehaviour):
                    reply = Misbehaviour(body=json.dumps(reply).encode())
                if reply.hang:
                    scripted._stopped.wait(30)
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body) + 100 * reply.cut))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = reply.cut

            def log_message(self, *_):
                pass

        return Handler
