"""A paper as sentences in their places: which section, in which role, behind which sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from papergym.data_pipeline import cues
from papergym.data_pipeline.clips import quotable
from papergym.data_pipeline.latex import Paper
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.sentences import split_sentences

ABSTRACT = "Abstract"
LONGEST_SENTENCE = 1000  # characters
_RUN_IN = re.compile(
    r"^[A-Z](?:(?!\b(?:is|are|was|we|that|which)\b)[^.:?]){3,90}: (?=(?:We|To|Before|For|So|Next) )"
)  # a heading set in the paragraph's first line


@dataclass(frozen=True)
class Sentence:
    """One sentence of the paper in plain text, and the title of the section that it stands in ("" before the first heading)."""

    text: str
    section: str = ""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A sentence with its place: role of its section, whether that reports outcomes, and the sentence before it in the paragraph."""

    sentence: Sentence
    role: str
    reported: bool
    order: int
    before: Candidate | None = field(repr=False)

    @property
    def text(self) -> str:
        return self.sentence.text


def read_candidates(paper: Paper) -> Iterable[Candidate]:
    """Every sentence with the role of its place; skipped sections and appendices are gone."""
    order = 0
    for title, role, text in _passages(paper):
        reported = role == "results" or (role in ("method", "experiment") and _outcome_share(text) > 0.4)
        for paragraph in text.split("\n\n"):
            before = None
            for sentence in map(quotable, _sentences(_RUN_IN.sub("", paragraph))):
                own = role
                if role == "method" and cues.TRIAL.search(sentence):
                    own = "experiment"
                if role == "results":  # what is done, told among what came out
                    own = role_by_cue(sentence)
                before = Candidate(Sentence(sentence, title), own, reported, order, before)
                order += 1
                yield before


def _sentences(paragraph: str) -> list[str]:
    """Without the overlong ones, which nobody can quote and which would make patterns slow."""
    return [sentence for sentence in split_sentences(paragraph) if len(sentence) <= LONGEST_SENTENCE]


def role_by_cue(sentence: str) -> str:
    return "experiment" if cues.EXPERIMENT_CUE.search(sentence) else "method"


def _passages(paper: Paper) -> Iterable[tuple[str, str, str]]:
    """(title, role, plain text). A subsection whose title says nothing has the role of the section above it."""
    yield ABSTRACT, "abstract", plain_text(paper.abstract, paper.macros)
    body = [(section, plain_text(section.text, paper.macros)) for section in paper.sections if not section.appendix]
    if sum(len(text) for section, text in body if section.title) < sum(len(text) for _, text in body) / 2:
        yield from _letter("\n\n".join(text for _, text in body))
        return
    above: list[tuple[int, str]] = []
    introduced = reported = False
    for section, text in body:
        while above and above[-1][0] >= section.level:
            above.pop()
        role = _role(cues.section_role(section.title), above[-1][1] if above else None, introduced)
        if role is None:  # the title says nothing: a passage of outcomes reports, what follows a report discusses it
            role = "skip" if reported else "results" if _outcome_share(text) > 0.5 else "method"
        introduced |= bool(section.title) or len(text.split()) > 80
        reported |= role == "results" and section.level <= 1
        if section.title:
            above.append((section.level, role))
        if role != "skip":
            yield section.title, role, text


def _role(own: str | None, parent: str | None, introduced: bool) -> str | None:
    if own is None and parent is None and not introduced:
        return "introduction"  # what stands first introduces
    if "skip" in (own, parent):
        return "skip"
    if parent in ("introduction", "background") and own in (None, "introduction", "background"):
        return own or parent
    if parent == "experiment" and own != "results":
        return parent
    if parent == "method" and own == "introduction":
        return parent
    return own or parent


def _outcome_share(text: str) -> float:
    sentences = _sentences(text.replace("\n\n", " "))
    return sum(map(cues.is_result, sentences)) / max(1, len(sentences))


def _letter(text: str) -> Iterable[tuple[str, str, str]]:
    """A letter without headings: it introduces up to the turn; behind it, paragraphs go by their cues; the closing ones are left out."""
    paragraphs = [paragraph for paragraph in text.split("\n\n") if len(paragraph.split()) > 8]
    last, turned = len(paragraphs) - max(1, len(paragraphs) // 10), False

    def turns(sentence: str) -> bool:
        return bool(cues.TURN.search(sentence)) and (not aims or bool(cues.AIM.search(sentence) or cues.BUILD.search(sentence)))

    aims = any(cues.TURN.search(sentence) and cues.AIM.search(sentence) for paragraph in paragraphs for sentence in _sentences(paragraph))
    for paragraph in paragraphs[:last]:
        sentences = _sentences(paragraph)
        turn = next((index for index, sentence in enumerate(sentences) if turns(sentence)), None)
        if not turned:
            yield "", "introduction", paragraph
            turned = turn is not None
            if turn is not None and turn + 1 < len(sentences):  # behind the turn a letter often gives its plan in brief
                yield "", "method", " ".join(sentences[turn + 1 :])
        elif not re.match(
            r"In (?:conclusion|summary|closing)|Conclusions?\b[^.:]{0,30}:|To (?:conclude|summari[sz]e)|We have (?:shown|seen)|"
            r"These (?:observations|results)",
            paragraph,
        ):
            trials = sum(bool(cues.EXPERIMENT_CUE.search(sentence)) for sentence in sentences)
            yield (
                "",
                "results" if _outcome_share(paragraph) >= 0.5 else "experiment" if trials * 2 > len(sentences) else "method",
                paragraph,
            )
