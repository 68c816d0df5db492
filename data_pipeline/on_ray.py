"""A build on Ray Data: the same stages over the processes of one machine or several, and the same files in the end.

The process that was started reads which papers are to be done, hands them out one a task, and keeps every outcome in its journal as soon
as it comes. An actor beside it (_Till) counts the attempts at each paper and, with language models, holds the replies and the budget, so
that no request is paid for twice and the bound holds whichever worker asks. Every machine must have papergym, and see the papers under the
same path.
"""

import asyncio
import logging
import os
import platform
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from papergym.data_pipeline.build import RuleBuild
from papergym.data_pipeline.ledger import Job, Ledger, made_record, rejected_record
from papergym.data_pipeline.lm.build import ModelBuild
from papergym.data_pipeline.lm.route import Models
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.model.generation.chat_session import Budget, BudgetSpent
from papergym.model.generation.reply_cache import ReplyCache
from papergym.progress import Bar

try:
    import ray
    import ray.data
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    raise InputError("the engine 'ray' needs Ray Data: pip install 'ray[data]'") from error

ATTEMPTS = 3  # at a paper whose worker died
ANSWER_SECONDS = 10.0  # that a cluster may take to accept a connection
Row = dict[str, Any]


def run_on_ray(build: RuleBuild | ModelBuild, workers: int | None, ledger: Ledger, bar: Bar) -> None:
    """Gives every paper its outcome, as far as the budget reaches. One whose worker dies at every attempt is rejected.

    workers: processes; by default one a CPU, and with language models one a machine, or one a GPU where a model runs in the process.
    Joins the Ray that runs, else the cluster that Ray itself finds, else begins one on this machine.
    Raises InputError as the build in one process does, and when a machine does not see a paper as this one does.
    """
    with _cluster():
        jobs = {job.index: job for job in ledger.to_do()}
        if not jobs:
            return
        limit = build.budget.limit if isinstance(build, ModelBuild) else None
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        till = ray.remote(_Till).options(num_cpus=0, scheduling_strategy=here).remote(limit, os.getcwd())
        shared = {"till": till, "folder": os.getcwd()}
        papers = ray.data.from_items([_row_of(job) for job in jobs.values()], override_num_blocks=len(jobs))
        papers.context.enable_progress_bars = False
        if isinstance(build, RuleBuild):
            compute = ray.data.TaskPoolStrategy(size=workers)
            options: dict[str, Any] = {"options": build.options, **shared}
            outcomes = papers.map(_by_rules, fn_kwargs=options, compute=compute, num_cpus=1)  # type: ignore[arg-type]
        else:
            outcomes = _by_models(papers, build, min(len(jobs), workers or _seats(build)), {"limit": limit, **shared})
        for table in outcomes.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for row in table.to_pylist():  # type: ignore[union-attr]
                if isinstance(build, ModelBuild):
                    build.count(row["asked"], row["from_cache"], row["spent"])
                    bar.note(build.spending(build.asked))
                if row["stop"]:
                    raise InputError(row["stop"])
                if row["record"]:
                    ledger.keep(jobs[row["index"]], orjson.loads(row["record"]))


@contextmanager
def _cluster() -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    _check_that_it_answers(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise InputError(f"no Ray cluster answers ({error}); start one, or unset RAY_ADDRESS to use this machine alone") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield
    finally:
        ray.shutdown()


def _check_that_it_answers(address: str) -> None:
    """Ray itself would wait for a cluster at an address, host:port, for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:  # "auto", "local" or a scheme of Ray's own
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"no Ray cluster answers at RAY_ADDRESS {address} ({error}); start one there, or unset it to use this machine alone"
        ) from error


def _row_of(job: Job) -> Row:
    return {"index": job.index, "path": os.fsencode(job.path), "digest": job.digest, "key": job.key}


def _job(row: Row, folder: str) -> Job:
    """The paper of a row. Raises InputError when this machine sees another one under its path."""
    job = Job(row["index"], Path(os.fsdecode(row["path"])), row["digest"], row["key"])
    problem = "its files are others"
    try:
        if not job.path.is_absolute():
            os.chdir(folder)
        if Job.read(job.index, job.path) == job:
            return job
    except (ValueError, OSError) as error:
        problem = str(error)
    raise InputError(
        f"{job.name}: {platform.node()} does not see it as the machine that hands it out ({problem}); give every machine the same files "
        "under the same path, and change none while they are read"
    )


def _row(index: int, **said: Any) -> Row:
    """What goes back. record: the outcome, for the journal, nothing for a paper that is left over; stop: why the build can't go on."""
    return {"index": index, "record": b"", "stop": "", "asked": 0, "from_cache": 0, "spent": 0.0} | said


_GIVEN_UP = orjson.dumps(rejected_record(f"the process that worked on it died, {ATTEMPTS} times; Ray's log says of what"))


def _by_rules(row: Row, options: tuple[str, str | None, str | None], till: Any, folder: str) -> Row:
    if ray.get(till.attempt.remote(row["index"])) > ATTEMPTS:
        return _row(row["index"], record=_GIVEN_UP)
    try:
        return _row(row["index"], record=orjson.dumps(RuleBuild(*options).outcome(_job(row, folder))))
    except InputError as error:
        return _row(row["index"], stop=str(error))


def _gpus(build: ModelBuild) -> int:
    """GPUs of the cluster, if a model of the recipe runs in the worker's own process."""
    uses = (build.recipe.extractor, *build.recipe.proposers, build.recipe.merger)
    return int(ray.cluster_resources().get("GPU", 0)) if any(use.model["kind"] in ("vllm", "torch") for use in uses) else 0


def _seats(build: ModelBuild) -> int:
    """One worker a GPU, or one a machine."""
    return _gpus(build) or sum(node["Alive"] for node in ray.nodes())


def _by_models(papers: Any, build: ModelBuild, workers: int, shared: dict[str, Any]) -> Any:
    at_once = build.recipe.papers_at_once
    compute = ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=at_once, max_concurrent_calls_per_actor=at_once)
    gpus = 1 if _gpus(build) else 0
    return papers.map(_ModelWorker, fn_constructor_kwargs={"build": build, **shared}, compute=compute, num_cpus=1, num_gpus=gpus)


