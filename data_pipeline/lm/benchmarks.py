"""The benchmarks with criteria of their own: elicited anew from each one's question and reference, in its dimension alone (paper, D.3)."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from papergym.data_pipeline.benchmarks import BENCHMARKS, BenchmarkSummary, nothing, reject
from papergym.data_pipeline.journal import Journal
from papergym.data_pipeline.ledger import made_record, rejected_record
from papergym.data_pipeline.lm.route import Account, Models, elicit
from papergym.data_pipeline.lm.run import ModelRun
from papergym.data_pipeline.prompts import PROMPTS
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import atomic_write, json_line, write_jsonl
from papergym.progress import Bar, progress_bar


@dataclass(frozen=True)
class Job:
    """An environment in one of the benchmarks: posed is its question and reference there; without it, reason says why there are none."""

    environment: Environment
    benchmark: str
    posed: Environment | None = None
    reason: str = ""

    @property
    def key(self) -> str:
        """A digest of all that is in it."""
        return hashlib.sha256(json_line(self.posed.to_record())).hexdigest() if self.posed else ""


def elicit_benchmarks(environments: Sequence[Environment], out: Path, recipe: str | Path, max_cost: float | None) -> BenchmarkSummary:
    """write_benchmarks by the models of a recipe. What was done by then is kept when it raises, and is not asked again."""
    run = _Elicitation(recipe, out, max_cost)
    jobs = [_job(environment, name) for environment in environments for name in BENCHMARKS]
    with ExitStack() as stack:
        files = {name: stack.enter_context(atomic_write(out / f"{name}.jsonl")) for name in BENCHMARKS}
        bar = stack.enter_context(progress_bar("benchmarks", len(jobs)))
        journal = Journal(out / ".benchmarks.journal", run.fingerprint)
        finished = False
        try:
            outcomes = _Outcomes(jobs, journal, bar)
            run.run(outcomes, bar)
            rejects: list[dict[str, str]] = []
            accounts: list[Mapping[str, Any]] = []
            made = dict.fromkeys(BENCHMARKS, 0)
            for job, record in outcomes.all():
                if record["account"]:
                    accounts.append(record["account"])
                if "reason" in record:
                    rejects.append(reject(job.environment, job.benchmark, record["reason"]))
                else:
                    made[job.benchmark] += 1
                    files[job.benchmark].write(json_line(record["environment"]))
            left = len(jobs) - sum(made.values()) - len(rejects)
            finished = not left
            write_jsonl(out / "rejects.jsonl", rejects)
            if empty := [name for name, count in made.items() if not count]:
                raise InputError(
                    f"the budget was spent before an environment was in the benchmark {empty[0]}; run again with a higher one to go on"
                    if left
                    else nothing(empty[0], len(environments), rejects)
                )
        except BaseException:
            journal.close(finished=finished)
            raise
    journal.close(finished=finished)  # the benchmarks are in their place
    counts = {out / f"{name}.jsonl": count for name, count in made.items()} | {out / "rejects.jsonl": len(rejects)}
    return BenchmarkSummary(counts, left, run.report(accounts))


def _job(environment: Environment, benchmark: str) -> Job:
    try:
        return Job(environment, benchmark, BENCHMARKS[benchmark](environment))
    except InputError as error:
        return Job(environment, benchmark, reason=str(error))


class _Elicitation(ModelRun[Job]):
    def __init__(self, recipe: str | Path, out: Path, max_cost: float | None):
        super().__init__(recipe, out / "benchmarks.replies.sqlite", "benchmarks", max_cost)
        if self._recipe.benchmark != "none":
            raise InputError(f"{recipe}: benchmark {self._recipe.benchmark!r} is for builds; leave it out, both benchmarks are made")
        try:
            self._recipes = {name: replace(self._recipe, benchmark=name) for name in BENCHMARKS}
        except InputError as error:
            raise InputError(f"{recipe}: {error}") from error

    async def _environment(self, job: Job, models: Models, account: Account) -> Environment:
        posed = job.posed
        assert posed is not None and posed.reference is not None
        rubric = await elicit(posed.question, posed.reference, self._recipes[job.benchmark], models, account)
        provenance = {**posed.provenance, "prompts": PROMPTS.digest, **self._provenance(rubric, account)}
        return replace(posed, rubric=tuple(voted.criterion for voted in rubric), provenance=provenance)


class _Outcomes:
    """The jobs and what became of each, in a journal."""

    def __init__(self, jobs: Sequence[Job], journal: Journal, bar: Bar):
        self._jobs, self._journal, self._bar = jobs, journal, bar

    def to_do(self) -> Iterator[Job]:
        for job in self._jobs:
            if self._record(job) is None:
                yield job
            else:
                self._bar.skip()

    def made(self, job: Job, environment: Environment, account: Mapping[str, Any]) -> None:
        self._keep(job, made_record(environment, account))

    def rejected(self, job: Job, reason: str, account: Mapping[str, Any]) -> None:
        self._keep(job, rejected_record(reason, account))

    def all(self) -> Iterator[tuple[Job, dict[str, Any]]]:
        """The jobs that have an outcome, in order, each with its record."""
        for job in self._jobs:
            if (record := self._record(job)) is not None:
                yield job, record

    def _record(self, job: Job) -> dict[str, Any] | None:
        return rejected_record(job.reason) if job.posed is None else self._journal.get(job.posed.id, job.key)

    def _keep(self, job: Job, record: dict[str, Any]) -> None:
        self._journal.add(job.posed.id, job.key, record)
        self._bar.advance()
