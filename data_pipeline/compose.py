"""The question and the reference plan. What each may know is its signature: no sentence of the one can reach the other."""

import re
from collections.abc import Mapping, Sequence

from papergym.data_pipeline.abbreviations import spell_out
from papergym.data_pipeline.aims import aim
from papergym.data_pipeline.names import without_names
from papergym.data_pipeline.passages import Sentence

_ASK_HOW = (
    "How would you find out? Propose a method and an experimental design: what you would build, assume or collect, what you "
    "would measure and against what, and how you would judge the outcome."
)
_ASK_BUILD = (
    "How would you go about it? Propose a method and an experimental design: how it would work, what it would be tested on "
    "and against what, and how you would judge whether it succeeds."
)
ASKS = (_ASK_HOW, _ASK_BUILD)  # one of them closes every question

_CONNECTIVE = re.compile(
    r"^(?:However|Moreover|Furthermore|In addition|Additionally|Finally|Also|But|Yet|And|Recently|Nevertheless|Thus|Therefore|Indeed|"
    r"In particular|For example|For instance|Similarly|In contrast|By contrast|Alternatively|Instead|Still|So|Hence|Meanwhile),? "
)
_MOOD = re.compile(r"^(?:Unfortunately|Fortunately|Interestingly|Surprisingly|Remarkably|Importantly|Notably|Of course|Clearly),? ")


def question(
    goal: Sequence[Sentence],
    background: Sequence[Sentence],
    abbreviations: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
) -> str | None:
    """Returns the question from goal and background alone: what is known, what is open, the ask. None when the goal can't be put as one."""
    aims = [text for sentence in goal if (text := aim(sentence.text))]
    if not aims:
        return None
    aims = [without_names(text, names or {}) or text for text in aims]
    known = [_smooth(sentence.text, first=index == 0) for index, sentence in enumerate(background)]
    if re.match(r"What is wanted|The aim is to (?:build|develop|design|find a|achieve|reduce|bound|improve|enable|provide)", aims[-1]):
        ask = _ASK_BUILD
    else:
        ask = _ASK_HOW
    text = " ".join((*known, *aims, ask))
    return spell_out(text, abbreviations or {})


def reference(method: Sequence[Sentence], experiment: Sequence[Sentence]) -> str:
    """Returns the reference plan from method and experiment alone, in the paper's own sentences."""
    parts = (("Method", method), ("Experiment", experiment))
    return "\n\n".join(f"{name}: {' '.join(sentence.text for sentence in sentences)}" for name, sentences in parts if sentences)


def _smooth(text: str, first: bool) -> str:
    """A connective can't open a paragraph, and nobody's knowledge is asked for."""
    text = re.sub(r"\bTo (?:the best of )?our knowledge,? (\w)", lambda match: match.group(1).upper(), text)
    text = re.sub(r",? to (?:the best of )?our knowledge,?", "", text)
    text = _MOOD.sub("", text)
    text = _CONNECTIVE.sub("", text) if first else text
    return text[0].upper() + text[1:]
