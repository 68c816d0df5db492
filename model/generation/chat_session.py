"""Many chat requests at once, from as many tasks: each asked once, kept on disk, paid for by the token, and none beyond a budget."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson

from papergym.errors import InputError
from papergym.model.generation.chat_models import ChatModel, ChatReply, ChatRequest, ChatText
from papergym.model.generation.reply_cache import Replies, ReplyCache

Send = Callable[[ChatRequest], Awaitable[ChatReply]]
_MESSAGE_TOKENS = 32  # at most, that a chat template puts around a message
_BATCH = 32  # requests that a model in this process takes at a time: so many replies are lost when it is killed


@dataclass(frozen=True)
class Prices:
    """Money for a million tokens, in one currency for all models of a run. cached_input: for those that the server's prefix cache held."""

    input: float = 0.0
    output: float = 0.0
    cached_input: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not value >= 0:
                raise InputError(f"prices, {name} {value}: a number from 0 is needed")

    def of(self, request: ChatRequest, reply: ChatReply) -> float:
        """What a reply cost when it was asked for; the most it can have cost where the server does not say how many tokens it took."""
        if reply.texts and not reply.prompt_tokens and not reply.completion_tokens:
            return self.at_most(request)
        cached = min(reply.cached_tokens, reply.prompt_tokens) if self.cached_input is not None else 0
        prompt = (reply.prompt_tokens - cached) * self.input + cached * (self.cached_input or 0.0)
        return (prompt + reply.completion_tokens * self.output) / 1e6

    def at_most(self, request: ChatRequest) -> float:
        """What a request can cost: no tokenizer makes more tokens of a text than it has bytes."""
        prompt = sum(len(message["content"].encode()) + _MESSAGE_TOKENS for message in request.messages)
        return (prompt * max(self.input, self.cached_input or 0.0) + request.n * request.max_tokens * self.output) / 1e6


class BudgetSpent(Exception):
    """The budget doesn't reach for another request."""


class Budget:
    """Money that requests share. A request is let through once the most that it can cost is left, so spent never exceeds the limit."""

    def __init__(self, limit: float | None = None):
        self.limit, self.spent = limit, 0.0
        self._reserved: dict[object, float] = {}  # the most that each request under way can cost
        self._settled = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, most: float) -> AsyncIterator[Callable[[float], None]]:
        """Waits for room, and yields what is to be called with the true cost. Raises BudgetSpent when no room can come any more."""
        async with self._settled:
            while self.limit is not None and self.spent + sum(self._reserved.values()) + most > self.limit:
                if not self._reserved:
                    raise BudgetSpent(f"{self.spent:.4g} of {self.limit:g} are spent, and the next request may cost {most:.4g}")
                await self._settled.wait()
            self._reserved[request := object()] = most
        try:
            yield self._pay
        finally:
            async with self._settled:
                del self._reserved[request]
                self._settled.notify_all()

    def _pay(self, cost: float) -> None:
        self.spent += cost


@dataclass
class Tally:
    """What requests took, those answered from disk included at what they cost when they were asked: the same however often one stops."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def add(self, reply: ChatReply, cost: float) -> None:
        self.requests += 1
        self.prompt_tokens += reply.prompt_tokens
        self.completion_tokens += reply.completion_tokens
        self.cost += cost


class Asker:
    """Asks one model. Requests that are equal and under way at once are asked once; what is known on disk costs nothing."""

    def __init__(self, known: Callable[[ChatRequest], ChatReply | None], send: Send, prices: Prices, budget: Budget):
        self._known, self._send, self._prices, self._budget = known, send, prices, budget
        self._under_way: dict[bytes, asyncio.Task[ChatReply]] = {}
        self.asked = self.from_cache = 0

    async def ask(self, request: ChatRequest, tally: Tally) -> ChatReply:
        """The reply. Raises BudgetSpent, and InputError when the model can't be reached or refuses for good."""
        reply = self._known(request)
        if reply is not None:
            self.from_cache += 1
        else:
            key = orjson.dumps(asdict(request))
            if key not in self._under_way:
                self._under_way[key] = task = asyncio.create_task(self._pay_for(request))
                task.add_done_callback(lambda task: self._done(key, task))
            reply = await asyncio.shield(self._under_way[key])
        tally.add(reply, self._prices.of(request, reply))
        return reply

    def _done(self, key: bytes, task: "asyncio.Task[ChatReply]") -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # whoever waited has it; where nobody did, nobody is told

    async def idle(self) -> None:
        """Waits for what is under way, though nobody else may."""
        while self._under_way:
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def close(self) -> None:
        """Stops what nobody waits for any more."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pay_for(self, request: ChatRequest) -> ChatReply:
        async with self._budget.reserve(self._prices.at_most(request)) as pay:
            reply = await self._send(request)
            self.asked += 1
            pay(self._prices.of(request, reply))
        return reply


class Connection(Protocol):
    """A chat model that takes requests one by one, from many tasks."""

    def known(self, request: ChatRequest) -> ChatReply | None:
        """The reply on disk, None without one."""
        ...

    def connected(self) -> AbstractAsyncContextManager[Send]:
        """Yields what sends a request, and keeps the reply."""
        ...


def connect(
    model: ChatModel, spec: Mapping[str, Any], cache: str | None, open_replies: Callable[[str], Replies] = ReplyCache
) -> Connection:
    """The model itself if it takes requests one by one, else one that hands them on in batches and keeps the replies in `cache`.

    spec: what the model was opened with, by which its replies are known.
    """
    if hasattr(model, "connected"):
        return model  # type: ignore[return-value]
    return Batches(model, spec, open_replies(cache) if cache is not None else None)


class Batches:
    """A Connection to a model in this process: while it answers one batch, the next one gathers."""

    def __init__(self, model: ChatModel, spec: Mapping[str, Any], replies: Replies | None):
        self._model, self._spec, self._replies = model, dict(spec), replies

    def known(self, request: ChatRequest) -> ChatReply | None:
        reply = self._replies.get(self._key(request)) if self._replies is not None else None
        return None if reply is None else _reply(orjson.loads(reply))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Send]:
        queue: asyncio.Queue[tuple[ChatRequest, asyncio.Future[ChatReply]]] = asyncio.Queue()

        async def send(request: ChatRequest) -> ChatReply:
            future = asyncio.get_running_loop().create_future()
            queue.put_nowait((request, future))
            return await future

        worker = asyncio.create_task(self._work(queue))
        try:
            yield send
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    async def _work(self, queue: "asyncio.Queue[tuple[ChatRequest, asyncio.Future[ChatReply]]]") -> None:
        while True:
            batch = [await queue.get()]
            await asyncio.sleep(0.01)  # so that those which come together go together
            while len(batch) < _BATCH and not queue.empty():
                batch.append(queue.get_nowait())
            try:
                replies = await asyncio.to_thread(self._model.complete, [request for request, _ in batch])
            except Exception as error:  # it is the askers' to handle
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (request, future), reply in zip(batch, replies, strict=True):
                if self._replies is not None and reply.refused is None:
                    self._replies.put(self._key(request), orjson.dumps(asdict(reply)))
                if not future.done():
                    future.set_result(reply)

    def _key(self, request: ChatRequest) -> bytes:
        return orjson.dumps({"spec": self._spec, "request": asdict(request)}, option=orjson.OPT_SORT_KEYS)


def _reply(record: dict[str, Any]) -> ChatReply:
    texts = tuple(ChatText(**(text | {"top_logprobs": ()})) for text in record["texts"])
    return ChatReply(**(record | {"texts": texts, "from_cache": True}))
