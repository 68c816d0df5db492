"""Question and reference in a model's words. What each may be made of is its signature: no character of the one can reach the other."""

import re
from collections.abc import Callable
from typing import Any

from papergym.data_pipeline.lm.faithful import is_numerical_result
from papergym.data_pipeline.lm.replies import Rejected, Unusable, Voice, record_schema
from papergym.data_pipeline.prompts import PROMPTS
from papergym.data_pipeline.sentences import split_sentences
from papergym.judge.prompts import fenced

QUESTION_WORDS, REFERENCE_WORDS = (30, 400), (80, 900)  # that are accepted
_PAPER = re.compile(
    r"\b(?:th(?:is|e) (?:paper|article|manuscript|letter)|the authors|our (?:method|approach|work|model|experiments?)|"
    r"we (?:propose|present|introduce|show|find|found|observed?))\b|\\(?:cite\w*|ref|eqref|label)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,|\\,|~| )(?=\d{3}\b)")


async def write_question(voice: Voice, goal: str, background: str, *, approach: str | None = None) -> str:
    """The research question from goal and background. approach: the method, where a test of it is what is asked for.

    Raises Rejected when no reply is a question that stands by itself and brings no number of its own.
    """
    shown = "" if approach is None else f"\n# Approach to be tested\n\n{fenced(approach)}\n"
    messages = PROMPTS.messages(
        "question",
        goal=fenced(goal),
        background=fenced(background),
        approach=shown,
        asked="a method and an experimental design"
        if approach is None
        else "an experimental design that tests the approach, which it gives",
        words="100 to 200" if approach is None else "150 to 350",
    )
    sources = "\n".join((goal, background, approach or ""))

    def read(record: Any) -> str:
        text = record["question"]
        _check(text, QUESTION_WORDS)
        if numbers := invented_numbers(text, sources):
            raise Unusable(f"the material has no {numbers[0]}")
        return text

    return await voice.ask("writing the question", messages, record_schema(question={"type": "string"}), read)


async def write_reference(voice: Voice, *, method: str = "", experiment: str = "", dropped: Callable[[int], None]) -> str:
    """The reference plan from method and experiment, or one of them.

    A sentence with a measured outcome, or with a number that the material lacks, is asked to be put right; if one is left after all
    attempts it goes, and dropped(count) is told. Raises Rejected when no reply is long enough without such sentences.
    """
    material = "\n\n".join(f"# {name}\n\n{fenced(text)}" for name, text in (("Method", method), ("Experiment", experiment)) if text)
    parts = (
        "first the method, then the experimental design" if method and experiment else "the method" if method else "the experimental design"
    )
    messages = PROMPTS.messages("reference", material=material, parts=parts, words="250 to 500")
    cleaned: list[tuple[str, int]] = []

    def read(record: Any) -> str:
        text = record["reference"]
        _check(text, REFERENCE_WORDS)
        kept, bad = _sifted(text, f"{method}\n{experiment}")
        if not bad:
            return text
        if len(kept.split()) >= REFERENCE_WORDS[0]:
            cleaned.append((kept, len(bad)))
        raise Unusable(f"this states an outcome, or a number that the material lacks: {bad[0][:200]}")

    try:
        return await voice.ask("writing the reference", messages, record_schema(reference={"type": "string"}), read)
    except Rejected:
        if not cleaned:
            raise
    text, count = min(cleaned, key=lambda item: item[1])
    dropped(count)
    return text


def invented_numbers(text: str, sources: str) -> list[str]:
    """The numbers of a text that its sources lack, in order."""
    known = set(_NUMBER.findall(_GROUPING.sub("", sources)))
    return [number for number in _NUMBER.findall(_GROUPING.sub("", text)) if number not in known]


def _sifted(text: str, sources: str) -> tuple[str, list[str]]:
    """The text without the sentences that no plan can hold, and these."""
    bad: list[str] = []
    paragraphs = []
    for paragraph in re.split(r"\n\s*", text):
        good: list[str] = []
        for sentence in split_sentences(paragraph):
            (bad if is_numerical_result(sentence) or invented_numbers(sentence, sources) else good).append(sentence)
        paragraphs.append(" ".join(good))
    return "\n\n".join(filter(None, paragraphs)), bad


def _check(text: str, bounds: tuple[int, int]) -> None:
    words = len(text.split())
    if not bounds[0] <= words <= bounds[1]:
        raise Unusable(f"it has {words} words")
    if match := _PAPER.search(text):
        raise Unusable(f"it says {match.group()!r}, and no paper may be spoken of")
