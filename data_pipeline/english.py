"""The little English that the rules need: content words, research verbs and their forms."""

import re
from functools import cache

from papergym.data_pipeline.words import load_lines, load_words

STOP_WORDS = load_words("stop_words")
AMBIGUOUS_NOUNS = load_words("nouns_too")
_DOUBLED = load_words("doubled")
_IRREGULAR = {base: tuple(forms) for base, *forms in map(str.split, load_lines("irregular_verbs"))}


def third_person(base: str) -> str:
    """train -> trains, match -> matches, apply -> applies."""
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "x", "ch", "sh", "z", "o")) else "s")


def past_forms(base: str) -> tuple[str, ...]:
    """Simple past and participle (British and American doubling both read)."""
    if base in _IRREGULAR:
        return (*_IRREGULAR[base], base + "ted") if base == "fit" else _IRREGULAR[base]
    if base.endswith("e"):
        return (base + "d",)
    if base.endswith("y") and base[-2] not in "aeiou":
        return (base[:-1] + "ied",)
    doubled = base + base[-1] + "ed"
    return (doubled,) if base in _DOUBLED else (base + "ed", doubled) if base[-1] in "lpt" else (base + "ed",)


def gerund(base: str) -> str:
    """train -> training, use -> using, run -> running."""
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return base[:-1] + "ing"
    return base + (base[-1] if base in _DOUBLED else "") + "ing"


@cache
def verb_forms() -> dict[str, dict[str, str]]:
    """{"base" | "third" | "gerund" | "past": {form: base}} over the research verbs."""
    bases = sorted(load_words("verbs") | set(_IRREGULAR))
    return {
        "base": {base: base for base in bases},
        "third": {third_person(base): base for base in bases},
        "gerund": {gerund(base): base for base in bases},
        "past": {form: base for base in bases for form in past_forms(base)},
    }


def stem(word: str) -> str:
    """A crude stem, enough to tell that two texts speak of the same thing: simulations, simulated, simulate -> simulat."""
    word = word.lower().removesuffix("'s")
    for suffix, rest in (("ies", 3), ("ing", 4), ("ed", 3), ("ions", 4), ("ion", 4), ("es", 4), ("s", 3), ("ly", 4), ("al", 5), ("e", 3)):
        if word.endswith(suffix) and len(word) - len(suffix) >= rest and not (suffix == "s" and word.endswith(("ss", "us", "is"))):
            word = word[: -len(suffix)] + ("y" if suffix == "ies" else "")
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls" else word.removesuffix("e")


def content_words(text: str) -> set[str]:
    """Stems of the words that carry content."""
    return {stem(word) for word in re.findall(r"[^\W\d_][\w'-]*[^\W_]", text) if word.lower() not in STOP_WORDS}
