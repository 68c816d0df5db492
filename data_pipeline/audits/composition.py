"""What a data set is made of: sizes, domains, lengths, types of criteria, repetitions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from papergym.data_pipeline.audits.rates import rate
from papergym.data_pipeline.duplicates import SIMILARITY, groups, links
from papergym.environment import DIMENSIONS, Environment
from papergym.judge.words import content_words

REPEATS = 0.6  # share of content words in common, of all that two criteria hold, from which on the second repeats the first
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def composition(environments: Sequence[Environment]) -> dict[str, Any]:
    """{"environments", "criteria", "domains", "sources", "weights", "lengths", "types", "repeated"}, ready for JSON.

    domains, sources: value -> count. weights: how many are negative, how many are not 1. lengths: in words, of question, reference and
    criterion, and criteria a rubric. types: dimension -> rate over the criteria that have one. repeated: the rate of criteria that say an
    earlier one of their rubric again.
    """
    criteria = [criterion for environment in environments for criterion in environment.rubric]
    return {
        "environments": len(environments),
        "criteria": len(criteria),
        "domains": dict(Counter(environment.domain for environment in environments).most_common()),
        "sources": dict(Counter(criterion.source or "not told" for criterion in criteria).most_common()),
        "weights": {"negative": sum(c.weight < 0 for c in criteria), "not 1": sum(c.weight != 1 for c in criteria)},
        "lengths": {
            "question": _distribution([_words(environment.question) for environment in environments]),
            "reference": _distribution([_words(environment.reference) for environment in environments if environment.reference]),
            "criterion": _distribution([_words(criterion.text) for criterion in criteria]),
            "criteria a rubric": _distribution([len(environment.rubric) for environment in environments]),
        },
        "types": type_shares([[criterion.dimension for criterion in environment.rubric] for environment in environments]),
        "repeated": rate(map(_repeats, environments)),
    }


def type_shares(rubrics: Sequence[Sequence[str | None]]) -> dict[str, Any]:
    """dimension -> rate of it among the criteria that have a dimension."""
    return {
        dimension: rate([None if found is None else found == dimension for found in rubric] for rubric in rubrics)
        for dimension in DIMENSIONS
    }


def duplicates(datasets: Mapping[str, Sequence[Environment]]) -> dict[str, Any]:
    """{"pairs", "repeated", "across"}, ready for JSON; what is alike by 0.5 or more counts as the same (papergym.data_pipeline.duplicates).

    pairs: {"first", "second": "FILE: id", "kind", "similarity"}. repeated: file -> environments whose question an earlier one asks already.
    across: "ONE, OTHER" -> environments of the other whose paper or question is in the first too, which must not both train and test.
    """
    names = [name for name, environments in datasets.items() for _ in environments]
    environments = [environment for found in datasets.values() for environment in found]
    linked = links(environments, SIMILARITY)
    by_question = groups(len(environments), [link for link in linked if link.kind == "question"])
    by_any = groups(len(environments), linked)
    asked, shared = (
        {name: [group for group, of in zip(labels, names) if of == name] for name in datasets} for labels in (by_question, by_any)
    )
    pairs = [
        {
            "first": f"{names[link.first]}: {environments[link.first].id}",
            "second": f"{names[link.second]}: {environments[link.second].id}",
            "kind": link.kind,
            "similarity": link.similarity,
        }
        for link in linked
    ]
    across = {}
    for index, one in enumerate(datasets):
        known = set(shared[one])
        for other in list(datasets)[index + 1 :]:
            across[f"{one}, {other}"] = len([group for group in shared[other] if group in known])
    return {"pairs": pairs, "repeated": {name: len(found) - len(set(found)) for name, found in asked.items()}, "across": across}


def _repeats(environment: Environment) -> list[bool | None]:
    """Whether each criterion repeats an earlier one; None without content words."""
    words = [frozenset(content_words(criterion.text)) - {"plan"} for criterion in environment.rubric]
    return [
        any(earlier and len(found & earlier) >= REPEATS * len(found | earlier) for earlier in words[:index]) if found else None
        for index, found in enumerate(words)
    ]


def _words(text: str | None) -> int:
    return len((text or "").split())


def _distribution(values: Sequence[int]) -> dict[str, float | None]:
    """{"mean", "p5", "p25", "p50", "p75", "p95"}; None for nothing."""
    names = [f"p{round(100 * quantile)}" for quantile in _QUANTILES]
    if not values:
        return dict.fromkeys(("mean", *names))
    return {"mean": float(numpy.mean(values)), **dict(zip(names, map(float, numpy.quantile(values, _QUANTILES))))}
