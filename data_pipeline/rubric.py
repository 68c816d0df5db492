"""Ten binary criteria from the question and the sentences of the reference, each about one decision that the question doesn't give away.

A sentence is worth a criterion by the share and the number of its content words that the question lacks, by signs of a decision
(numbers, guards, comparisons, reasons), and by how little it repeats the criteria chosen before it. It must then survive rewriting
(rewrite.criteria_of) and the checks on what a judge can read without the paper.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from papergym.data_pipeline.abbreviations import spell_out
from papergym.data_pipeline.english import STOP_WORDS, content_words, stem
from papergym.data_pipeline.passages import Sentence
from papergym.data_pipeline.rewrite import criteria_of
from papergym.data_pipeline.worth import is_readable, is_setting, value
from papergym.environment import DIMENSIONS, Criterion

CRITERIA = 10
MIN_NOVEL_WORDS = 4
MIN_NOVEL_SHARE = 0.4
DISTINCT, MAX_OVERLAP = 0.3, 0.5  # shared words of two criteria: preferred, and tolerated to make up the number
MAX_SETTINGS = 2
SHARED_FOR_BOTH = 0.3  # of its content words with the question: then the question alone points to the criterion's subject


@dataclass(frozen=True)
class _Scored:
    text: str
    dimension: str
    words: frozenset[str]
    value: float
    shared: float
    order: int
    setting: bool


def rubric(
    question: str,
    method: Sequence[Sentence],
    experiment: Sequence[Sentence],
    abbreviations: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    *,
    size: int = CRITERIA,
) -> tuple[Criterion, ...]:
    """Returns up to `size` criteria, the experiment's after the method's, each in the order of the paper.

    abbreviations: to be spelled out; names: the paper's own, with the noun that stands for each (names.coined_names).
    """
    asked = content_words(question)
    prose = " ".join(sentence.text for sentence in (*method, *experiment)) + " " + question
    lowercase = set(re.findall(r"(?<![.?!] )\b[a-z][a-z'-]+\b", prose))
    candidates: list[_Scored] = []
    for dimension, sentences in (("method", method), ("experiment", experiment)):
        for sentence in sentences:
            for text in criteria_of(sentence.text, names or {}, lowercase):
                text = _resolve(text, asked)
                text = spell_out(text, {s: l for s, l in (abbreviations or {}).items() if s not in question})
                if is_readable(text, question) and (scored := _score(text, dimension, question, asked, len(candidates))):
                    candidates.append(scored)
    chosen = _choose(candidates, size)
    return tuple(
        Criterion(item.text, item.dimension, "both" if item.shared >= SHARED_FOR_BOTH else "answer")
        for item in sorted(chosen, key=lambda item: item.order)
    )


def _resolve(text: str, asked: set[str]) -> str:
    """ "these strategies" are the strategies, where the question speaks of strategies."""

    def definite(match: re.Match) -> str:
        words = [word for word in match.group("words").split() if word.lower() not in STOP_WORDS]
        article = "The" if match.group("this")[0].isupper() else "the"
        return f"{article} {match.group('words')}" if any(stem(word) in asked for word in words) else match.group()

    return re.sub(r"\b(?P<this>[Tt]his|[Tt]hese) (?P<words>[\w-]+(?: [\w-]+){0,3})", definite, text)


def _score(text: str, dimension: str, question: str, asked: set[str], order: int) -> _Scored | None:
    words = content_words(text)
    novel = words - asked
    if len(novel) < min(MIN_NOVEL_WORDS, math.ceil(0.6 * len(words))) or len(novel) < MIN_NOVEL_SHARE * len(words):
        return None
    return _Scored(
        text, dimension, frozenset(words), value(text, question, asked, novel, words), 1 - len(novel) / len(words), order, is_setting(text)
    )


def _choose(candidates: list[_Scored], size: int) -> list[_Scored]:
    """The best ones that differ from each other: at least three of each dimension and at most MAX_SETTINGS settings, where that can be."""
    chosen: list[_Scored] = []
    ranked = sorted(candidates, key=lambda item: (-item.value, item.order))

    def add(dimensions: tuple[str, ...], limit: int, overlap: float, settings: int, alike: Callable[[_Scored, _Scored], float]) -> None:
        for item in ranked:
            if len(chosen) >= limit:
                return
            if item in chosen or item.dimension not in dimensions or (item.setting and sum(c.setting for c in chosen) >= settings):
                continue
            if all(alike(item, other) <= overlap for other in chosen):
                chosen.append(item)

    floor = min(3, size // 3)
    add(("method",), floor, DISTINCT, MAX_SETTINGS, _overlap)
    add(("experiment",), len(chosen) + floor, DISTINCT, MAX_SETTINGS, _overlap)
    add(DIMENSIONS, size, DISTINCT, MAX_SETTINGS, _overlap)
    add(DIMENSIONS, size, MAX_OVERLAP, size, _jaccard)  # where there is little to choose from
    return chosen


def _jaccard(one: _Scored, other: _Scored) -> float:
    return len(one.words & other.words) / len(one.words | other.words)


def _overlap(one: _Scored, other: _Scored) -> float:
    """Shared content words: of all (Jaccard), or of the shorter one where both also share a phrase ("volunteers are allowed")."""
    if not _pairs(one.text) & _pairs(other.text):
        return _jaccard(one, other)
    return max(_jaccard(one, other), 1.5 * len(one.words & other.words) / min(len(one.words), len(other.words)) - 0.1)


def _pairs(text: str) -> set[tuple[str, str]]:
    """Neighbouring content words."""
    return set(pairwise(stem(word) for word in re.findall(r"[^\W\d_][\w'-]*[^\W_]", text) if word.lower() not in STOP_WORDS))
