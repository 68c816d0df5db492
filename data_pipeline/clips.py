"""Cuts a sentence down to the part that can be quoted: what is left are the paper's own words, only fewer."""

import re

from papergym.data_pipeline.english import STOP_WORDS, verb_forms
from papergym.data_pipeline.math_text import DISPLAY, HOLE
from papergym.data_pipeline.words import words

_ANNOUNCING = words("read reads form follows namely becomes equals obtain fit define solve write satisfy get per yield")
# What a section or figure is said to do, the work does: "Section 4 validates ..." -> "Validates ...". No noun looks like one of these.
NOTED = words(
    "validates validate investigates investigate considers examines examine explores explore compares evaluates assesses verifies"
)
_QUANTITY = (
    r"(?:coefficients?|probabilit\w+|rates?|distributions?|errors?|ranks?|accurac\w+|dependence|shares?|fractions?|times?|costs?|"
    r"correlations?|spectr\w+|profiles?|residuals?|effects?|scores?)"
)
_LEAD = re.compile(
    rf"^(?:Finally, |Then, |Lastly, )?(?:Sections?|Figures?|Figs?\.|Tables?) {HOLE}(?:(?:,|,? and) {HOLE})* (?:will )?"
    rf"(?:then |further |similarly |also )?(?P<clip>(?P<verb>[a-z]+) .*)$"
)
_SHOWS = re.compile(rf"shows? (?:the|all|how|each)\b (?:[\w-]+ ){{0,3}}?{_QUANTITY}\b(?!.*\bthat\b)")
_ITEM_END = re.compile(r"(?:[;,]|[;,] (?:and|or))$")


def quotable(sentence: str) -> str:
    """Returns the sentence, or its part that stands alone where the whole points outside itself, runs into a display or is an item."""
    lead = _LEAD.match(sentence)
    if lead and (lead.group("verb") in NOTED or _SHOWS.match(lead.group("clip"))) and not {HOLE, DISPLAY} & set(lead.group("clip")):
        return lead.group("clip")[0].upper() + lead.group("clip")[1:]
    if _ITEM_END.search(sentence) and re.match(r"[A-Z]", sentence):
        sentence = _ITEM_END.sub(".", sentence)
    return _before_display(_before_pointing_clause(sentence))


def _before_pointing_clause(sentence: str) -> str:
    """ "We assume X; for details see <reference>." -> "We assume X." """
    head, semicolon, tail = sentence.partition("; ")
    return head + "." if semicolon and HOLE in tail and HOLE not in head and len(head.split()) >= 5 else sentence


def _before_display(sentence: str) -> str:
    """A sentence that runs into a display or a list, cut there where the words before it make a sentence; else the sentence as it is.

    "The tail is fitted by a mixture, <display> with w a weight." -> "The tail is fitted by a mixture."
    """
    if DISPLAY not in sentence and not sentence.endswith(":"):
        return sentence
    head = sentence.partition(DISPLAY)[0].rstrip(" ,:;—–")
    last = re.sub(r"[^\w-]", "", head.split()[-1]).lower() if head.split() else ""
    forms = verb_forms()
    unfinished = (
        last in STOP_WORDS
        or last in _ANNOUNCING
        or last.endswith(("ing", "ly"))
        or len(last) < 2
        or any(last in forms[kind] for kind in ("third", "past"))
        or head.lower().endswith(("the model", "the equation", "the form"))
    )
    return sentence if unfinished or len(head.split()) < 8 else head + "."
