"""JSON over HTTP to a model server that may be busy, slow or broken: many calls at once, time-outs, retries with back-off, a cache."""

import asyncio
import email.utils
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache

try:
    import httpx2
except ModuleNotFoundError as error:
    raise InputError("talking to a model server needs httpx2: pip install 'papergym[http]'") from error

T = TypeVar("T")
Read = Callable[[Mapping[str, Any], Any], T]
_RETRIED = frozenset({408, 409, 425, 429})  # and everything from 500
# What servers say about a request that only its own content makes impossible: OpenAI's and Azure's codes, vLLM's sentence.
_REFUSALS = ("context_length_exceeded", "content_filter", "maximum context length")


@dataclass(frozen=True)
class Refusal:
    """Why a server will not answer one request, while it answers others: it is too long, or a content filter stopped it."""

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
        if not self.url.startswith(("http://", "https://")):
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
    """An attempt that brought nothing; another may. wait: seconds that the server asks for."""

    def __init__(self, problem: str, wait: float = 0.0):
        super().__init__(problem)
        self.wait = wait


class HttpClient:
    """Posts JSON bodies and returns what could be read from the replies. failed_attempts counts those that brought nothing."""

    def __init__(self, endpoint: Endpoint):
        self._endpoint = endpoint
        self._url = endpoint.url.rstrip("/")
        self._cache = ReplyCache(endpoint.cache) if endpoint.cache is not None else None
        self._headers = {"Content-Type": "application/json"}
        if endpoint.api_key_variable is not None:
            self._headers["Authorization"] = f"Bearer {os.environ[endpoint.api_key_variable]}"
        self.failed_attempts = 0

    def post_all(self, path: str, bodies: Sequence[Mapping[str, Any]], read: Read[T]) -> list[tuple[T | Refusal, bool]]:
        """Posts the bodies and returns for each, in order, what `read` made of the reply and whether it came from the cache.

        read(body, reply's JSON): raises LookupError, TypeError or ValueError when the reply is not of the shape that the body asks for;
        it is then asked for again, as are replies that are cut or no JSON. Raises InputError, after which nothing is left running, when a
        request stays without a usable reply after all attempts, and at once when the server refuses it in a way that will not change.
        """
        results: list[tuple[T | Refusal, bool] | None] = [None] * len(bodies)
        missing = []
        for index, body in enumerate(bodies):
            reply = self._cache.get(_request(path, body)) if self._cache is not None else None
            if reply is None:
                missing.append(index)
            else:
                results[index] = read(body, orjson.loads(reply)), True
        if missing:
            _run(self._post_missing(path, bodies, read, missing, results))
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
        count = min(self._endpoint.concurrency, len(missing))
        limits = httpx2.Limits(max_connections=count, max_keepalive_connections=count)

        async def work() -> None:
            for index in queue:
                value, reply = await self._post(http, path, bodies[index], read)
                if self._cache is not None and reply is not None:
                    self._cache.put(_request(path, bodies[index]), reply)
                results[index] = value, False

        try:
            async with (
                httpx2.AsyncClient(headers=self._headers, timeout=None, limits=limits) as http,
                asyncio.TaskGroup() as workers,
            ):
                for _ in range(count):
                    workers.create_task(work())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _post(self, http: httpx2.AsyncClient, path: str, body: Mapping[str, Any], read: Read[T]) -> tuple[T | Refusal, bytes | None]:
        """What was read and the reply's bytes, None for a refusal, which is not kept."""
        endpoint, problem = self._endpoint, ""
        for attempt in range(endpoint.attempts):
            try:
                return await self._attempt(http, self._url + path, body, read)
            except _Unusable as unusable:
                self.failed_attempts += 1
                problem = str(unusable)
                if unusable.wait > endpoint.timeout:
                    raise InputError(f"{self._url}: the server asks to wait {unusable.wait:.0f} s; run again later ({problem})") from None
                backoff = min(endpoint.longest_backoff, endpoint.backoff * 2**attempt) * random.uniform(0.5, 1.0)
                if attempt + 1 < endpoint.attempts:
                    await asyncio.sleep(max(unusable.wait, backoff))
        raise InputError(
            f"{self._url}: no usable reply in {endpoint.attempts} attempts, the last one: {problem}; "
            "see that the server is up and the address right, then run again"
        )

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
            raise _Unusable(status, _retry_after(response.headers.get("Retry-After")))
        if response.status_code in (400, 413, 422) and any(refusal in response.text for refusal in _REFUSALS):
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


def _run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine to its end, also where an event loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
