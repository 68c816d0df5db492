"""A build by language models: many papers at once, within a budget."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from papergym.data_pipeline.build import assemble, read_paper
from papergym.data_pipeline.ledger import Job, Ledger
from papergym.data_pipeline.lm.recipe import load_recipe
from papergym.data_pipeline.lm.replies import Rejected
from papergym.data_pipeline.lm.route import Account, Models, make, open_models
from papergym.data_pipeline.lm.tasks import together
from papergym.data_pipeline.prompts import PROMPTS
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.model.generation.chat_session import Budget, BudgetSpent
from papergym.model.generation.event_loop import run_to_end
from papergym.progress import Bar

_BENCHMARKS = {"none": None, "innov": "PaperGym-Innov", "design": "PaperGym-Design"}


class ModelBuild:
    """What a recipe makes of papers. fingerprint: of all that decides what the environments are."""

    def __init__(self, recipe: str | Path, out: Path, domain: str | None, created: str | None, max_cost: float | None):
        self._recipe = load_recipe(recipe)
        self._domain, self._created = domain, created
        self._cache = self._recipe.cache or str(out.with_name(f"{out.stem}.replies.sqlite"))
        uses = (self._recipe.extractor, *self._recipe.proposers, self._recipe.merger)
        if max_cost is not None and (unpriced := [use.name for use in uses if use.prices is None]):
            raise InputError(f"max_cost {max_cost:g}: {recipe} names no prices for {unpriced[0]!r}, so that nothing tells what is spent")
        self._priced = any(use.prices for use in uses)
        self._budget = Budget(max_cost)
        made_with = f"{self._recipe.fingerprint()} {domain} {created}"
        self.fingerprint = hashlib.sha256(made_with.encode()).hexdigest()[:16]
        self._asked = self._from_cache = 0

    def run(self, ledger: Ledger, bar: Bar) -> None:
        """Gives every paper its outcome, as far as the budget reaches. Raises InputError when a model can't be reached."""
        run_to_end(self._run(ledger, bar))

    async def _run(self, ledger: Ledger, bar: Bar) -> None:
        jobs = ledger.to_do()  # shared by the workers
        async with open_models(self._recipe, self._budget, self._cache) as models:

            async def work() -> None:
                for job in jobs:
                    try:
                        await self._one(ledger, bar, job, models)
                    except BudgetSpent:
                        return

            try:
                await together(work() for _ in range(self._recipe.papers_at_once))
            finally:
                self._asked, self._from_cache = models.asked, models.from_cache

    async def _one(self, ledger: Ledger, bar: Bar, job: Job, models: Models) -> None:
        account = Account()
        outcome: Environment | str
        try:
            outcome = await self._environment(job, models, account)
        except (Rejected, _Unreadable) as error:
            outcome = str(error)
        bar.note(f"{models.asked} requests" + (f", cost {self._budget.spent:.4g}" if self._priced else ""))
        if isinstance(outcome, Environment):
            ledger.made(job, outcome, account.record())
        else:
            ledger.rejected(job, outcome, account.record())

    async def _environment(self, job: Job, models: Models, account: Account) -> Environment:
        try:
            source = await asyncio.to_thread(read_paper, job.path, self._domain)
        except (ValueError, OSError) as error:
            raise _Unreadable(str(error)) from error
        recipe = self._recipe
        made = await make(source.paper, recipe, models, account)
        more = {
            "rubric_models": [use.name for use in recipe.proposers],
            "merger": recipe.merger.name,
            "votes": [voted.votes for voted in made.rubric],
            "account": account.record(),
        }
        return assemble(
            job.path,
            job.digest,
            source,
            made.question,
            made.reference,
            tuple(voted.criterion for voted in made.rubric),
            made.stages,
            model=recipe.extractor.name,
            prompts=PROMPTS.digest,
            created=self._created,
            benchmark=_BENCHMARKS[recipe.benchmark],
            more=more,
        )

    def report(self, accounts: Iterable[Mapping[str, Any]]) -> str:
        """What was asked now, and what all papers took, whenever it was asked."""
        total: Counter[str] = Counter()
        for account in accounts:
            for part in ("sentences", "criteria", "took"):
                total.update({f"{part} {name}": value for name, value in account[part].items()})
            total["reference"] += account["reference_sentences_dropped"]
        money = f" for {total['took cost']:.4g}, {self._budget.spent:.4g} of it now" if self._priced else ""
        return "\n".join(
            (
                f"requests: {self._asked} sent, {self._from_cache} answered from {self._cache}; all papers together took "
                f"{total['took requests']}, {total['took prompt_tokens']} tokens in and {total['took completion_tokens']} out{money}",
                f"sentences: {total['sentences copied']} copied, dropped {total['sentences unfaithful']} that are not in their section, "
                f"{total['sentences results']} outcomes, {total['sentences crossing']} that cross, {total['reference']} of references",
                f"criteria: {total['criteria proposed']} proposed, {total['criteria faulty']} faulty, {total['criteria doubles']} doubles",
            )
        )


class _Unreadable(Exception):
    """What load_paper says of a paper."""
