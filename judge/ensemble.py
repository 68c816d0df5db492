"""Several judges as one: majority of their verdicts or mean of their chances, with what each said kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from papergym.config import from_mapping
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.llm import Graded
from papergym.judge.scoring import Judge, Scored, combine, for_run, open_judge, score_all

Chance = float | None


@dataclass(frozen=True)
class EnsembleConfig:
    """judges: their specifications, two or more. vote: "majority" of verdicts, where a tie is not scored, or "mean" of chances."""

    judges: list[Any]
    vote: Literal["majority", "mean"] = "majority"
    alpha: float = 0.7

    def __post_init__(self) -> None:
        if len(self.judges) < 2:
            raise InputError(f"ensemble judge, judges: two or more are needed, not {len(self.judges)}")
        if not 0 <= self.alpha <= 1:
            raise InputError(f"ensemble judge, alpha {self.alpha}: a number from 0 to 1 is needed")


@dataclass(frozen=True)
class EnsembleScored(Graded):
    """members: what each judge said. disagreement: share of the criteria with two or more verdicts that have two different ones."""

    members: tuple[Scored, ...] = ()
    disagreement: float | None = None


class EnsembleJudge:
    """A Judge made of judges. With "mean" the reward is made of the mean chances; a criterion at one half exactly is not scored."""

    def __init__(self, config: EnsembleConfig, judges: Sequence[Judge]):
        self._config, self._judges = config, judges

    @property
    def version(self) -> str:
        """Those of its members."""
        return " ".join(str(getattr(judge, "version", None)) for judge in self._judges)

    def score(self, items: Sequence[tuple[Environment, str | None]]) -> list[EnsembleScored]:
        """One EnsembleScored for each (environment, plan). Raises InputError when the members' sets of criteria differ in size."""
        by_judge = [score_all(judge, items) for judge in self._judges]
        return [self._together(environment, scores) for (environment, _), *scores in zip(items, *by_judge, strict=True)]

    def for_run(self, run: int) -> "EnsembleJudge":
        return EnsembleJudge(self._config, [for_run(judge, run) for judge in self._judges])

    def _together(self, environment: Environment, members: Sequence[Scored]) -> EnsembleScored:
        soft = self._config.vote == "mean"
        specialised, general = (_mean_chances(members, name, soft) for name in ("specialised", "general"))
        verdicts = [tuple(None if chance in (None, 0.5) else chance > 0.5 for chance in chances) for chances in (specialised, general)]
        weights = [criterion.weight for criterion in environment.rubric]
        reward = combine(*((specialised, general) if soft else verdicts), self._config.alpha, weights)
        return EnsembleScored(*verdicts, reward, specialised, general, tuple(members), _disagreement(members))


def _mean_chances(members: Sequence[Scored], name: str, soft: bool) -> tuple[Chance, ...]:
    """Mean over the members that scored a criterion, of their chances or of their verdicts as 0 and 1."""
    rows = [_chances(member, name) if soft else getattr(member, name) for member in members]
    if len({len(row) for row in rows}) > 1:
        raise InputError(f"ensemble judge: its members judge {', '.join(str(len(row)) for row in rows)} {name} criteria; give all the same")
    columns = ([float(chance) for chance in column if chance is not None] for column in zip(*rows, strict=True))
    return tuple(fmean(column) if column else None for column in columns)


def _chances(member: Scored, name: str) -> Sequence[Chance]:
    return getattr(member, f"{name}_chances") if isinstance(member, Graded) else getattr(member, name)


def _disagreement(members: Sequence[Scored]) -> float | None:
    columns = zip(*((*member.specialised, *member.general) for member in members), strict=True)
    scored = [verdicts for column in columns if len(verdicts := [verdict for verdict in column if verdict is not None]) > 1]
    return fmean(len(set(verdicts)) > 1 for verdicts in scored) if scored else None


def open_ensemble_judge(**options: Any) -> EnsembleJudge:
    """Builds the judge from configuration values. Raises InputError naming the option that is wrong."""
    config = from_mapping(EnsembleConfig, options, prefix="judge.")
    return EnsembleJudge(config, [open_judge(spec) for spec in config.judges])
