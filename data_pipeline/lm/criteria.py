"""The rubric: proposals from the question alone and with the reference, merged and ranked by a model (paper, 3.1.2 and D.2)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from papergym.data_pipeline.english import AMBIGUOUS_NOUNS, content_words, stem, verb_forms
from papergym.data_pipeline.lm.faithful import is_numerical_result
from papergym.data_pipeline.lm.replies import Rejected, Unusable, Voice, record_schema
from papergym.data_pipeline.prompts import PROMPTS
from papergym.data_pipeline.sentences import split_sentences
from papergym.data_pipeline.words import load_words
from papergym.environment import Criterion
from papergym.judge.prompts import fenced

WORDS = (6, 60)  # of a criterion
LEAST_DEFINITE = 3  # content words that would make no sense for any question
ALIKE = 0.75  # shared share of content words, from which two criteria are the same
_GENERIC = frozenset(stem(word) for word in load_words("generic"))
_GRADED = re.compile(
    r"\b(?:how (?:well|much)|to what extent|degree to which|adequate\w*|sufficient(?:ly)?|appropriate\w*|reasonabl[ey]|properly|clearly|"
    r"thorough(?:ly)?|partially|ideally|preferably|(?:if|where|when|as far as) possible|may|might|could|should|etc|and/or)\b",
    re.IGNORECASE,
)
_ENUMERATED = re.compile(r";|\(\s*(?:i{1,3}|iv|[1-4a-d])\s*\)|\b(?:as well as|and also|but also|in addition)\b", re.IGNORECASE)
_SOURCE = re.compile(r"\breference (?:plan|answer|solution)\b|\b(?:this|the) paper\b|\bauthors\b|\bthe question\b", re.IGNORECASE)
_RANKING = record_schema(
    ranking={
        "type": "array",
        "items": record_schema(criterion={"type": "integer"}, doubles={"type": "array", "items": {"type": "integer"}}),
    }
)


@dataclass(frozen=True)
class Proposal:
    """A criterion that a model proposed. source: "question" | "answer"."""

    text: str
    dimension: str
    source: str
    model: str


@dataclass
class RubricCounts:
    """proposed: criteria in replies. faulty: those refused by `fault`. doubles: those that say what a higher ranked one says."""

    proposed: int = 0
    faulty: int = 0
    doubles: int = 0


@dataclass(frozen=True)
class Voted:
    """A criterion of the rubric, and how many models proposed it in some words."""

    criterion: Criterion
    votes: int


def fault(text: str, question: str) -> str | None:
    """Why a text is no criterion, None if it is one: a statement about a plan that is atomic, binary and definite."""
    length = len(text.split())
    if not text.startswith("The plan "):
        return 'does not begin with "The plan"'
    if not WORDS[0] <= length <= WORDS[1]:
        return f"has {length} words"
    if len(split_sentences(text)) > 1 or "?" in text:
        return "is not one statement"
    if _ENUMERATED.search(text) or _second_demand().search(text):
        return "asks for more than one thing"
    if match := _GRADED.search(text):
        return f"is no matter of yes or no: {match.group()}"
    if match := _SOURCE.search(text):
        return f"speaks of {match.group()}"
    if is_numerical_result(text):
        return "asks for an outcome"
    definite = content_words(text) - _GENERIC
    if len(definite) < LEAST_DEFINITE:
        return "is generic"
    if definite <= content_words(question):
        return "only repeats the question"
    return None


@cache
def _second_demand() -> re.Pattern[str]:
    """ "… and compares …": a second verb that the plan is the subject of."""
    verbs = (form for form, base in verb_forms()["third"].items() if not {form, base} & AMBIGUOUS_NOUNS)
    return re.compile(rf"\b(?:and|or|but|while|then)\s+(?:it\s+|then\s+|also\s+|further\s+)?(?:{'|'.join(sorted(verbs))})\b")


async def propose(
    voice: Voice, source: str, question: str, reference: str, dimensions: Sequence[str], m: int, counts: RubricCounts
) -> list[Proposal]:
    """Up to m criteria from the question alone (source "question"), or from question and reference ("answer").

    Replies with too few usable criteria are asked to go on. Raises Rejected when there is none after all attempts.
    """
    shown = {"question": fenced(question)} | ({"reference": fenced(reference)} if source == "answer" else {})
    explained = [PROMPTS.texts["dimensions"][dimension] for dimension in dimensions]
    head = "Each is of one dimension:" if len(explained) > 1 else "All are of one dimension:"
    balance = "\nAbout two thirds are of the first one." if len(explained) > 1 else ""
    rules = PROMPTS.texts["rules"].format(dimensions="\n".join((head, *explained)) + balance, example=dimensions[0])
    messages = PROMPTS.messages(f"{source}_criteria", count=m, rules=rules, **shown)
    item = record_schema(dimension={"type": "string", "enum": list(dimensions)}, text={"type": "string"})
    accepted: dict[frozenset[str], Proposal] = {}
    seen: set[str] = set()

    def read(record: Any) -> list[Proposal]:
        faults = []
        for entry in record["criteria"]:
            text = " ".join(entry["text"].split())
            reason = fault(text, question)
            counts.proposed += text not in seen
            counts.faulty += reason is not None and text not in seen
            seen.add(text)
            if reason:
                faults.append(f'"{text[:80]}" {reason}')
            else:
                accepted.setdefault(frozenset(content_words(text)), Proposal(text, entry["dimension"], source, voice.use.name))
        if len(accepted) < m:
            why = "; ".join(faults[:4]) or "there are too few"
            raise Unusable(f"{len(accepted)} criteria of {m} can be used so far, give {m} others or better ones: {why}")
        return list(accepted.values())[:m]

    try:
        return await voice.ask(f"criteria from the {source}", messages, record_schema(criteria={"type": "array", "items": item}), read)
    except Rejected:
        if not accepted:
            raise
    return list(accepted.values())[:m]


async def merge(
    voice: Voice, proposals: Sequence[Proposal], question: str, reference: str, dimensions: Sequence[str], n: int, counts: RubricCounts
) -> list[Voted]:
    """The n most important criteria, best first, those that say the same put together; with every dimension, where there is one of it.

    The model names criteria by number, so that it can't write any. Raises Rejected when fewer than n different ones are left.
    """
    proposals = list({proposal.text + proposal.model + proposal.source: proposal for proposal in proposals}.values())
    if len(proposals) < n:
        raise Rejected(f"{len(proposals)} criteria were proposed that can be used, and {n} are needed")
    numbered = "\n".join(f"{number}. ({proposal.dimension}) {proposal.text}" for number, proposal in enumerate(proposals, 1))

    def read(record: Any) -> list[list[int]]:
        groups = [[entry["criterion"], *entry["doubles"]] for entry in record["ranking"]]
        named = [number for group in groups for number in group]
        if wrong := [number for number in named if not 1 <= number <= len(proposals)]:
            raise Unusable(f"there is no criterion {wrong[0]}")
        if repeated := [number for number in named if named.count(number) > 1]:
            raise Unusable(f"criterion {repeated[0]} appears twice")
        if missing := sorted(set(range(1, len(proposals) + 1)) - set(named)):
            raise Unusable(f"criterion {missing[0]} is missing")
        return groups

    messages = PROMPTS.messages("merge", question=fenced(question), reference=fenced(reference), candidates=fenced(numbered))
    groups = [[proposals[number - 1] for number in group] for group in await voice.ask("merging the criteria", messages, _RANKING, read)]
    distinct: list[list[Proposal]] = []
    for group in groups:
        same = next((kept for kept in distinct if _alike(kept[0].text, group[0].text)), None)
        if same is None:
            distinct.append(list(group))
        else:
            same.extend(group)
    counts.doubles += len(proposals) - len(distinct)
    if len(distinct) < n:
        raise Rejected(f"only {len(distinct)} criteria of {n} say different things")
    return [_voted(group) for group in _best(distinct, dimensions, n)]


def _best(ranked: list[list[Proposal]], dimensions: Sequence[str], n: int) -> list[list[Proposal]]:
    """The first n, the last of them giving way to the first of a dimension that would be missing."""
    best, rest = ranked[:n], ranked[n:]
    for dimension in dimensions:
        if not any(group[0].dimension == dimension for group in best):
            substitute = next((group for group in rest if group[0].dimension == dimension), None)
            if substitute is not None:
                best[-1] = substitute
    return best


def _alike(one: str, other: str) -> bool:
    first, second = content_words(one), content_words(other)
    return len(first & second) >= ALIKE * len(first | second)


def _voted(group: list[Proposal]) -> Voted:
    sources = {proposal.source for proposal in group}
    source = "both" if len(sources) > 1 else sources.pop()
    return Voted(Criterion(group[0].text, group[0].dimension, source), len({proposal.model for proposal in group}))
