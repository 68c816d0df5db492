"""The four stages of a paper, copied out of it by a model: map over its sections, reduce within a stage (paper, 3.1.1 and D.1).

A model only points: what it copies is looked up in the section and kept as it stands there, and what it merges it names by number. So no
stage holds a word that the paper doesn't.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papergym.data_pipeline.extract import Extraction
from papergym.data_pipeline.latex import Paper
from papergym.data_pipeline.lm.faithful import Found, Passage, is_numerical_result
from papergym.data_pipeline.lm.pieces import Piece, halves, pieces
from papergym.data_pipeline.lm.replies import Rejected, TooLong, Unusable, Voice, record_schema
from papergym.data_pipeline.lm.tasks import together
from papergym.data_pipeline.passages import Sentence
from papergym.data_pipeline.prompts import PROMPTS
from papergym.environment import STAGES
from papergym.judge.prompts import fenced

ASKED, PLANNED = ("goal", "background"), ("method", "experiment")  # the question's stages, and the reference's
MOST = {"goal": 4, "background": 12, "method": 40, "experiment": 40}  # sentences of a merged stage
FEW = 2  # sentences: so many need no merging
_MAP = record_schema(**{stage: {"type": "string"} for stage in STAGES})
_REDUCE = record_schema(order={"type": "array", "items": {"type": "integer"}})


@dataclass
class Counts:
    """What became of the sentences that a model copied.

    copied: stand in their section. unfaithful: don't, and were dropped. results: were dropped as measured outcomes. crossing: were dropped
    from goal or background, since method or experiment hold them too. merged: were left out as repeating others or telling something else.
    """

    copied: int = 0
    unfaithful: int = 0
    results: int = 0
    crossing: int = 0
    merged: int = 0


@dataclass(frozen=True)
class _Copy:
    found: Found
    section: str

    def shares(self, other: "_Copy") -> bool:
        """Whether one says the other, or more."""
        one, two = f" {self.found.words} ", f" {other.found.words} "
        return one in two or two in one


async def extract(paper: Paper, voice: Voice, counts: Counts) -> Extraction:
    """The stages; one for which the sections have no sentence is empty. Raises Rejected when a reply stays unusable."""
    parts = pieces(paper, _longest_piece(voice))
    if not parts:
        raise Rejected("it has no text outside of appendices")
    mapped = await together(_map(voice, piece, counts) for piece in parts)
    copies = {stage: _distinct(itertools.chain.from_iterable(found[stage] for found in mapped)) for stage in STAGES}
    for stage in ASKED:
        own = [copy for copy in copies[stage] if not any(copy.shares(other) for name in PLANNED for other in copies[name])]
        counts.crossing += len(copies[stage]) - len(own)
        copies[stage] = own
    reduced = await together(_reduce(voice, stage, copies[stage]) for stage in STAGES)
    counts.merged += sum(len(copies[stage]) for stage in STAGES) - sum(map(len, reduced))
    return Extraction(*(tuple(Sentence(copy.found.text, copy.section) for copy in stage) for stage in reduced))


def _longest_piece(voice: Voice) -> int:
    """Characters of which the prompt has room for all and a reply for as much again, with its escapes."""
    use = voice.use
    return max(500, min(use.room, int(0.7 * use.reply_tokens * use.characters_per_token)))


async def _map(voice: Voice, piece: Piece, counts: Counts) -> dict[str, list[_Copy]]:
    """The faithful sentences of a piece, by stage."""
    messages = PROMPTS.messages("map", title=piece.title, section=fenced(piece.text))
    parts = halves(piece)
    try:
        record = await voice.ask(f"section {piece.title!r}", messages, _MAP, dict, divisible=len(parts) > 1)
    except TooLong:
        if len(parts) < 2:
            raise
        found = await together(_map(voice, part, counts) for part in parts)
        return {stage: [copy for part in found for copy in part[stage]] for stage in STAGES}
    passage = Passage(piece.text)
    copies: dict[str, list[_Copy]] = {}
    for stage in STAGES:
        found, missing = passage.find(record[stage])
        kept = [one for one in found if stage not in PLANNED or not is_numerical_result(one.text)]
        counts.copied += len(found)
        counts.unfaithful += missing
        counts.results += len(found) - len(kept)
        copies[stage] = [_Copy(one, piece.title) for one in kept]
    return copies


def _distinct(copies: Any) -> list[_Copy]:
    """Each sentence once, the first time."""
    return list({copy.found.words: copy for copy in reversed(list(copies))}.values())[::-1]


async def _reduce(voice: Voice, stage: str, copies: Sequence[_Copy]) -> list[_Copy]:
    """The sentences of a stage that are needed, in their order; in rounds where one request can't hold them all."""
    copies = list(copies)
    while len(copies) > FEW:
        batches = _batches(copies, voice.use.room)
        chosen = await together(_choose(voice, stage, batch) for batch in batches)
        before, copies = len(copies), [copy for batch in chosen for copy in batch]
        if len(batches) == 1:
            break
        if len(copies) == before:
            raise Rejected(f"its {stage} has {before} sentences after merging, more than {voice.use.name} can hold at once")
    return copies


async def _choose(voice: Voice, stage: str, copies: Sequence[_Copy]) -> list[_Copy]:
    numbered = "\n".join(f"{number}. [{copy.section}] {copy.found.text}" for number, copy in enumerate(copies, 1))
    most = f" Choose {MOST[stage]} at most." if len(copies) > MOST[stage] else ""

    def read(record: Any) -> list[_Copy]:
        order = record["order"]
        if not order:
            raise Unusable("it chooses no sentence")
        if wrong := [number for number in order if not 1 <= number <= len(copies)]:
            raise Unusable(f"there is no sentence {wrong[0]}")
        if len(set(order)) < len(order):
            raise Unusable("it names a sentence twice")
        if len(order) > MOST[stage]:
            raise Unusable(f"it chooses {len(order)} sentences, more than {MOST[stage]}")
        return [copies[number - 1] for number in order]

    messages = PROMPTS.messages("reduce", focus=PROMPTS.texts["focus"][stage], sentences=fenced(numbered), most=most)
    return await voice.ask(f"merging its {stage}", messages, _REDUCE, read)


def _batches(copies: Sequence[_Copy], room: int) -> list[list[_Copy]]:
    """In order, as many to a batch as there is room for."""
    batches: list[list[_Copy]] = []
    used = 0
    for copy in copies:
        size = len(copy.found.text) + len(copy.section) + 10
        if not batches or used + size > room:
            batches.append([])
            used = 0
        batches[-1].append(copy)
        used += size
    return batches
