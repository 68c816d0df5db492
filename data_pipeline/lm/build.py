"""A build by language models: papers read, and made environments of."""

import asyncio
from pathlib import Path

from papergym.data_pipeline.build import assemble, read_paper
from papergym.data_pipeline.ledger import Job
from papergym.data_pipeline.lm.replies import Rejected
from papergym.data_pipeline.lm.route import Account, Models, make
from papergym.data_pipeline.lm.run import ModelRun
from papergym.data_pipeline.prompts import PROMPTS
from papergym.environment import Environment

_BENCHMARKS = {"none": None, "innov": "PaperGym-Innov", "design": "PaperGym-Design"}


class ModelBuild(ModelRun[Job]):
    """What a recipe makes of papers."""

    def __init__(self, recipe: str | Path, out: Path, domain: str | None, created: str | None, max_cost: float | None):
        super().__init__(recipe, out.with_name(f"{out.stem}.replies.sqlite"), f"{domain} {created}", max_cost)
        self._domain, self._created = domain, created

    async def _environment(self, job: Job, models: Models, account: Account) -> Environment:
        try:
            source = await asyncio.to_thread(read_paper, job.path, self._domain)
        except (ValueError, OSError) as error:
            raise Rejected(str(error)) from error
        recipe = self._recipe
        made = await make(source.paper, recipe, models, account)
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
            more=self._provenance(made.rubric, account),
        )
