"""JSON over HTTP to a model server that may be busy, slow or broken: many calls at once, time-outs, retries with back-off, a cache."""

import asyncio
import email.utils
import math
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from string import whitespace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson

from papergym.errors import InputError
from papergym.model.generation.event_loop import run_to_end
from papergym.model.generation.reply_cache import Replies, ReplyCache

try:
    import httpx2
except ModuleNotFoundError as error:
    raise InputError("talking to a model server needs httpx2: pip install httpx2") from error

T = TypeVar("T")
Read = Callable[[Mapping[str, Any], Any], T]
Post = Callable[[str, Mapping[str, Any], Read[Any]], Awaitable[Any]]
_RETRIED = frozenset({408, 409, 425, 429})  # and everything from 500
# What servers say about a request that only its own content makes impossible: OpenAI's and Azure's codes, vLLM's sentence.
_REFUSALS = ("context_length_exceeded", "content_filter", "maximum context length")


@dataclass(frozen=True)
class Refusal:
    """Why a server does not answer one request, while it answers others: too long, stopped by a content filter, or more than it can do."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where an OpenAI-compatible API is and how patiently it is asked.

    url: up to and with its /v1. api_key_variable: name of the environment variable that holds the key, never the key. timeout: seconds
    for one whole reply. attempts: tries of a request before the run stops. backoff: seconds before the second one, doubled each time
    up to longest_backoff; a server's Retry-After counts instead where it is longer. cache: a file that keeps every reply.
    """

    url: str
    api_key_variable: str | None = None
    concurrency: int = 32
    timeout: float = 600.0
    attempts: int = 6
    backoff: float = 1.0
    longest_backoff: float = 60.0
    cache: str | None = None

    def __post_init__(self) -> None:
        try:
            address = urlsplit(self.url)
            usable = address.scheme in ("http", "https") and address.hostname and address.port != 0 and not set(self.url) & set(whitespace)
        except ValueError:  # half an IPv6 address, or a port that is none
            usable = False
        if not usable:
            raise InputError(f"url {self.url!r}: an address like http://127.0.0.1:8000/v1 is needed")
        for name in ("concurrency", "attempts"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} {getattr(self, name)}: a number from 1 is needed")
        for name in ("timeout", "backoff", "longest_backoff"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} {getattr(self, name)}: a number of seconds above 0 is needed")
        if self.api_key_variable is not None and not os.environ.get(self.api_key_variable):
            raise InputError(f"api_key_variable {self.api_key_variable!r}: no environment variable of that name holds a key")


class _Unusable(Exception):
    """An attempt that brought nothing; another may. wait: seconds that the server asks for; busy: it only has too much to do."""

    def __init__(self, problem: str, wait: float = 0.0, busy: bool = False):
        super().__init__(problem)
        self.wait, self.busy = wait, busy


