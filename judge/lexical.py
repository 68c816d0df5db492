"""The lexical judge: a criterion holds when a passage of the plan covers enough of its words. Deterministic, instant, and shallow.

An honest baseline, not a stand-in for a language model: it rewards writing on the criterion's subject and can't tell sense from nonsense.
What it pays for and what it doesn't is measured by the tests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from papergym.config import from_mapping
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.coverage import CoverageRule, rubric_verdicts
from papergym.judge.general import load_general
from papergym.judge.scoring import Scored, combine, version_of

RULE = "3"  # another number for every change by which a plan may score otherwise


@dataclass(frozen=True)
class LexicalConfig:
    """Options of the lexical judge. general: a file of general criteria in place of the seven that come with papergym."""

    alpha: float = 0.7
    general: str | None = None
    rule: CoverageRule = field(default_factory=CoverageRule)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError(f"lexical judge, alpha {self.alpha}: a number from 0 to 1 is needed")


class LexicalJudge:
    """A Judge whose verdict on a plan depends on that plan and its environment alone."""

    def __init__(self, config: LexicalConfig):
        self._config = config
        self._general = load_general(config.general)
        if config.alpha < 1 and not any(criterion.check for criterion in self._general):
            raise InputError(f"{config.general}: no general criterion has a check that a rule can do; name some, or set alpha = 1")

    @property
    def version(self) -> str:
        """The rule's number, and what stands for the general criteria."""
        return f"{RULE}-{version_of(*(criterion.identity for criterion in self._general))}"

    def score(self, items: Sequence[tuple[Environment, str | None]]) -> list[Scored]:
        """One Scored for each (environment, plan). None, a response without an answer, is scored as the empty plan."""
        return [self._score(environment, plan or "") for environment, plan in items]

    def _score(self, environment: Environment, plan: str) -> Scored:
        specialised = tuple(rubric_verdicts(environment, plan, self._config.rule))
        general = tuple(criterion.check(environment, plan) if criterion.check else None for criterion in self._general)
        weights = [criterion.weight for criterion in environment.rubric]
        return Scored(specialised, general, combine(specialised, general, self._config.alpha, weights))


def open_lexical_judge(**options: Any) -> LexicalJudge:
    """Builds the judge from configuration values. Raises InputError naming the option that is wrong."""
    return LexicalJudge(from_mapping(LexicalConfig, options, prefix="judge."))
