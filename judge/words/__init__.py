"""Words as the lexical judge sees them: content words, stemmed lightly, weighted by how much they say about a subject."""

import re
from functools import cache, lru_cache
from importlib.resources import files

_WORD = re.compile(r"[^\W\d_]{2,}")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")
_VOWEL = re.compile("[aeiouy]")
# Endings of the forms of one word, after its plural s: planned, planning; estimated, estimator, estimation. What is left must have three
# letters (bid, bidding; fix, fixation) or four.
_AFTER_THREE = ["ed", "ing", "ate", "ated", "ating", "ator", "ation"]
_AFTER_FOUR = [
    *("er", "or", "ly", "edly", "ally", "ively", "ably", "able", "ible", "ment", "ement", "ness", "ant", "ance", "ence", "ity", "ivity"),
    *("ion", "ison", "ive", "ative", "ic", "al"),
    *("ise", "ised", "ising", "iser", "isation", "ize", "ized", "izing", "izer", "ization"),
]
_ENDINGS = sorted([(ending, 3) for ending in _AFTER_THREE] + [(ending, 4) for ending in _AFTER_FOUR], key=lambda pair: -len(pair[0]))


def content_words(text: str) -> list[str]:
    """Stems of the words that are neither stop words nor numbers nor single letters, in order."""
    return [stem(word) for word in all_words(text) if word not in stop_words()]


def all_words(text: str) -> list[str]:
    """Every word of two letters or more, case-folded; hyphens and numbers separate words."""
    return _WORD.findall(text.casefold())


def sentences(text: str) -> list[str]:
    """Splits at the ends of sentences and of lines, which also parts the items of lists."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The common beginning of the forms of a word, British and American: no dictionary, some false friends (general, generate)."""
    word = _singular(word.replace("yz", "ys"))
    shorter = _without_ending(word)
    while shorter != word:
        word, shorter = shorter, _without_ending(shorter)
    if len(word) > 3 and word[-1] in "eyi":
        word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "ias")):
        return word
    if word.endswith("is"):
        return word.removesuffix("is") if word.endswith(("ysis", "esis")) else word
    for plural, singular in (("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x"), ("ies", "y")):
        if word.endswith(plural) and len(word) > 4:
            return word.removesuffix(plural) + singular
    return word[:-1]


def _without_ending(word: str) -> str:
    for ending, shortest in _ENDINGS:
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= shortest and _VOWEL.search(root) and not (root[-1] == "e" and ending[0] == "a"):
            return root[:-1] if len(root) > 3 and root[-1] == root[-2] else root
    return word


@cache
def stop_words() -> frozenset[str]:
    """Words that say nothing about any subject."""
    return _read("stop.txt")


@cache
def action_stems() -> frozenset[str]:
    """Stems of the verbs by which a plan does something: compare, measure, simulate."""
    return frozenset(map(stem, _read("actions.txt")))


@cache
def common_stems() -> frozenset[str]:
    """Stems of the words that any research plan may hold."""
    return frozenset(map(stem, _read("common.txt")))


def _read(name: str) -> frozenset[str]:
    lines = files(__name__).joinpath(name).read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
