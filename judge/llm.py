"""A language model as judge: two independent passes over a plan, the question's rubric and the general criteria (paper, B.4)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from papergym.config import from_mapping
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.general import load_general
from papergym.judge.prompts import TEMPLATES, Grading
from papergym.judge.scoring import Scored, Verdict, combine, version_of
from papergym.judge.ways import WAYS
from papergym.model.generation.chat_models import HOTTEST, ChatModel, ChatRequest, open_chat_model


@dataclass(frozen=True)
class LlmJudgeConfig:
    """Options of the judge.

    model: the specification of a chat model. way: see papergym.judge.ways. soft: the reward is made of the chances that the criteria are
    met, not of verdicts. general: a file of general criteria in place of the seven. retries: how often a criterion without a readable
    verdict is asked for again. reason_length: characters of a reason, where the server enforces the schema. thinking_tokens: room for a
    thinking block before the JSON. seed: sent along; other seeds are other runs.
    """

    model: dict[str, Any]
    way: Literal["json", "single", "logprob"] = "json"
    soft: bool = False
    alpha: float = 0.7
    general: str | None = None
    retries: int = 2
    temperature: float = 0.0
    reason_length: int = 300
    thinking_tokens: int = 0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"llm judge, alpha {self.alpha}: a number from 0 to 1 is needed")
        for name, least in (("retries", 0), ("thinking_tokens", 0), ("reason_length", 1)):
            if not getattr(self, name) >= least:
                raise InputError(f"llm judge, {name} {getattr(self, name)}: a number from {least} is needed")
        if not 0 <= self.temperature <= HOTTEST:
            raise InputError(f"llm judge, temperature {self.temperature}: a number from 0 to {HOTTEST} is needed")
        if self.way == "logprob" and self.thinking_tokens:
            raise InputError(
                "llm judge, thinking_tokens: the way 'logprob' reads the first token, so the model can't think; use json or single"
            )


@dataclass(frozen=True)
class Graded(Scored):
    """Scores with the chance in [0, 1] that each criterion is met: 0 or 1 where the model gave a verdict, None where it gave none."""

    specialised_chances: tuple[float | None, ...] = ()
    general_chances: tuple[float | None, ...] = ()


class LlmJudge:
    """A Judge. usage: what its requests took so far; retried: verdicts asked for again; unscored: those that stayed without."""

    def __init__(self, config: LlmJudgeConfig, model: ChatModel):
        self._config, self._model, self._way = config, model, WAYS[config.way]
        self._general = tuple(f"{criterion.name}: {criterion.text}" for criterion in load_general(config.general))
        self.retried = self.unscored = 0

    @property
    def version(self) -> str:
        """What stands for the prompts and the general criteria; the weights behind the model's name are not seen."""
        return version_of(*TEMPLATES, *(criterion.identity for criterion in load_general(self._config.general)))

    @property
    def usage(self) -> Any:
        return self._model.usage

    def for_run(self, run: int) -> "LlmJudge":
        """The same judge on the same model for run number `run`, from 0, whose requests carry a seed of their own."""
        return LlmJudge(replace(self._config, seed=(self._config.seed or 0) + run), self._model) if run else self

    def score(self, items: Sequence[tuple[Environment, str | None]]) -> list[Graded]:
        """One Graded for each (environment, plan), in order. A plan without a text, None or empty, meets nothing, and nobody is asked.

        Raises InputError when the model can't be reached; what it answered before is in its cache, if it has one.
        """
        gradings = []
        for environment, plan in items:
            rubric = tuple(criterion.text for criterion in environment.rubric)
            gradings.append(Grading(environment.question, plan or "", rubric, environment.reference))
            gradings.append(Grading(environment.question, plan or "", self._general, environment.reference, rubric))
        chances = self._chances(gradings)
        return [
            self._graded(environment, tuple(chances[2 * index]), tuple(chances[2 * index + 1]))
            for index, (environment, _) in enumerate(items)
        ]

    def _graded(self, environment: Environment, specialised: tuple[float | None, ...], general: tuple[float | None, ...]) -> Graded:
        verdicts = _verdicts(specialised), _verdicts(general)
        weights = [criterion.weight for criterion in environment.rubric]
        counted = (specialised, general) if self._config.soft else verdicts
        return Graded(*verdicts, combine(*counted, self._config.alpha, weights), specialised, general)

    def _chances(self, gradings: Sequence[Grading]) -> list[list[float | None]]:
        """The chance that each criterion is met, after all attempts."""
        chances: list[list[float | None]] = [[None if grading.plan.strip() else 0.0] * len(grading.criteria) for grading in gradings]
        for attempt in range(self._config.retries + 1):
            asked = [(index, chosen) for index, row in enumerate(chances) for chosen in self._missing(row)]
            if attempt:
                self.retried += sum(len(chosen) for _, chosen in asked)
            requests = [self._request(gradings[index], chosen, attempt) for index, chosen in asked]
            for (index, chosen), reply in zip(asked, self._model.complete(requests) if requests else (), strict=True):
                for text in reply.texts:
                    for criterion, chance in zip(chosen, self._way.read(text, len(chosen)), strict=True):
                        chances[index][criterion] = chance
        self.unscored += sum(chance is None for row in chances for chance in row)
        return chances

    def _request(self, grading: Grading, chosen: Sequence[int], attempt: int) -> ChatRequest:
        config = self._config
        request = self._way.request(grading, chosen, attempt, config.reason_length)
        thinking = config.thinking_tokens
        return replace(request, max_tokens=request.max_tokens + thinking, temperature=config.temperature, seed=config.seed)

    def _missing(self, row: Sequence[float | None]) -> list[list[int]]:
        """The criteria without a chance yet, as one request asks about them."""
        missing = [index for index, chance in enumerate(row) if chance is None]
        if self._way.together:
            return [missing] if missing else []
        return [[index] for index in missing]


def _verdicts(chances: Sequence[float | None]) -> tuple[Verdict, ...]:
    return tuple(None if chance is None else chance > 0.5 for chance in chances)


def open_llm_judge(**options: Any) -> LlmJudge:
    """Builds the judge from configuration values. Raises InputError naming the option that is wrong."""
    config = from_mapping(LlmJudgeConfig, options, prefix="judge.")
    return LlmJudge(config, open_chat_model(config.model))
