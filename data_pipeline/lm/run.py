"""A recipe's language models at work on many jobs at once, within a budget: papers of a build, environments of a benchmark."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from papergym.data_pipeline.lm.criteria import Voted
from papergym.data_pipeline.lm.recipe import Recipe, load_recipe
from papergym.data_pipeline.lm.replies import Rejected
from papergym.data_pipeline.lm.route import Account, Models, open_models
from papergym.data_pipeline.lm.tasks import together
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.model.generation.chat_session import Budget, BudgetSpent
from papergym.model.generation.event_loop import run_to_end
from papergym.model.generation.reply_cache import Replies
from papergym.progress import Bar

J = TypeVar("J")


class Outcomes(Protocol[J]):
    """The jobs and what became of each, on disk as soon as it is known."""

    def to_do(self) -> Iterator[J]:
        """Those that have no outcome yet."""
        ...

    def made(self, job: J, environment: Environment, account: Mapping[str, Any]) -> None: ...

    def rejected(self, job: J, reason: str, account: Mapping[str, Any]) -> None: ...


class Notes(Protocol):
    """What shows a short text beside a count: a Bar."""

    def note(self, text: str) -> None: ...


class ModelRun(ABC, Generic[J]):
    """What a recipe makes of jobs. fingerprint: of all that decides what the environments are; asked: requests that were sent.

    cache: the file for the replies, where the recipe names none. made_with: what decides beside the recipe.
    """

    def __init__(self, recipe: str | Path, cache: Path, made_with: str, max_cost: float | None):
        self._recipe = load_recipe(recipe)
        self._cache = self._recipe.cache or str(cache)
        uses = (self._recipe.extractor, *self._recipe.proposers, self._recipe.merger)
        if max_cost is not None and (unpriced := [use.name for use in uses if use.prices is None]):
            raise InputError(
                f"max_cost {max_cost:g}: {recipe} names no prices for {unpriced[0]!r}, so that nothing tells what is spent; give its "
                "table prices = { input = …, output = … }, of a million tokens"
            )
        self._priced = any(use.prices for use in uses)
        self._budget = Budget(max_cost)
        self.fingerprint = hashlib.sha256(f"{self._recipe.fingerprint()} {made_with}".encode()).hexdigest()[:16]
        self.asked = self._from_cache = 0

    @abstractmethod
    async def _environment(self, job: J, models: Models, account: Account) -> Environment:
        """What becomes of a job. Raises Rejected with the reason when nothing does."""

    @property
    def recipe(self) -> Recipe:
        return self._recipe

    @property
    def budget(self) -> Budget:
        """Of this call."""
        return self._budget

    def __getstate__(self) -> dict[str, Any]:
        """All but the budget: a copy in another process begins with `join`."""
        return self.__dict__ | {"_budget": None}

    def join(self, budget: Budget, open_replies: Callable[[str], Replies]) -> AbstractAsyncContextManager[Models]:
        """The models of a copy in another process, paid from `budget`; what open_replies makes of a file's name keeps the replies."""
        self._budget = budget
        return open_models(self._recipe, budget, self._cache, open_replies)

    def run(self, outcomes: Outcomes[J], bar: Bar) -> None:
        """Gives every job its outcome, as far as the budget reaches. Raises InputError when a model can't be reached."""
        run_to_end(self._run(outcomes, bar))

    async def _run(self, outcomes: Outcomes[J], bar: Bar) -> None:
        jobs = outcomes.to_do()  # shared by the workers
        async with open_models(self._recipe, self._budget, self._cache) as models:

            async def work() -> None:
                for job in jobs:
                    try:
                        await self.one(outcomes, bar, job, models)
                    except BudgetSpent:
                        return

            try:
                await together(work() for _ in range(self._recipe.papers_at_once))
            finally:
                self.count(models.asked, models.from_cache)

    def count(self, asked: int, from_cache: int, spent: float = 0.0) -> None:
        """Adds to what the report says was done now. spent: from another budget than this one's."""
        self.asked += asked
        self._from_cache += from_cache
        self._budget.spent += spent

    def spending(self, asked: int) -> str:
        """A note for a progress bar."""
        return f"{asked} requests" + (f", cost {self._budget.spent:.4g}" if self._priced else "")

    async def one(self, outcomes: Outcomes[J], bar: Notes, job: J, models: Models) -> None:
        """Gives a job its outcome. Raises BudgetSpent, and InputError when a model can't be reached."""
        account = Account()
        outcome: Environment | str
        try:
            outcome = await self._environment(job, models, account)
        except Rejected as error:
            outcome = str(error)
        bar.note(self.spending(models.asked))
        if isinstance(outcome, Environment):
            outcomes.made(job, outcome, account.record())
        else:
            outcomes.rejected(job, outcome, account.record())

    def _provenance(self, rubric: Sequence[Voted], account: Account) -> dict[str, Any]:
        """Who proposed the criteria, who merged them, how many proposed each, and what it took."""
        return {
            "rubric_models": [use.name for use in self._recipe.proposers],
            "merger": self._recipe.merger.name,
            "votes": [voted.votes for voted in rubric],
            "account": account.record(),
        }

    def report(self, accounts: Iterable[Mapping[str, Any]]) -> str:
        """What was asked now, and what all jobs took, whenever it was asked; sentences only where some were copied."""
        total: Counter[str] = Counter()
        for account in accounts:
            for part in ("sentences", "criteria", "took"):
                total.update({f"{part} {name}": value for name, value in account[part].items()})
            total["reference"] += account["reference_sentences_dropped"]
        money = f" for {total['took cost']:.4g}, {self._budget.spent:.4g} of it now" if self._priced else ""
        lines = [
            f"requests: {self.asked} sent, {self._from_cache} answered from {self._cache}; all together took "
            f"{total['took requests']}, {total['took prompt_tokens']} tokens in and {total['took completion_tokens']} out{money}"
        ]
        if any(count for name, count in total.items() if name.startswith("sentences ")):
            lines.append(
                f"sentences: {total['sentences copied']} copied, dropped {total['sentences unfaithful']} that are not in their section, "
                f"{total['sentences results']} outcomes, {total['sentences crossing']} that cross, {total['reference']} of references"
            )
        lines.append(
            f"criteria: {total['criteria proposed']} proposed, {total['criteria faulty']} faulty, {total['criteria doubles']} doubles"
        )
        return "\n".join(lines)
