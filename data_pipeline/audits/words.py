"""Leakage without a model: how much of a criterion's content its question says already, in words.

    overlap = sum of the weights of the criterion's content words that the question holds / sum of the weights of all its content words

Words are stemmed and numbers are words; each counts once, those of any research plan (compare, measure, method) by the lexical judge's
common_weight, "plan" not at all. It finds what is copied, no more: it sees neither synonyms nor inference, nor that known words are put
together to a decision that the question leaves open.
"""

import math
import re
from collections.abc import Collection, Sequence

from papergym.environment import Environment
from papergym.judge.coverage import CoverageRule
from papergym.judge.words import common_stems, content_words

LEAKED = 0.6  # overlap from which on a criterion counts as leaked
_STEPS = 20
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def overlaps(environment: Environment) -> list[float | None]:
    """The overlap of each criterion, in [0, 1]; None for a criterion without content words."""
    asked = _content(environment.question)
    return [_overlap(_content(criterion.text) - {"plan"}, asked) for criterion in environment.rubric]


def leaked(overlap: float | None) -> bool | None:
    """Whether a criterion of that overlap counts as leaked; None for None."""
    return None if overlap is None else overlap >= LEAKED


def shares_above(found: Sequence[float | None]) -> dict[str, float]:
    """Threshold, from "0.00" to "1.00" in steps of 0.05 -> the share of criteria whose overlap is at least that; {} without any."""
    known = [overlap for overlap in found if overlap is not None]
    thresholds = [step / _STEPS for step in range(_STEPS + 1)] if known else []
    return {f"{threshold:.2f}": sum(overlap >= threshold for overlap in known) / len(known) for threshold in thresholds}


def _content(text: str) -> set[str]:
    return {*content_words(text), *_NUMBER.findall(text)}


def _overlap(words: Collection[str], asked: Collection[str]) -> float | None:
    if not words:
        return None
    weight = {word: CoverageRule.common_weight if word in common_stems() else 1.0 for word in words}
    return math.fsum(value for word, value in weight.items() if word in asked) / math.fsum(weight.values())
