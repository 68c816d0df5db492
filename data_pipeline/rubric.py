"""Ten binary criteria from the question and the sentences of the reference, each about one decision that the question doesn't give away.

A sentence is worth a criterion by the share and the number of its content words that the question lacks, by signs of a decision
(numbers, guards, comparisons, reasons), and by how little it repeats the criteria chosen before it. It must then survive rewriting
(rewrite.criterion_text) and the checks on what a judge can read without the paper.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from papergym.data_pipeline import cues
from papergym.data_pipeline.abbreviations import spell_out
from papergym.data_pipeline.english import STOP_WORDS, content_words, stem
from papergym.data_pipeline.passages import Sentence
from papergym.data_pipeline.rewrite import criterion_text
from papergym.environment import Criterion

CRITERIA = 10
MIN_NOVEL_WORDS = 4
MIN_NOVEL_SHARE = 0.4
MAX_OVERLAP = 0.5  # Jaccard, between two criteria
SHARED_FOR_BOTH = 0.3  # of its content words with the question: then the question alone points to the criterion's subject
_UNREADABLE = re.compile(
    r"\b(?:this|these|those(?! (?:that|who|which|of|with|from|whose|in|resistant))|such(?! as)|their (?:results?|approach|method|work|"
    r"findings)|former|latter|"
    r"aforementioned|previously|earlier (?:sections?|work)|the (?:above|below|following|previous|next)|(?:results?|numbers?|terms?|"
    r"methods?) (?:above|below)|here\b|(?:above|below|earlier|"
    r"later|before)(?=[.,;:)]|$)|"
    r"(?:mentioned|described|discussed|introduced|defined|shown|given|detailed) (?:above|below|here|earlier|in (?:the|this|a) (?:next|"
    r"text|sections?|supplement\w*|appendix))|"
    r"paper|manuscript|letter|article|section|appendix|supplement(?:ary|al)?|figure|table|equation|respectively|it is (?:clear|"
    r"important|interesting|possible|impossible|worth)|"
    r"e\.g|i\.e|the authors?|so-called|is called|are called|denotes?|in that case|refers? to|future work|remarkabl\w+|interesting\w*|"
    r"note that|of course|recall)\b",
    re.IGNORECASE,
)
_STRANGE = re.compile(
    r"\b(?!(?:API|CPU|GPU|SQL|GB|TB|MB|ID|UI|USA?|UK|EU|GDP|DNA|RNA|MHz|GHz|kHz|MiB|GiB)\b)\w*(?:[A-Z]\w?[A-Z]|[A-Z]\d)[A-Za-z\d]*\b"
)
_DATE = re.compile(
    r"\b(?:19|20)\d\d (?:January|February|March|April|May|June|July|August|September|October|November|December)|\b(?:January|February|"
    r"March|April|June|July|August|September|October|November|December) \d"
)
_PRONOUN_EARLY = re.compile(
    r"^(?:\S+ ){0,5}?(?:it|its|them|their|they)\b|^[^,]*, (?:it|they|he|she)\b|^(?:While|Although|Though|Because|Since|As|When|If|"
    r"Whereas)\b.*, (?:it|they)\b|, so it\b|^(?:[\w-]+ ){1,6}(?:would|could|might|may)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Scored:
    text: str
    dimension: str
    words: frozenset[str]
    value: float
    shared: float
    order: int


def rubric(
    question: str,
    method: Sequence[Sentence],
    experiment: Sequence[Sentence],
    abbreviations: Mapping[str, str] | None = None,
    *,
    size: int = CRITERIA,
) -> tuple[Criterion, ...]:
    """Returns up to `size` criteria, the experiment's after the method's, each in the order of the paper."""
    asked = content_words(question)
    prose = " ".join(sentence.text for sentence in (*method, *experiment)) + " " + question
    lowercase = set(re.findall(r"(?<![.?!] )\b[a-z][a-z'-]+\b", prose))
    candidates: list[_Scored] = []
    for dimension, sentences in (("method", method), ("experiment", experiment)):
        for sentence in sentences:
            for part in _parts(sentence.text):
                text = criterion_text(part, lowercase)
                text = text and _resolve(text, asked)
                text = text and spell_out(text, {s: l for s, l in (abbreviations or {}).items() if s not in question})
                if text and _is_readable(text, question) and (scored := _score(text, dimension, asked, len(candidates))):
                    candidates.append(scored)
    chosen = _choose(candidates, size)
    return tuple(
        Criterion(item.text, item.dimension, "both" if item.shared >= SHARED_FOR_BOTH else "answer")
        for item in sorted(chosen, key=lambda item: item.order)
    )


def _parts(sentence: str) -> list[str]:
    """A sentence, or its clauses where a semicolon joins independent ones: one decision each."""
    parts = [part.strip() for part in sentence.split(";")]
    if len(parts) == 1 or any(part.count("(") != part.count(")") for part in parts):
        return [sentence]
    whole = [part[0].upper() + part[1:] for part in parts if part and part[0].isascii()]
    return [part for part in whole if not cues.is_dangling(part) and len(part.split()) >= 6]


def _resolve(text: str, asked: set[str]) -> str:
    """ "these strategies" are the strategies, where the question speaks of strategies."""

    def definite(match: re.Match) -> str:
        words = [word for word in match.group("words").split() if word.lower() not in STOP_WORDS]
        article = "The" if match.group("this")[0].isupper() else "the"
        return f"{article} {match.group('words')}" if any(stem(word) in asked for word in words) else match.group()

    return re.sub(r"\b(?P<this>[Tt]his|[Tt]hese) (?P<words>[\w-]+(?: [\w-]+)?)", definite, text)


def _is_readable(text: str, question: str) -> bool:
    words = text.split()
    body = re.sub(r"^(?:In the plan, |The plan )", "", text)
    return (
        not re.match(r"(?:[Mm]ost|[Mm]any|[Ss]everal|[Ss]ome|[Ss]tandard|[Ee]xisting|[Tt]raditional\w*)\b", body)
        and 7 <= len(words) <= 52
        and not _UNREADABLE.search(body)
        and not _PRONOUN_EARLY.search(body)
        and not _DATE.search(body)
        and not cues.is_dangling(body[0].upper() + body[1:])
        and cues.is_whole(text)
        and not cues.is_result(text)
        and cues.symbol_share(text) < 0.09
        and not _names_stranger(body, question)
    )


def _names_stranger(body: str, question: str) -> bool:
    """Its subject is a code name that only the paper explains (TF2, C-LSTM)."""
    first = body.split()[0].strip(",")
    return bool(re.search(r"[A-Z].*[A-Z\d]|\d.*[A-Z]", first)) and first not in question


def _score(text: str, dimension: str, asked: set[str], order: int) -> _Scored | None:
    words = content_words(text)
    novel = words - asked
    if len(novel) < min(MIN_NOVEL_WORDS, math.ceil(0.6 * len(words))) or len(novel) < MIN_NOVEL_SHARE * len(words):
        return None
    value = min(len(novel), 16) / 4 + 2 * len(novel) / len(words)
    value += 1.8 * cues.is_action(text) + 0.6 * bool(re.search(r"\b(?:each|every|all|at least|at most|both|same)\b", text))
    value += (
        1.0 * bool(cues.RATIONALE.search(text)) + 0.8 * text.startswith(("The plan", "For ", "To ")) + 0.5 * bool(re.search(r"\d", text))
    )
    value += 0.5 * (dimension == "experiment" and bool(cues.EXPERIMENT_CUE.search(text)))
    value -= 0.6 * len(cues.GENERIC.findall(text)) + 12 * cues.symbol_share(text) + max(0, len(text.split()) - 34) / 12
    value -= 0.7 * len(_STRANGE.findall(re.sub(r"\([A-Z][\w-]*\)", "", text))) + 0.3 * max(
        0, len(re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", text)) - 1
    )
    value -= 1.5 * bool(re.search(r"\b(?:raises|lowers|rises|falls|nearly|no effect|tends?)\b|^In the plan, of \d", text))
    return _Scored(text, dimension, frozenset(words), value, 1 - len(novel) / len(words), order)


def _choose(candidates: list[_Scored], size: int) -> list[_Scored]:
    """The best ones that differ from each other, at least three of each dimension where there are as many."""
    chosen: list[_Scored] = []

    def add(pool: list[_Scored], limit: int) -> None:
        for item in sorted(pool, key=lambda item: (-item.value, item.order)):
            if len(chosen) >= limit:
                return
            if item not in chosen and all(_overlap(item, other) <= MAX_OVERLAP for other in chosen):
                chosen.append(item)

    floor = min(3, size // 3)
    add([item for item in candidates if item.dimension == "method"], floor)
    add([item for item in candidates if item.dimension == "experiment"], len(chosen) + floor)
    add(candidates, size)
    return chosen


def _overlap(one: _Scored, other: _Scored) -> float:
    return len(one.words & other.words) / len(one.words | other.words)
