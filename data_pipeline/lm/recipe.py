"""What a build by language model is made with: the models, how they are asked, and what the rubric consists of."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import orjson

from papergym.config import load_config, to_mapping
from papergym.data_pipeline.prompts import PROMPTS
from papergym.data_pipeline.words import words
from papergym.environment import DIMENSIONS
from papergym.errors import InputError
from papergym.model.generation.chat_models import HOTTEST
from papergym.model.generation.chat_session import Prices

# What may differ between two runs that make the same environments.
_TRANSPORT = words("url api_key_variable concurrency timeout attempts backoff longest_backoff cache prices papers_at_once device")


@dataclass(frozen=True)
class ModelUse:
    """A language model and how it is asked.

    model: the specification of a chat model (open_chat_model). context: tokens that prompt and reply may have together.
    reply_tokens: of the longest reply; thinking_tokens: room for a thinking block on top. characters_per_token: an estimate, on the low
    side, for cutting sections; one that is refused as too long is cut again. prices: for --max-cost and the summary.
    """

    model: dict[str, Any]
    context: int = 32768
    reply_tokens: int = 4096
    thinking_tokens: int = 0
    characters_per_token: float = 3.0
    temperature: float = 0.0
    seed: int | None = None
    prices: Prices | None = None

    def __post_init__(self) -> None:
        for name, least in (("reply_tokens", 1), ("thinking_tokens", 0), ("characters_per_token", 0.1)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name} {getattr(self, name)}: a number from {least} is needed")
        if not 0 <= self.temperature <= HOTTEST:
            raise InputError(f"temperature {self.temperature}: a number from 0 to {HOTTEST} is needed")
        if self.room < 500:
            raise InputError(
                f"context {self.context}: replies and thinking take {self.reply_tokens + self.thinking_tokens} of it, and what is left for "
                "a prompt is too little; name a longer context or shorter replies"
            )

    @property
    def name(self) -> str:
        """What the model is called, in provenance."""
        return str(self.model.get("model") or self.model.get("path") or self.model.get("kind"))

    @property
    def room(self) -> int:
        """Characters of text that a prompt can hold beside its instructions."""
        return int((self.context - self.reply_tokens - self.thinking_tokens - _INSTRUCTIONS) * self.characters_per_token)


_INSTRUCTIONS = 1500  # tokens of the longest prompt without its material


@dataclass(frozen=True)
class RubricRecipe:
    """Where the criteria come from.

    models: each proposes m criteria from each source; the extractor's model if there are none. merger: merges and ranks them, by default
    the first of the models. n: criteria that are kept. sources: "question" alone is R_Q, "answer" alone R_A. dimensions: what they are
    about.
    """

    models: tuple[ModelUse, ...] = ()
    merger: ModelUse | None = None
    m: int = 10
    n: int = 10
    sources: tuple[Literal["question", "answer"], ...] = ("question", "answer")
    dimensions: tuple[Literal["method", "experiment"], ...] = DIMENSIONS  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name in ("m", "n"):
            if getattr(self, name) < 1:
                raise InputError(f"rubric, {name} {getattr(self, name)}: a number from 1 is needed")
        for name in ("sources", "dimensions"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise InputError(f"rubric, {name} {list(values)}: at least one value is needed, and each once")


@dataclass(frozen=True)
class Recipe:
    """A build.

    benchmark: "innov" asks the same question and takes reference and criteria from the method alone; "design" puts the method into the
    question and takes them from the experiment. retries: how often a reply that can't be used is asked for again. papers_at_once: under
    way. cache: a file that keeps every reply, beside the environments by default.
    """

    extractor: ModelUse
    rubric: RubricRecipe = field(default_factory=RubricRecipe)
    benchmark: Literal["none", "innov", "design"] = "none"
    retries: int = 2
    papers_at_once: int = 32
    cache: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("retries", 0), ("papers_at_once", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} {getattr(self, name)}: a number from {least} is needed")
        only = {"innov": "method", "design": "experiment"}.get(self.benchmark)
        if only and only not in self.rubric.dimensions:
            raise InputError(f"benchmark {self.benchmark!r} has criteria of the {only}, which rubric.dimensions leaves out")

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What the criteria are about."""
        only = {"innov": "method", "design": "experiment"}.get(self.benchmark)
        return (only,) if only else self.rubric.dimensions

    @property
    def needed(self) -> frozenset[str]:
        """The stages without which there is no environment."""
        return frozenset({"goal", "background", *self.dimensions} | ({"method"} if self.benchmark == "design" else set()))

    @property
    def proposers(self) -> tuple[ModelUse, ...]:
        return self.rubric.models or (self.extractor,)

    @property
    def merger(self) -> ModelUse:
        return self.rubric.merger or self.proposers[0]

    def fingerprint(self) -> str:
        """A digest of all that decides what the environments are, prompts included, and not of where the models are served."""
        parts = {"recipe": _essential(to_mapping(self)), "prompts": PROMPTS.digest, "papergym": version("papergym")}
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _essential(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _essential(item) for key, item in value.items() if key not in _TRANSPORT}
    return [_essential(item) for item in value] if isinstance(value, list | tuple) else value


def load_recipe(path: str | Path) -> Recipe:
    """Reads a recipe from TOML. Raises InputError naming the file, the key and the value, FileNotFoundError."""
    return load_config(Recipe, path)
