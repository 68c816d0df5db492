"""Requests from many tasks: asked once, kept, counted, and bounded by a budget that is never exceeded."""

import asyncio
import threading

import pytest

from papergym.errors import InputError
from papergym.model.generation.chat_models import ChatReply, ChatRequest, ChatText, Usage
from papergym.model.generation.chat_session import Asker, Budget, BudgetSpent, Prices, Tally, connect


def ask(text, tokens=8):
    return ChatRequest([{"role": "user", "content": text}], tokens)


class Parrot:
    """A model in this process that is slow, and notes what it is given at a time."""

    def __init__(self, failing=()):
        self.usage, self.batches, self.failing, self.threads = Usage(), [], failing, set()

    def complete(self, requests):
        texts = [request.messages[0]["content"] for request in requests]
        self.batches.append(texts)
        self.threads.add(threading.get_ident())
        if set(texts) & set(self.failing):
            raise InputError("it broke")
        return [ChatReply((), refused="no") if "refuse" in text else ChatReply((ChatText(text, "stop"),), 10, 0, 2) for text in texts]


def through(model, use, cache=None, prices=None, budget=None):
    """Runs use(asker, tally) on a model that takes batches."""

    async def work():
        connection = connect(model, {"kind": "parrot"}, cache)
        async with connection.connected() as send:
            return await use(Asker(connection.known, send, prices or Prices(), budget or Budget()), Tally())

    return asyncio.run(work())


def test_prices_by_hand():
    prices = Prices(input=2.0, output=10.0, cached_input=0.5)
    reply = ChatReply((ChatText("x", "stop"),), 1000, 400, 50)
    assert prices.of(ask("q"), reply) == pytest.approx((600 * 2.0 + 400 * 0.5 + 50 * 10.0) / 1e6)
    assert Prices(2.0, 10.0).of(ask("q"), reply) == pytest.approx((1000 * 2.0 + 50 * 10.0) / 1e6)
    assert prices.at_most(ask("é", 100)) == pytest.approx(((2 + 32) * 2.0 + 100 * 10.0) / 1e6)
    silent = ChatReply((ChatText("x", "stop"),))  # a server that does not say what it took
    assert prices.of(ask("é", 100), silent) == prices.at_most(ask("é", 100))
    assert prices.of(ask("q"), ChatReply((), refused="no")) == 0.0
    with pytest.raises(InputError, match="output -1"):
        Prices(output=-1.0)


def test_batches_gather_equal_requests_go_once_and_a_second_run_asks_nothing(tmp_path):
    cache, model = str(tmp_path / "replies"), Parrot()

    async def use(asker, tally):
        texts = [f"{number % 40}" for number in range(80)] + ["refuse"]
        replies = await asyncio.gather(*(asker.ask(ask(text), tally) for text in texts))
        assert [reply.texts[0].text for reply in replies[:-1]] == texts[:-1] and replies[-1].refused == "no"
        return asker.asked, asker.from_cache, tally

    asked, from_cache, tally = through(model, use, cache)
    assert (asked, from_cache) == (41, 0) and sorted(text for batch in model.batches for text in batch) == sorted(
        {*map(str, range(40)), "refuse"}
    )
    assert len(model.batches) <= 3 and max(map(len, model.batches)) == 32
    assert threading.get_ident() not in model.threads  # the loop goes on while it answers
    again = Parrot()
    asked, from_cache, second = through(again, use, cache)
    assert (asked, from_cache) == (1, 80) and again.batches == [["refuse"]]  # a refusal isn't kept
    assert second == tally and tally.requests == 81 and tally.prompt_tokens == 800


def test_a_model_that_breaks_tells_those_who_asked_and_goes_on():
    async def use(asker, tally):
        first = await asyncio.gather(*(asker.ask(ask(text), tally) for text in ("a", "bad")), return_exceptions=True)
        assert all(isinstance(error, InputError) for error in first)
        return (await asker.ask(ask("c"), tally)).texts[0].text

    assert through(Parrot(failing={"bad"}), use) == "c"


def test_a_budget_lets_through_what_it_can_pay_at_worst_and_waits_for_the_rest():
    prices = Prices(input=0.0, output=1e6)  # 1 a token: at most 8 a request, 2 in truth
    budget, model = Budget(21.0), Parrot()

    async def use(asker, tally):
        results = await asyncio.gather(*(asker.ask(ask(f"{number}"), tally) for number in range(20)), return_exceptions=True)
        return [isinstance(result, BudgetSpent) for result in results], tally.cost

    spent, cost = through(model, use, prices=prices, budget=budget)
    assert spent.count(False) == 7 and cost == budget.spent == 14.0  # one more could have made it 22
    assert all(len(batch) <= 2 for batch in model.batches)


def test_what_is_known_needs_no_budget(tmp_path):
    cache = str(tmp_path / "replies")

    async def use(asker, tally):
        return (await asker.ask(ask("a"), tally)).from_cache, tally.cost

    prices = Prices(output=1e6)
    assert through(Parrot(), use, cache, prices) == (False, 2.0)
    assert through(Parrot(), use, cache, prices, Budget(0.0)) == (True, 2.0)
    with pytest.raises(BudgetSpent, match="0 of 0 are spent"):
        through(Parrot(), use, None, prices, Budget(0.0))


def test_a_task_that_is_stopped_loses_no_reply(tmp_path):
    """What is paid for is kept, whoever stopped waiting for it."""
    release, cache = threading.Event(), str(tmp_path / "replies")

    class Slow(Parrot):
        def complete(self, requests):
            release.wait(10)
            return super().complete(requests)

    async def use(asker, tally):
        task = asyncio.create_task(asker.ask(ask("a"), tally))
        await asyncio.sleep(0.05)
        task.cancel()
        release.set()
        await asyncio.sleep(0.1)
        return task.cancelled(), (await asker.ask(ask("a"), tally)).from_cache

    assert through(Slow(), use, cache) == (True, True)