class _ModelWorker:
    """One process with the models of a recipe. Ray Data calls it from many tasks of one event loop."""

    def __init__(self, build: ModelBuild, till: Any, limit: float | None, folder: str):
        self._build, self._till, self._folder = build, till, folder
        self._budget = _SharedBudget(till, limit)
        self._opening: asyncio.Future[Models] | None = None
        self._stack = AsyncExitStack()
        self._told = (0, 0, 0.0)
        self._at_work = 0  # papers

    async def __call__(self, row: Row) -> Row:
        self._at_work += 1
        said = await self._work_on(row)
        self._at_work -= 1
        models = self._opening.result() if self._opening and self._opening.done() and not self._opening.exception() else None
        if models is None:
            return said
        if not self._at_work and not said["stop"]:
            await models.idle()  # a process without a paper may be ended, and what was paid for must be kept
        return said | self._news(models)

    async def _work_on(self, row: Row) -> Row:
        attempt = await self._till.attempt.remote(row["index"])
        if attempt > ATTEMPTS:
            return _row(row["index"], record=_GIVEN_UP)
        said: Row = {}
        try:
            job = await asyncio.to_thread(_job, row, self._folder)
            if attempt > 1 and self._budget.limit is not None:
                raise InputError(f"{job.name}: its worker died, and what that had reserved of the budget with it; run again to go on")
            if self._opening is None:
                models = self._build.join(self._budget, partial(_SharedReplies, self._till))
                self._opening = asyncio.ensure_future(self._stack.enter_async_context(models))
            outcome = _Outcome()
            await self._build.one(outcome, outcome, job, await self._opening)
            said["record"] = orjson.dumps(outcome.record)
        except BudgetSpent:
            pass  # the paper is left over
        except InputError as error:
            said["stop"] = str(error)
        return _row(row["index"], **said)

    def _news(self, models: Models) -> Row:
        """What was asked since the last time."""
        now = models.asked, models.from_cache, self._budget.spent
        news = [new - old for new, old in zip(now, self._told, strict=True)]
        self._told = now
        return dict(zip(("asked", "from_cache", "spent"), news, strict=True))


class _Outcome:
    """The outcome of the one paper at hand, and of its progress bar nothing."""

    record: dict[str, Any]

    def made(self, job: Job, environment: Environment, account: Mapping[str, Any]) -> None:
        self.record = made_record(environment, account)

    def rejected(self, job: Job, reason: str, account: Mapping[str, Any]) -> None:
        self.record = rejected_record(reason, account)

    def note(self, text: str) -> None:
        pass


class _Till:
    """An actor on the machine where the build was started: what the workers share. Ray tries a paper whose worker died again for ever."""

    def __init__(self, limit: float | None, folder: str):
        self._budget, self._folder = Budget(limit), folder
        self._files: dict[str, ReplyCache] = {}
        self._reserved: dict[int, tuple[AsyncExitStack, Callable[[float], None]]] = {}
        self._number = 0
        self._attempts: Counter[int] = Counter()

    async def attempt(self, index: int) -> int:
        """Counts that work on a paper begins."""
        self._attempts[index] += 1
        return self._attempts[index]

    async def get(self, path: str, request: bytes) -> bytes | None:
        return self._file(path).get(request)

    async def put(self, path: str, request: bytes, reply: bytes) -> None:
        self._file(path).put(request, reply)

    def _file(self, path: str) -> ReplyCache:
        if path not in self._files:
            self._files[path] = ReplyCache(os.path.join(self._folder, path))
        return self._files[path]

    async def reserve(self, most: float) -> int | str:
        """A number to settle with, or why the budget does not reach."""
        stack = AsyncExitStack()
        try:
            pay = await stack.enter_async_context(self._budget.reserve(most))
        except BudgetSpent as error:
            return str(error)
        self._number += 1
        self._reserved[self._number] = stack, pay
        return self._number

    async def settle(self, number: int, cost: float) -> None:
        stack, pay = self._reserved.pop(number)
        pay(cost)
        await stack.aclose()


class _SharedReplies:
    """Replies in the till."""

    def __init__(self, till: Any, path: str):
        self._till, self._path = till, path

    def get(self, request: bytes) -> bytes | None:
        return ray.get(self._till.get.remote(self._path, request))

    def put(self, request: bytes, reply: bytes) -> None:
        ray.get(self._till.put.remote(self._path, request, reply))


class _SharedBudget(Budget):
    """The till's budget. spent: by this process."""

    def __init__(self, till: Any, limit: float | None):
        super().__init__(limit)
        self._till = till

    @asynccontextmanager
    async def reserve(self, most: float) -> AsyncIterator[Callable[[float], None]]:
        if self.limit is None:
            yield self._pay
            return
        number = await self._till.reserve.remote(most)
        if isinstance(number, str):
            raise BudgetSpent(number)
        paid: list[float] = []
        try:
            yield paid.append
        finally:
            self.spent += sum(paid)
            await self._till.settle.remote(number, sum(paid))
