"""Whether text reads as prose, by its function words alone: a list of content words has too few of them, shuffled text has them in places
where English doesn't. No dictionary and no grammar: nonsense with its function words in place passes.
"""

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise

from papergym.judge.words import sentences, stop_words

LEAST_FUNCTION_WORDS = 0.2  # share of stop words below which a sentence is a list of words
SENTENCE_SLACK, PLAN_SLACK = 1 / 6, 1 / 16  # misplaced pairs allowed for each word that has rules: one sentence is short, a plan is not

_TOKEN = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")


@lru_cache(maxsize=64)
def is_prose(text: str) -> bool:
    """Whether a plan reads as prose: at most one misplaced pair, and one more for every sixteen words that have rules.

    Shuffled sentences have about one in six, sentences of papers and of a small model one in a hundred or fewer.
    """
    pairs = [_misplaced(sentence) for sentence in sentences(text)]
    return sum(wrong for wrong, _ in pairs) <= 1 + PLAN_SLACK * sum(ruled for _, ruled in pairs)


def is_sentence(words: Sequence[str], text: str) -> bool:
    """The same for one sentence, given as its words of two letters or more and as text, with a bar that suits short ones."""
    wrong, ruled = _misplaced(text)
    return sum(word in stop_words() for word in words) >= LEAST_FUNCTION_WORDS * len(words) and wrong <= SENTENCE_SLACK * ruled


@lru_cache(maxsize=1024)
def _misplaced(sentence: str) -> tuple[int, int]:
    """(pairs of neighbours that English doesn't have, words that have a rule), of one sentence."""
    tokens = _TOKEN.findall(sentence.casefold())
    rules = _rules()
    wrong = sum(following in rules[word] for word, following in pairwise(tokens) if word in rules)
    return wrong, sum(word in rules for word in tokens)


@cache
def _rules() -> dict[str, frozenset[str]]:
    rules: dict[str, frozenset[str]] = {}
    for line in files("papergym.judge.words").joinpath("follow.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            words, _, never = line.partition(":")
            rules |= dict.fromkeys(words.split(), frozenset(never.split()))
    return rules
