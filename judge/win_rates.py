"""Win rates between the answers of any number of models, from the ballots of one judge or several (paper, C.1, C.2, table 2, figure 6)."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

import numpy as np

from papergym.judge.ballots import CRITERIA, Ballot
from papergym.statistics import estimate

Vote = frozenset[str]  # the best models of a criterion; more than one for a tie
OVERALL = "overall"


@dataclass(frozen=True)
class Comparison:
    """One question shown to one judge once. models: in the order of their labels A, B, …. ballot: None for one that could not be read."""

    judge: str
    environment: str
    order: int
    models: tuple[str, ...]
    ballot: Ballot | None


def arrangement(environment: str, models: Sequence[str], seed: int, order: int = 0) -> tuple[str, ...]:
    """The models in the order of their labels for one question: a permutation drawn from seed and question, rotated `order` times.

    Over the orders 0 … k - 1 each of k models stands at every place once.
    """
    digest = int.from_bytes(hashlib.sha256(environment.encode()).digest()[:8])
    drawn = np.random.default_rng([seed, digest]).permutation(len(models))
    return tuple(models[drawn[(place + order) % len(models)]] for place in range(len(models)))


def vote(comparisons: Sequence[Comparison], criterion: str) -> Vote | None:
    """One judge's vote on one question, over all orders it was shown in: the models most often best. None without a ballot."""
    tops = [_top(comparison, criterion) for comparison in comparisons if comparison.ballot is not None]
    return _most_common(tops) if tops else None


def _top(comparison: Comparison, criterion: str) -> Vote:
    assert comparison.ballot is not None
    return frozenset(comparison.models[ascii_uppercase.index(label)] for label in comparison.ballot.best[criterion])


def _most_common(votes: Sequence[Vote]) -> Vote:
    """The vote given most often; of several, all their models."""
    counts = Counter(votes)
    return frozenset().union(*(choice for choice, count in counts.items() if count == max(counts.values())))


def is_split(votes: Sequence[Vote]) -> bool:
    """Whether no vote was given more often than every other one."""
    counts = sorted(Counter(votes).values())
    return len(counts) > 1 and counts[-1] == counts[-2]


def win_rates(comparisons: Sequence[Comparison], models: Sequence[str], tie_breaker: str | None = None) -> dict[str, Any]:
    """{"models", "questions", "criteria": criterion or "overall" -> figures, "judges": judge -> figures}, ready for JSON.

    A criterion is won by majority of the judges; where they are split, by the tie-breaking judge's vote. Overall is won by the highest
    score, averaged over judges and orders. Winners that are level share the win in equal parts. A criterion's figures: "wins" model ->
    {"mean", "low", "high"}, the share of questions won with its interval over questions; "ties", the share of questions shared; and for
    overall "scores", model -> mean score. A judge's: see _judge_figures.
    """
    questions: dict[str, dict[str, list[Comparison]]] = {}
    for comparison in comparisons:
        questions.setdefault(comparison.environment, {}).setdefault(comparison.judge, []).append(comparison)
    winners: dict[str, list[Vote]] = {name: [] for name in (*CRITERIA, OVERALL)}
    scores: dict[str, list[float]] = {model: [] for model in models}
    for by_judge in questions.values():
        breaker = by_judge.get(tie_breaker, []) if tie_breaker is not None else []
        for name in CRITERIA:
            votes = [found for judge, shown in by_judge.items() if judge != tie_breaker and (found := vote(shown, name)) is not None]
            if votes:
                decided = vote(breaker, name) if is_split(votes) else None
                winners[name].append(decided or _most_common(votes))
        means = _mean_scores([one for judge, shown in by_judge.items() if judge != tie_breaker for one in shown])
        if means:
            highest = max(means.values())
            winners[OVERALL].append(frozenset(model for model, score in means.items() if score == highest))
            for model, score in means.items():
                scores[model].append(score)
    figures = {name: _criterion_figures(found, models) for name, found in winners.items()}
    figures[OVERALL]["scores"] = {model: estimate(values) for model, values in scores.items()}
    judges = dict.fromkeys(comparison.judge for comparison in comparisons)
    return {
        "models": list(models),
        "questions": len(questions),
        "criteria": figures,
        "judges": {judge: _judge_figures([one for one in comparisons if one.judge == judge], len(models)) for judge in judges},
    }


def _mean_scores(comparisons: Sequence[Comparison]) -> dict[str, float]:
    given: dict[str, list[int]] = {}
    for comparison in comparisons:
        if comparison.ballot is not None:
            for label, score in comparison.ballot.overall.items():
                given.setdefault(comparison.models[ascii_uppercase.index(label)], []).append(score)
    return {model: sum(values) / len(values) for model, values in given.items()}


def _criterion_figures(winners: Sequence[Vote], models: Sequence[str]) -> dict[str, Any]:
    return {
        "wins": {model: estimate([(model in found) / len(found) for found in winners]) for model in models},
        "ties": sum(len(found) > 1 for found in winners) / len(winners) if winners else None,
        "questions": len(winners),
    }


def _judge_figures(comparisons: Sequence[Comparison], places: int) -> dict[str, Any]:
    """A judge's steadiness against the order of the plans.

    "places": label -> how often the plan there was best, {"mean", "low", "high"} over questions, "expected" = 1 / k for a judge that
    ignores places, because labels are drawn at random. "kept": share of the criteria on which all orders of a question named the same
    best plan, None when each question was shown once. "unread": ballots that could not be read.
    """
    labels = ascii_uppercase[:places]
    shares: dict[str, dict[str, list[float]]] = {label: {} for label in labels}
    orders: dict[tuple[str, str], list[Vote]] = {}
    for comparison in comparisons:
        if comparison.ballot is None:
            continue
        for name, best in comparison.ballot.best.items():
            orders.setdefault((comparison.environment, name), []).append(_top(comparison, name))
            for label in labels:
                shares[label].setdefault(comparison.environment, []).append((label in best) / len(best))
    repeated = [len(set(tops)) == 1 for tops in orders.values() if len(tops) > 1]
    return {
        "places": {label: estimate([sum(found) / len(found) for found in by.values()]) for label, by in shares.items()},
        "expected": 1 / places,
        "kept": sum(repeated) / len(repeated) if repeated else None,
        "unread": sum(comparison.ballot is None for comparison in comparisons),
    }
