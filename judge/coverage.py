"""How much of a criterion a plan's words cover: the rule behind the lexical judge, a pure function of question, rubric and plan.

A criterion is the set of its content words, stemmed. Each word weighs the more the rarer it is,

    w = idf · (common_weight if it is a word of any research plan) · (asked_weight if the question holds it),
    idf = log(1 + n / df) / log(1 + n),    n criteria in the rubric, df of which hold the word.

A passage is one to `window` consecutive sentences; a sentence that is no prose adds nothing to it, nor does any in a plan that is none
(papergym.judge.prose). It counts if it is on the subject, that is, names something that the question names. A passage speaks for one
criterion, the one of whose weight it covers the largest share, provided that it holds at least `least_words` words of it, one of which the
question lacks: so neither a single word nor the question said again covers anything. The coverage of a criterion is the largest such share,
and the criterion holds from a threshold on. A long plan has many passages, so that one of them hits by chance: the threshold rises with the
square root of the length,

    threshold(plan) = min(1, threshold · sqrt(max(1, words / free_words))).

A sentence that quotes a criterion says nothing: it shares `quoted_words` consecutive words with one, which neither the reference nor the
question has. Criteria are made from references, so their own words are no sign of quoting; what a rubric puts around them is.

Words count once, so repetition adds nothing. Meaning and negation are not seen: this is a baseline. The threshold is low because a plan has
to guess the words of one particular paper. How far the verdicts agree with a reader, and what they pay for, papergym.judge.exam measures.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from papergym.environment import Environment
from papergym.errors import InputError
from papergym.judge.prose import is_prose, is_sentence
from papergym.judge.words import all_words, common_stems, content_words, sentences, stem, stop_words


@dataclass(frozen=True)
class CoverageRule:
    """The constants of the rule. Sentences have at most `longest_sentence` words: longer ones are cut there."""

    threshold: float = 0.08  # coverage from which on a criterion holds, in a plan of at most free_words words
    free_words: int = 150
    window: int = 3
    longest_sentence: int = 40
    common_weight: float = 0.4
    asked_weight: float = 0.5
    least_words: int = 2  # different words of a criterion that a passage must hold
    topic_words: int = 1  # uncommon content words of the question that a passage must hold
    quoted_words: int = 8
    fewest_words: int = 3  # a criterion with fewer words outside the question can't be told from a paraphrase of it: not scored

    def __post_init__(self) -> None:
        for name in ("threshold", "common_weight", "asked_weight"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"lexical judge, {name} {getattr(self, name)}: a number from 0 to 1 is needed")
        for name in ("free_words", "window", "longest_sentence", "least_words", "quoted_words", "fewest_words"):
            if getattr(self, name) < 1:
                raise InputError(f"lexical judge, {name} {getattr(self, name)}: a number from 1 is needed")


def rubric_verdicts(environment: Environment, plan: str, rule: CoverageRule) -> list[bool | None]:
    """Whether each criterion holds; None for one that the rule can't score."""
    threshold = min(1.0, rule.threshold * length_factor(plan, rule))
    return [None if share is None else share >= threshold for share in rubric_coverage(environment, plan, rule)]


def length_factor(plan: str, rule: CoverageRule) -> float:
    """How much more a plan of this length has to show: 1 up to free_words words, then growing with the square root of the length."""
    return math.sqrt(max(1.0, len(all_words(plan)) / rule.free_words))


def rubric_coverage(environment: Environment, plan: str, rule: CoverageRule) -> list[float | None]:
    """Coverage in [0, 1] of each criterion by the plan; None for a criterion that the rule can't score."""
    asked, topic = question_stems(environment.question), topic_stems(environment.question)
    rubric = rubric_weights(environment.question, tuple(criterion.text for criterion in environment.rubric), rule)
    best: list[float | None] = [0.0 if weights else None for weights in rubric]
    for passage in passages(without_quotes(environment, plan, rule), rule) if is_prose(plan) else ():
        if len(passage & topic) < min(rule.topic_words, len(topic)):
            continue
        shares = [_share(weights, passage, asked, rule) for weights in rubric]
        most = max(shares, default=0.0)
        best = [share if share == most and was is not None and share > was else was for share, was in zip(shares, best)]
    return best


def without_quotes(environment: Environment, plan: str, rule: CoverageRule) -> str:
    """The plan without the sentences that quote a criterion; the plan itself when there are none."""
    criteria = tuple(criterion.text for criterion in environment.rubric)
    quotes = _quotes(criteria, environment.reference or "", environment.question, rule.quoted_words)
    said = sentences(plan)
    kept = [sentence for sentence in said if quotes.isdisjoint(_runs(sentence, rule.quoted_words))]
    return plan if len(kept) == len(said) else "\n".join(kept)


@lru_cache(maxsize=1024)
def _quotes(criteria: tuple[str, ...], reference: str, question: str, length: int) -> frozenset[tuple[str, ...]]:
    """Runs of words that only the criteria have."""
    return frozenset().union(*(_runs(text, length) for text in criteria)) - _runs(reference, length) - _runs(question, length)


def _runs(text: str, length: int) -> set[tuple[str, ...]]:
    words = all_words(text)
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


@lru_cache(maxsize=1024)
def question_stems(question: str) -> frozenset[str]:
    """Stems of the content words of a question."""
    return frozenset(content_words(question))


def topic_stems(question: str) -> frozenset[str]:
    """Stems of what a question is about: those that aren't words of any research plan."""
    return question_stems(question) - common_stems()


def _share(weights: Mapping[str, float], passage: frozenset[str], asked: frozenset[str], rule: CoverageRule) -> float:
    """The share of a criterion's weight that a passage covers; 0 if it holds too few of its words, or none that the question lacks."""
    words = weights.keys() & passage
    if len(words) < rule.least_words or words <= asked:
        return 0.0
    return math.fsum(weights[word] for word in words) / math.fsum(weights.values())  # fsum: the same in every order, and sets have none


@lru_cache(maxsize=4096)
def rubric_weights(question: str, criteria: tuple[str, ...], rule: CoverageRule) -> list[dict[str, float]]:
    """stem -> weight for each criterion; empty for one with too few words that the question lacks. "Plan" says nothing about a plan."""
    asked = question_stems(question)
    words = [frozenset(content_words(text)) - {"plan"} for text in criteria]
    frequency = Counter(word for criterion in words for word in criterion)
    n = len(criteria)
    weight = {
        word: math.log(1 + n / df)
        / math.log(1 + n)
        * (rule.common_weight if word in common_stems() else 1.0)
        * (rule.asked_weight if word in asked else 1.0)
        for word, df in frequency.items()
    }
    return [{word: weight[word] for word in sorted(chosen)} if len(chosen - asked) >= rule.fewest_words else {} for chosen in words]


@lru_cache(maxsize=64)
def passages(plan: str, rule: CoverageRule) -> Sequence[frozenset[str]]:
    """The stems of the content words of every run of one to `window` sentences; sentences that aren't prose add nothing. Each set once."""
    stems = []
    for sentence in sentences(plan):
        words = all_words(sentence)
        prose = is_sentence(words, sentence)
        for start in range(0, len(words), rule.longest_sentence):
            piece = words[start : start + rule.longest_sentence]
            stems.append(frozenset(stem(word) for word in piece if word not in stop_words()) if prose else frozenset())
    runs = (stems[first : first + size] for size in range(1, rule.window + 1) for first in range(len(stems) - size + 1))
    return list(dict.fromkeys(frozenset().union(*run) for run in runs))
