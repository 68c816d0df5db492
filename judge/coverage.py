"""How much of a criterion a plan's words cover: the rule behind the lexical judge, a pure function of question, criterion and plan.

A criterion is the set of its content words, stemmed, without those that the question holds too: saying the question again covers nothing.
Each word weighs the more the rarer it is,

    w = idf · (common_weight if it is a word of any research plan else 1),    idf = log(1 + n / df) / log(1 + n),

n criteria in the rubric, df of which hold the word. A passage is a few consecutive sentences; it counts if it is prose and on the subject,
that is, names something that the question names. The coverage of a criterion is the largest share of its weight whose words stand in one
such passage, and the criterion holds from a threshold on. A long plan has many passages, so that one of them hits by chance: the threshold
rises with the square root of the length,

    threshold(plan) = min(1, threshold · sqrt(max(1, words / free_words))).

Words count once, so repetition adds nothing. The order of words, negation and meaning are not seen: this is a baseline. The threshold is
low because a plan has to guess the words of one particular paper; it was set on reference plans, own and foreign, and on samples of a
small model.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.words import all_words, common_stems, content_words, sentences, stem, stop_words


@dataclass(frozen=True)
class CoverageRule:
    """The constants of the rule. A passage is `window` sentences of at most `longest_sentence` words each: longer ones are cut there."""

    threshold: float = 0.1  # coverage from which on a criterion holds, in a plan of at most free_words words
    free_words: int = 150
    window: int = 3
    longest_sentence: int = 40
    common_weight: float = 0.7
    topic_words: int = 1  # uncommon content words of the question that a passage must hold
    least_function_words: float = 0.2  # share of stop words below which a passage is a list of words, not prose
    fewest_words: int = 3  # a criterion with fewer words outside the question can't be told from a paraphrase of it: not scored

    def __post_init__(self) -> None:
        for name in ("threshold", "common_weight", "least_function_words"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"lexical judge, {name} {getattr(self, name)}: a number from 0 to 1 is needed")
        for name in ("free_words", "window", "longest_sentence", "fewest_words"):
            if getattr(self, name) < 1:
                raise InputError(f"lexical judge, {name} {getattr(self, name)}: a number from 1 is needed")


def rubric_verdicts(environment: Environment, plan: str, rule: CoverageRule) -> list[bool | None]:
    """Whether each criterion holds; None for one that the rule can't score."""
    threshold = min(1.0, rule.threshold * math.sqrt(max(1.0, len(all_words(plan)) / rule.free_words)))
    return [None if share is None else share >= threshold for share in rubric_coverage(environment, plan, rule)]


def rubric_coverage(environment: Environment, plan: str, rule: CoverageRule) -> list[float | None]:
    """Coverage in [0, 1] of each criterion by the plan; None for a criterion that the rule can't score."""
    criteria = tuple(criterion.text for criterion in environment.rubric)
    topic = frozenset(content_words(environment.question)) - common_stems()
    found = [passage for passage in passages(plan, rule) if len(passage & topic) >= min(rule.topic_words, len(topic))]
    return [_best_coverage(weights, found) if weights else None for weights in rubric_weights(environment.question, criteria, rule)]


def _best_coverage(weights: Mapping[str, float], found: Sequence[frozenset[str]]) -> float:
    words = weights.keys()
    covered = (math.fsum(weights[word] for word in words & passage) for passage in found)
    return max(covered, default=0.0) / math.fsum(weights.values())  # fsum: the same in every order, and sets have none


@lru_cache(maxsize=4096)
def rubric_weights(question: str, criteria: tuple[str, ...], rule: CoverageRule) -> list[dict[str, float]]:
    """stem -> weight for each criterion; empty for one with too few words that the question lacks."""
    asked = frozenset(content_words(question))
    words = [frozenset(content_words(text)) - asked for text in criteria]
    frequency = Counter(word for criterion in words for word in criterion)
    n = len(criteria)
    weight = {
        word: math.log(1 + n / df) / math.log(1 + n) * (rule.common_weight if word in common_stems() else 1.0)
        for word, df in frequency.items()
    }
    return [{word: weight[word] for word in sorted(criterion)} if len(criterion) >= rule.fewest_words else {} for criterion in words]


def passages(plan: str, rule: CoverageRule) -> list[frozenset[str]]:
    """The stems of the content words of every `window` consecutive sentences that read as prose."""
    pieces = []
    for sentence in sentences(plan):
        words = all_words(sentence)
        pieces += [words[start : start + rule.longest_sentence] for start in range(0, len(words), rule.longest_sentence)]
    stop = stop_words()
    function_words = [sum(word in stop for word in piece) for piece in pieces]
    stems = [{stem(word) for word in piece if word not in stop} for piece in pieces]
    found = []
    for start in range(max(1, len(pieces) - rule.window + 1)):
        chosen = slice(start, start + rule.window)
        if sum(function_words[chosen]) >= rule.least_function_words * sum(map(len, pieces[chosen])):
            found.append(frozenset().union(*stems[chosen]))
    return found