class HttpClient:
    """Posts JSON bodies and returns what could be read from the replies.

    replies: where they are kept, the endpoint's cache if nobody sets another; None keeps none. failed_attempts counts those that brought
    nothing.
    """

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self._url = endpoint.url.rstrip("/")
        self.replies: Replies | None = ReplyCache(endpoint.cache) if endpoint.cache is not None else None
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key_variable is not None:
            self._headers["Authorization"] = f"Bearer {os.environ[endpoint.api_key_variable]}"
        self._well_since = -math.inf  # when the latest request was sent that the server has answered, by time.monotonic
        self.failed_attempts = 0

    def known(self, path: str, body: Mapping[str, Any], read: Read[T]) -> T | None:
        """What `read` makes of the reply that the cache has, None without one."""
        reply = self.replies.get(_request(path, body)) if self.replies is not None else None
        return None if reply is None else read(body, orjson.loads(reply))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Post]:
        """Yields post(path, body, read): what `read` made of the server's reply, which the cache then has, or why it gives none.

        Any number of tasks may call it; no more requests than the endpoint's concurrency are under way at a time.
        read(body, reply's JSON): raises LookupError, TypeError or ValueError when the reply is not of the shape that the body asks for;
        it is then asked for again, as are replies that are cut or no JSON. A Refusal is what stays without a usable reply while the server
        answers other requests: then this one is at fault. Raises InputError when the server answers none, or refuses in a way that will
        not change.
        """
        limit = self._endpoint.concurrency
        slots = asyncio.Semaphore(limit)
        limits = httpx2.Limits(max_connections=limit, max_keepalive_connections=limit)
        async with httpx2.AsyncClient(headers=self._headers, timeout=None, limits=limits) as http:

            async def post(path: str, body: Mapping[str, Any], read: Read[T]) -> T | Refusal:
                async with slots:
                    value, reply = await self._post(http, path, body, read)
                if self.replies is not None and reply is not None:
                    self.replies.put(_request(path, body), reply)
                return value

            yield post

    def post_all(self, path: str, bodies: Sequence[Mapping[str, Any]], read: Read[T]) -> list[tuple[T | Refusal, bool]]:
        """Posts the bodies and returns for each, in order, what `connected` says of it and whether it came from the cache.

        Raises InputError as it does, after which nothing is left running.
        """
        known = [self.known(path, body, read) for body in bodies]
        results: list[tuple[T | Refusal, bool] | None] = [None if value is None else (value, True) for value in known]
        missing = [index for index, value in enumerate(known) if value is None]
        if missing:
            run_to_end(self._post_missing(path, bodies, read, missing, results))
        return results  # type: ignore[return-value]

    async def _post_missing(
        self,
        path: str,
        bodies: Sequence[Mapping[str, Any]],
        read: Read[T],
        missing: list[int],
        results: list[tuple[T | Refusal, bool] | None],
    ) -> None:
        queue = iter(missing)  # shared by the workers

        async def work(post: Post) -> None:
            for index in queue:
                results[index] = await post(path, bodies[index], read), False

        try:
            async with self.connected() as post, asyncio.TaskGroup() as workers:
                for _ in range(min(self._endpoint.concurrency, len(missing))):
                    workers.create_task(work(post))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _post(self, http: httpx2.AsyncClient, path: str, body: Mapping[str, Any], read: Read[T]) -> tuple[T | Refusal, bytes | None]:
        """What was read and the reply's bytes, None for a refusal, which is not kept."""
        endpoint, attempt, failed_at = self._endpoint, 0, time.monotonic()
        while True:
            sent_at = time.monotonic()
            try:
                value, reply = await self._attempt(http, self._url + path, body, read)
                if reply is not None:
                    self._well_since = max(self._well_since, sent_at)
                return value, reply
            except _Unusable as unusable:
                self.failed_attempts += 1
                problem = str(unusable)
                answers_others = self._well_since > failed_at  # what was sent after the last failure, when it may have died
                attempt += not (unusable.busy and answers_others)  # else it gets through the queue, if not yet to this request
                if unusable.wait > endpoint.timeout:
                    raise InputError(f"{self._url}: the server asks to wait {unusable.wait:.0f} s; run again later ({problem})") from None
                if attempt >= endpoint.attempts:
                    break
                failed_at = time.monotonic()
                backoff = min(endpoint.longest_backoff, endpoint.backoff * 2 ** max(0, attempt - 1)) * random.uniform(0.5, 1.0)
                await asyncio.sleep(max(unusable.wait, backoff))
        problem = f"no usable reply in {endpoint.attempts} attempts, the last one: {problem}"
        if answers_others:
            return Refusal(problem), None
        raise InputError(f"{self._url}: {problem}; see that the server is up and the address right, then run again")

    async def _attempt(
        self, http: httpx2.AsyncClient, url: str, body: Mapping[str, Any], read: Read[T]
    ) -> tuple[T | Refusal, bytes | None]:
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                response = await http.post(url, content=orjson.dumps(body))
        except TimeoutError:
            raise _Unusable(f"no whole reply within {self._endpoint.timeout:g} s") from None
        except httpx2.RequestError as error:
            raise _Unusable(f"{type(error).__name__} {error}".strip()) from error
        if response.is_success:
            try:
                return read(body, orjson.loads(response.content)), response.content
            except (LookupError, TypeError, ValueError) as error:
                raise _Unusable(f"a reply that can't be used ({type(error).__name__}: {error}): {_shown(response, 200)}") from error
        status = f"status {response.status_code}: {_shown(response, 300)}"
        if response.status_code in _RETRIED or response.status_code >= 500:
            raise _Unusable(status, _retry_after(response.headers.get("Retry-After")), response.status_code in (429, 503))
        # A server that has answered takes our form of request: what it calls a bad one is so by its content.
        if response.status_code in (400, 413, 422) and (self._well_since > 0 or any(refusal in response.text for refusal in _REFUSALS)):
            return Refusal(status), None
        raise InputError(f"{url}: the server refuses the request, {status}")


def _shown(response: httpx2.Response, length: int) -> str:
    """The beginning of what the server said, on one line."""
    return " ".join(response.text[: 4 * length].split())[:length] or "(empty)"


def _request(path: str, body: Mapping[str, Any]) -> bytes:
    """What the cache knows a request by."""
    return orjson.dumps({"path": path, "body": body}, option=orjson.OPT_SORT_KEYS)


def _retry_after(value: str | None) -> float:
    """Seconds that the header asks for: a number, or a date; 0 without one."""
    if value is None:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
