"""From a paper to what an environment is made of: stages, question and reference, rubric; and the models that do it, opened once."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from papergym.data_pipeline.extract import Extraction
from papergym.data_pipeline.latex import Paper
from papergym.data_pipeline.lm.compose import write_question, write_reference
from papergym.data_pipeline.lm.criteria import RubricCounts, Voted, merge, propose
from papergym.data_pipeline.lm.recipe import ModelUse, Recipe
from papergym.data_pipeline.lm.replies import Rejected, Voice
from papergym.data_pipeline.lm.stages import Counts, extract
from papergym.data_pipeline.lm.tasks import together
from papergym.environment import STAGES
from papergym.model.generation.chat_models import open_chat_model
from papergym.model.generation.chat_session import Asker, Budget, Prices, Tally, connect
from papergym.model.generation.reply_cache import Replies, ReplyCache


@dataclass(frozen=True)
class Made:
    """An environment's content."""

    question: str
    reference: str
    rubric: tuple[Voted, ...]
    stages: Extraction


@dataclass
class Account:
    """What happened on the way to an environment, or to its rejection."""

    sentences: Counts = field(default_factory=Counts)
    criteria: RubricCounts = field(default_factory=RubricCounts)
    reference_sentences_dropped: int = 0
    took: Tally = field(default_factory=Tally)

    def record(self) -> dict[str, Any]:
        return asdict(self)


class Models:
    """The models of a recipe, for any number of papers at once."""

    def __init__(self, recipe: Recipe, askers: Mapping[bytes, Asker]):
        self._recipe, self._askers = recipe, askers

    def voice(self, use: ModelUse, account: Account) -> Voice:
        return Voice(self._askers[_key(use)], use, self._recipe.retries, account.took)

    @property
    def asked(self) -> int:
        """Requests that were sent."""
        return sum(asker.asked for asker in self._askers.values())

    @property
    def from_cache(self) -> int:
        """Requests that were answered from disk."""
        return sum(asker.from_cache for asker in self._askers.values())

    async def idle(self) -> None:
        """Waits for the requests that are under way: of papers that were given up, there may be some."""
        for asker in self._askers.values():
            await asker.idle()


@asynccontextmanager
async def open_models(
    recipe: Recipe, budget: Budget, cache: str, open_replies: Callable[[str], Replies] = ReplyCache
) -> AsyncIterator[Models]:
    """Opens every model once, however many parts it has. cache: the file that keeps the replies, which open_replies opens."""
    uses = (recipe.extractor, *recipe.proposers, recipe.merger)
    async with AsyncExitStack() as stack:
        askers: dict[bytes, Asker] = {}
        connections: dict[bytes, Any] = {}
        for use in uses:
            spec = ({"cache": cache} if use.model.get("kind") == "http" else {}) | use.model
            served = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
            if served not in connections:
                connection = connect(_open(spec, open_replies), spec, cache, open_replies)
                connections[served] = connection, await stack.enter_async_context(connection.connected())
            connection, send = connections[served]
            if _key(use) not in askers:
                askers[_key(use)] = asker = Asker(connection.known, send, use.prices or Prices(), budget)
                stack.push_async_callback(asker.close)
        yield Models(recipe, askers)


def _open(spec: Mapping[str, Any], open_replies: Callable[[str], Replies]) -> Any:
    if spec.get("kind") != "http":
        return open_chat_model(spec)
    model: Any = open_chat_model({**spec, "cache": None})
    model.client.replies = open_replies(spec["cache"])
    return model


def _key(use: ModelUse) -> bytes:
    return orjson.dumps([use.model, use.prices and asdict(use.prices)], option=orjson.OPT_SORT_KEYS)


async def make(paper: Paper, recipe: Recipe, models: Models, account: Account) -> Made:
    """Stages, question and reference, and rubric of one paper. Raises Rejected with the reason when it yields too little."""
    voice = models.voice(recipe.extractor, account)
    stages = await extract(paper, voice, account.sentences)
    texts = stages.stages()
    if empty := [name for name in STAGES if not texts[name] and name in recipe.needed]:
        raise Rejected(f"no sentence of its sections is about its {' or '.join(empty)}")
    question, reference = await together((_question(voice, texts, recipe), _reference(voice, texts, recipe, account)))
    return Made(question, reference, await elicit(question, reference, recipe, models, account), stages)


async def elicit(question: str, reference: str, recipe: Recipe, models: Models, account: Account) -> tuple[Voted, ...]:
    """The rubric of the recipe's dimensions: proposed from the question alone and with the reference, merged, ranked; n are kept.

    Raises Rejected when fewer than n criteria are left.
    """
    dimensions, m = recipe.dimensions, recipe.rubric.m
    proposals = await together(
        propose(models.voice(use, account), source, question, reference, dimensions, m, account.criteria)
        for use in recipe.proposers
        for source in recipe.rubric.sources
    )
    ranked = await merge(
        models.voice(recipe.merger, account),
        [proposal for found in proposals for proposal in found],
        question,
        reference,
        dimensions,
        recipe.rubric.n,
        account.criteria,
    )
    return tuple(ranked)


async def _question(voice: Voice, texts: Mapping[str, str], recipe: Recipe) -> str:
    approach = texts["method"] if recipe.benchmark == "design" else None
    return await write_question(voice, texts["goal"], texts["background"], approach=approach)


async def _reference(voice: Voice, texts: Mapping[str, str], recipe: Recipe, account: Account) -> str:
    """From the stages that the benchmark asks about."""

    def dropped(count: int) -> None:
        account.reference_sentences_dropped += count

    left_out = {"innov": "experiment", "design": "method"}.get(recipe.benchmark)
    return await write_reference(
        voice, **{name: "" if name == left_out else texts[name] for name in ("method", "experiment")}, dropped=dropped
    )
