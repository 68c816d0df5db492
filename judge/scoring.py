"""From verdicts to rewards: equation 2, r = α · specialised + (1 - α) · general, and the interface that every judge has."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from papergym.config import read_values
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.registry import check_takes, resolve

Verdict = bool | None  # None: not scored. Never a stand-in for False.


@dataclass(frozen=True)
class Scored:
    """What a judge says about one plan: verdicts on the rubric's criteria, on the general criteria, and the reward in [0, 1].

    reward is None when a set of verdicts that counts has none scored; such a plan is left out of means and of group statistics.
    """

    specialised: tuple[Verdict, ...]
    general: tuple[Verdict, ...]
    reward: float | None


class Judge(Protocol):
    """Scores plans: the answers after the thinking block, as papergym.judge.answer.plan_of gives them."""

    def score(self, items: Sequence[tuple[Environment, str | None]]) -> list[Scored]:
        """One Scored for each (environment, plan), in order. None, a response without an answer, is scored as the empty plan is."""
        ...


JUDGES: Mapping[str, str | Callable[..., Judge]] = {
    "lexical": "papergym.judge.lexical:open_lexical_judge",
    "llm": "papergym.judge.llm:open_llm_judge",
    "ensemble": "papergym.judge.ensemble:open_ensemble_judge",
}


ADDRESS = frozenset({"url", "api_key_variable", "concurrency", "timeout", "attempts", "backoff", "longest_backoff", "cache"})  # of a model


def judge_options(spec: str | Mapping[str, Any]) -> dict[str, Any]:
    """The judge that a configuration names, as {"kind": …, **options}, with a kind that exists.

    spec: such a mapping; "lexical" or another kind without options; "module:function"; or the path of a TOML file, ending in .toml, that
    holds the mapping. Raises InputError naming the file and the kind that is wrong, FileNotFoundError.
    """
    if isinstance(spec, str):
        options = read_values(spec) if spec.endswith(".toml") else {"kind": spec}
    elif isinstance(spec, Mapping):
        options = dict(spec)
    else:
        raise InputError(f"judge {spec!r}: the name of a kind, the path of a .toml file or a table with the key 'kind' is needed")
    kind = options.get("kind")
    if not isinstance(kind, str):
        raise InputError(f"judge {spec!r}: the key 'kind' names the judge: one of {', '.join(sorted(JUDGES))}, or module:function")
    resolve("judge", kind, JUDGES)
    return options


def judge_record(spec: str | Mapping[str, Any], judge: Judge) -> dict[str, Any]:
    """What scores are to name: the judge's kind, its options, and the version of its rule, another one if equal plans may score otherwise.

    Where a model is and how patiently it is asked is left out, since it is no matter to a verdict; judges inside the options are named in
    the same way. Only a judge with an attribute `version` has one.
    """
    options = _without_address(judge_options(spec))
    if options["kind"] == "ensemble":
        options["judges"] = [_without_address(judge_options(member)) for member in options["judges"]]
    return options | {"version": getattr(judge, "version", None)}


def _without_address(options: Mapping[str, Any]) -> dict[str, Any]:
    model = options.get("model")
    if not isinstance(model, Mapping):
        return dict(options)
    return dict(options) | {"model": {name: value for name, value in model.items() if name not in ADDRESS}}


def version_of(*texts: str) -> str:
    """Eight hex digits that stand for texts on which a judge's verdicts depend."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def open_judge(spec: str | Mapping[str, Any]) -> Judge:
    """Returns the judge that a configuration names, as judge_options reads it.

    Its function gets the options as keyword arguments and returns an object with `score`. Raises InputError naming the kind or the option
    that is wrong.
    """
    options = judge_options(spec)
    kind = options.pop("kind")
    function = resolve("judge", kind, JUDGES)
    check_takes("judge", kind, function, **options)
    judge = function(**options)
    if not callable(getattr(judge, "score", None)):
        raise InputError(f"judge {kind!r}: it returned {type(judge).__name__}, which has no method score")
    return judge


def for_run(judge: Judge, run: int) -> Judge:
    """The judge for one of several runs over the same plans: with another seed in each, where it has one."""
    return judge.for_run(run) if hasattr(judge, "for_run") else judge


def score_all(judge: Judge, items: Sequence[tuple[Environment, str | None]]) -> list[Scored]:
    """The judge's scores after a check that there is one for each item and that every reward is None or a finite number."""
    scores = list(judge.score(items))
    if len(scores) != len(items):
        raise InputError(f"judge {type(judge).__name__}: it returned {len(scores)} scores for {len(items)} plans")
    for score in scores:
        reward = score.reward
        if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward)):
            raise InputError(f"judge {type(judge).__name__}: a reward is {reward!r}; a finite number is needed, or None for not scored")
    return scores


def combine(
    specialised: Sequence[Verdict | float],
    general: Sequence[Verdict | float],
    alpha: float = 0.7,
    weights: Sequence[float] | None = None,
) -> float | None:
    """The reward of one plan, in [0, 1] (equation 2).

    Verdicts may be soft: the chance, from 0 to 1, that a criterion is met. Each set's score is its mean over the scored verdicts. With
    weights (one for each specialised criterion; negative ones are points lost when met) the specialised score is met points / sum of the
    positive points of the scored criteria, clipped to [0, 1]. None when a set that counts (the general one does not at alpha = 1, the
    specialised one not at alpha = 0) has no scored verdict to give it a score.
    Raises InputError on an alpha outside [0, 1] and on weights that do not fit the criteria.
    """
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha {alpha!r}: a number from 0 to 1 is needed")
    if weights is None:
        weights = [1.0] * len(specialised)
    if len(weights) != len(specialised) or not all(math.isfinite(weight) for weight in weights):
        raise InputError(f"weights {list(weights)!r}: one finite weight for each of the {len(specialised)} specialised criteria is needed")
    reward = 0.0
    for share, verdicts, points in ((alpha, specialised, weights), (1 - alpha, general, [1.0] * len(general))):
        if share > 0:
            score = _weighted_score(verdicts, points)
            if score is None:
                return None
            reward += share * score
    return reward


def _weighted_score(verdicts: Sequence[Verdict | float], points: Sequence[float]) -> float | None:
    largest = max((abs(point) for point in points), default=0.0) or 1.0  # relative to it no sum overflows
    scored = [(verdict, point / largest) for verdict, point in zip(verdicts, points) if verdict is not None]
    available = math.fsum(point for _, point in scored if point > 0)
    if available <= 0:
        return None
    return min(1.0, max(0.0, math.fsum(point * verdict for verdict, point in scored) / available))
