"""How much of what was extracted stands in the paper: every sentence of the four stages is looked for in its LaTeX source.

Letters and digits are compared, in the order of the text, so that line breaks, quotes and capitals do not matter; the source is read both
as plain text and as LaTeX, since an extractor may quote either.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papergym.data_pipeline.audits.rates import rate
from papergym.data_pipeline.build import source_digest
from papergym.data_pipeline.collection import list_papers
from papergym.data_pipeline.latex import Paper, load_paper
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.sentences import split_sentences
from papergym.environment import STAGES, Environment

_NO_TEXT = re.compile(r"[\W_]+")
_END = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")


def faithfulness(environments: Sequence[Environment], papers: Path) -> dict[str, Any]:
    """{"all" and each stage: rate of sentences that stand in the source, "missing": [...], "unchecked": [...]}, ready for JSON.

    papers: a folder with one paper an entry. missing: {"environment", "stage", "sentence"} of what was not found. unchecked:
    {"environment", "reason"} where there are no stages, no such paper, or one whose files are others than those that were extracted.
    Raises InputError for a folder without papers, and what load_paper raises.
    """
    sources = {path.name: path for path in list_papers(papers, selected=False)}
    found: dict[str, list[list[bool | None]]] = {stage: [] for stage in STAGES}
    missing: list[dict[str, str]] = []
    unchecked: list[dict[str, str]] = []
    for environment in environments:
        if reason := _unchecked(environment, sources):
            unchecked.append({"environment": environment.id, "reason": reason})
            continue
        texts = _source_texts(load_paper(sources[environment.provenance["paper"]]))
        for stage in STAGES:
            sentences = split_sentences((environment.stages or {})[stage])
            stands = [_stands(sentence, texts) for sentence in sentences]
            found[stage].append(stands)
            missing += [
                {"environment": environment.id, "stage": stage, "sentence": sentence}
                for sentence, is_there in zip(sentences, stands)
                if is_there is False
            ]
    together = [[stands for stage in stages for stands in stage] for stages in zip(*found.values())]
    return {"all": rate(together)} | {stage: rate(found[stage]) for stage in STAGES} | {"missing": missing, "unchecked": unchecked}


def _unchecked(environment: Environment, sources: Mapping[str, Path]) -> str | None:
    paper = environment.provenance.get("paper")
    if environment.stages is None:
        return "it has no stages"
    if paper not in sources:
        return f"no paper {paper!r} is among those given"
    if environment.provenance.get("sha256") not in (None, source_digest(sources[str(paper)])):
        return f"the files of paper {paper!r} are not those that it was extracted from"
    return None


def _source_texts(paper: Paper) -> list[str]:
    parts = [paper.title, paper.abstract, *(section.text for section in paper.sections)]
    return [_letters("".join(parts)), _letters("".join(plain_text(part, paper.macros) for part in parts))]


def _stands(sentence: str, texts: Sequence[str]) -> bool | None:
    """None for one without letters. Two sentences that are taken for one, behind an abbreviation, may stand apart."""
    if not (letters := _letters(sentence)):
        return None
    if any(letters in text for text in texts):
        return True
    pieces = [_letters(piece) for piece in _END.split(sentence)]
    return len(pieces) > 1 and all(any(piece in text for text in texts) for piece in pieces)


def _letters(text: str) -> str:
    return _NO_TEXT.sub("", text.casefold())
