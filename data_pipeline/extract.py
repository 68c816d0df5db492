"""The rule-based extractor, called `rules`: a paper's own sentences, verbatim, sorted into goal, background, method and experiment.

Rules on section titles (cues.section_role), on wording (cues) and on position: what comes before the paper turns to its own work is
background, what it asks is the goal, and only the sections that say how the work is done feed method and experiment. Outcomes, conclusions
and sentences that point outside themselves are left out. What rules can't do: read a display, resolve "the model", tell a clever
design decision from a routine one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from papergym.data_pipeline import cues
from papergym.data_pipeline.abbreviations import find_abbreviations
from papergym.data_pipeline.aims import aim
from papergym.data_pipeline.clips import NOTED
from papergym.data_pipeline.english import STOP_WORDS, content_words, stem
from papergym.data_pipeline.latex import Paper
from papergym.data_pipeline.names import coined_names, is_named
from papergym.data_pipeline.passages import Candidate, Sentence, read_candidates, role_by_cue
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.rewrite import criteria_of
from papergym.data_pipeline.worth import is_readable, is_setting, symbols

BACKGROUND_WORDS = 130
STAGE_WORDS = 420
QUESTIONS = 4
FEW = 4  # sentences: a stage with fewer is filled from the other
GOOD, ENOUGH, LEAST = 2.0, 10, -2.0  # a stage with fewer good sentences than ENOUGH takes worse ones, down to LEAST
FEW_WORDS = 43  # of background: with fewer, related work and abstract are asked as well
# In a passage of outcomes, what authors do and what is done in general are decisions; what was, is an outcome.
_REPORTED_ACTION = re.compile(rf"^(?i:{'|'.join(sorted(NOTED))}|shows?) |\b[Ww]e \w+|\b(?:is|are) (?:\w+ly )?\w+(?:ed|en|wn|un|ut)\b")
_CODE_NAME = re.compile(r"\b\w*(?:[A-Z]\w?[A-Z]|[A-Z]\d)[A-Za-z\d]*\b")


@dataclass(frozen=True)
class Extraction:
    """The four stages, each in the order of the paper.

    abbreviations: short form -> long form, as the paper defines them; names: what it calls its own work -> the noun for it.
    """

    goal: tuple[Sentence, ...]
    background: tuple[Sentence, ...]
    method: tuple[Sentence, ...]
    experiment: tuple[Sentence, ...]
    abbreviations: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def stages(self) -> dict[str, str]:
        """The stages as text, as an Environment holds them."""
        return {
            name: " ".join(sentence.text for sentence in getattr(self, name)) for name in ("goal", "background", "method", "experiment")
        }

    def sections(self) -> dict[str, list[list[str | int]]]:
        """Where each stage comes from: [title of a section, characters of the stage's text], for each run of sentences from one section.

        Runs are parted by one space, so that the text can be cut along them.
        """
        runs = {
            name: [(title, [s.text for s in run]) for title, run in groupby(getattr(self, name), lambda sentence: sentence.section)]
            for name in self.stages()
        }
        return {name: [[title, len(" ".join(texts))] for title, texts in found] for name, found in runs.items()}


Extractor = Callable[[Paper], Extraction]


def extract_stages(paper: Paper) -> Extraction:
    """Returns the four stages of a paper; a stage for which the rules find nothing is empty."""
    candidates = list(read_candidates(paper))
    prose = " ".join(c.text for c in candidates)
    abbreviations = find_abbreviations(prose)
    names = coined_names(plain_text(paper.title, paper.macros), prose, [macro.body for macro in paper.macros.values()])
    abstract, introduction, related = ([c for c in candidates if c.role == role] for role in ("abstract", "introduction", "background"))
    goal = _goal(abstract + introduction, names)
    topic = content_words(paper.title) | content_words(" ".join(c.text for c in goal))
    known = tuple([c for c in _before_turn(part) if not is_named(c.text, names)] for part in (abstract, introduction))
    background = _known(known[0], known[1], related, goal, topic, abbreviations)
    goal = goal or _gaps(background)
    background = [c for c in background if c not in goal]
    topic |= content_words(" ".join(c.text for c in (*goal, *background)))
    told = {*_before_turn(abstract), *_before_turn(introduction)}
    method, experiment = _designs(candidates, told, {c.text for c in (*goal, *background)}, topic, names)
    return Extraction(_sentences(goal), _sentences(background), _sentences(method), _sentences(experiment), abbreviations, names)


def _sentences(candidates: list[Candidate]) -> tuple[Sentence, ...]:
    return tuple(candidate.sentence for candidate in candidates)


def _known(
    abstract: list[Candidate], introduction: list[Candidate], related: list[Candidate], goal: list[Candidate], topic: set[str],
    abbreviations: Mapping[str, str],
) -> list[Candidate]:  # fmt: skip
    """The background: from the introduction, else filled from the sections on related work, else from the abstract."""
    asked = {c.text for c in goal}
    background = _background([c for c in introduction if c.text not in asked], topic, abbreviations)
    if _words(background) < FEW_WORDS:
        background += _background([c for c in related if c not in background], topic, abbreviations, BACKGROUND_WORDS - _words(background))
    if _words(background) < FEW_WORDS:
        first = _background([c for c in abstract if c.text not in asked], topic, abbreviations)
        background = first + [c for c in background if not any(_alike(c, other) for other in first)]
    return background


def _designs(
    candidates: list[Candidate], known: set[Candidate], used: set[str], topic: set[str], names: Mapping[str, str]
) -> tuple[list[Candidate], list[Candidate]]:
    """Method and experiment, from their sections and from what abstract and introduction tell of them behind the turn."""
    told = [
        replace(c, role=role_by_cue(c.text))
        for c in candidates
        if c.role in ("abstract", "introduction") and c not in known and cues.is_action(c.text) and not cues.ANNOUNCE.search(c.text)
    ]
    design = [c for c in candidates + told if c.role in ("method", "experiment") and c.text not in used]
    method, experiment = (_design([c for c in design if c.role == role], topic, names) for role in ("method", "experiment"))
    few, many = sorted((len(method), len(experiment)))
    if few < FEW and many >= 2 * FEW:  # the titles don't tell the two apart
        chosen = _design(design, topic, names, 2 * STAGE_WORDS)
        experiment = [c for c in chosen if cues.TRIED.search(c.text)]
        method = [c for c in chosen if c not in experiment]
    return method, experiment


def _before_turn(candidates: list[Candidate]) -> list[Candidate]:
    for index, candidate in enumerate(candidates):
        if cues.TURN.search(candidate.text):
            return candidates[:index]
    return candidates


def _goal(candidates: list[Candidate], names: Mapping[str, str]) -> list[Candidate]:
    """The sentence that says best what is asked, or up to QUESTIONS questions where the paper lists them."""
    questions = [
        c for c in candidates
        if c.text.endswith("?") and cues.is_whole(c.text) and not cues.leans_back(c.text)
        and not re.search(r"\b(?:this|these|those|they|them|it|its)\b", c.text)
    ]  # fmt: skip
    if len(questions) >= 2:
        return questions[:QUESTIONS]
    scored = []
    for candidate in candidates:
        text = candidate.text
        if not cues.is_whole(text) or cues.is_dangling(text) or aim(text) is None:
            continue
        score = 3.0 * bool(cues.AIM.search(text)) + 1.5 * bool(cues.BUILD.search(text)) + bool(cues.TURN.search(text))
        score += 2.0 * (
            text.split()[0] in names and str(aim(text)).startswith("What is wanted")
        )  # "Foo is a solver for ...": a system's aim is to exist
        score += 1.0 * bool(re.search(r"\b(?:objective|aim|goal|question)\b", text)) + (candidate.role == "introduction") * 0.5
        score -= 1.0 * bool(re.search(r"\b(?:they|them|these|those|this(?! (?:paper|work|letter|study|article)))\b", text, re.IGNORECASE))
        score -= (
            2.0 * bool(cues.RESULT.search(text))
            + 0.5 * bool(re.search(r"\b(?:using|by \w+ing|based on|via)\b", text))
            + len(text.split()) / 60
        )
        if score >= 1.5:
            scored.append((score, candidate))
    best = sorted(scored, key=lambda item: (-item[0], item[1].order))[:1]
    return [candidate for _, candidate in best]


def _background(
    candidates: list[Candidate], topic: set[str], abbreviations: Mapping[str, str], words: int = BACKGROUND_WORDS
) -> list[Candidate]:
    """What is known and what is open: the best sentences, each with the sentences that it leans on, up to about `words` words."""
    if not candidates:
        return []
    first = next((c.order for c in candidates if cues.is_whole(c.text) and not cues.leans_back(c.text)), None)
    known = {c.order for c in candidates}

    def score(candidate: Candidate) -> float:
        text = candidate.text
        shared = len(content_words(text) & topic)
        value = 2.5 * bool(cues.GAP.search(text)) + 2.0 * (candidate.order == first) + 0.35 * min(shared, 5)
        value -= (
            1.5 * bool(re.search(r"\b(?:we|our|us)\b", text, re.IGNORECASE))
            + 8 * cues.symbol_share(text)
            + max(0, len(text.split()) - 32) / 20
        )
        value -= 0.8 * len([name for name in _CODE_NAME.findall(text) if name not in abbreviations])
        return value - 0.8 * bool(re.match(r"(?:For (?:example|instance)|Examples)", text))

    chosen: dict[int, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (-score(c), c.order)):
        group, current = [candidate], candidate
        while cues.leans_back(current.text) and current.before is not None and current.before.order in known:
            current = current.before
            group.append(current)
        if cues.is_dangling(group[-1].text) or not all(cues.is_whole(c.text) for c in group) or len(group) > 3:
            continue
        new = [c for c in group if c.order not in chosen]
        if any(_alike(c, other) for c in new for other in chosen.values()):
            continue
        if new and score(candidate) > 0 and _words([*chosen.values(), *new]) <= words:
            chosen |= {c.order: c for c in new}
    return [chosen[order] for order in sorted(chosen)]


def _alike(one: Candidate, other: Candidate) -> bool:
    """Says the same again, as an introduction repeats its abstract."""
    first, second = content_words(one.text), content_words(other.text)
    return len(first & second) >= 0.6 * min(len(first), len(second))


def _gaps(background: list[Candidate]) -> list[Candidate]:
    """Where no sentence states an aim, the last one that names a gap has to."""
    return [c for c in background if cues.GAP.search(c.text) and not cues.leans_back(c.text)][-1:]


def _design(candidates: list[Candidate], topic: set[str], names: Mapping[str, str], words: int = STAGE_WORDS) -> list[Candidate]:
    """The sentences that say what is done, up to about `words` words; outcomes stay out."""

    def score(candidate: Candidate) -> float:
        text = candidate.text
        acts = cues.is_action(text) or text.split()[0] in names
        value = 1.5 * bool(cues.RATIONALE.search(text)) + 2.0 * acts - 0.8 * len(cues.GENERIC.findall(text))
        value += 0.7 * bool(
            re.search(r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|half|third|each|every)\b", text)
        )
        value += 0.5 * bool(cues.EXPERIMENT_CUE.search(text)) - 10 * cues.symbol_share(text) - max(0, len(text.split()) - 38) / 15
        value -= 0.6 * symbols(text, "") + 0.8 * is_setting(text)
        value += 1.5 * (acts and any(is_readable(criterion, "") for criterion in criteria_of(text, names)))  # it can be judged
        return value - 1.0 * candidate.reported

    usable = [
        (score(c), c) for c in candidates
        if cues.is_whole(c.text) and (cues.opens_action(c.text) or not cues.leans_back(c.text) or _names_topic(c.text, topic))
        and not cues.is_result(c.text) and not cues.META.search(c.text) and not c.text.endswith("?")
        and not (c.reported and not _REPORTED_ACTION.search(c.text))
    ]  # fmt: skip
    enough = sum(value > GOOD for value, _ in usable) >= ENOUGH
    chosen: list[Candidate] = []
    for value, candidate in sorted(usable, key=lambda item: (-item[0], item[1].order)):
        if value <= 0 and (enough or value <= LEAST):
            break
        if _words([*chosen, candidate]) <= words and candidate.text not in {c.text for c in chosen}:
            chosen.append(candidate)
    return sorted(chosen, key=lambda c: c.order)


def _names_topic(text: str, topic: set[str]) -> bool:
    """ "These strategies are trained": it begins by pointing back, but at something that the question speaks of."""
    match = re.match(r"(?:(?:In|For|At|With|To|During) )?[Tt]h(?:is|ese) ([\w-]+)(?: ([\w-]+))?", text)
    return match is not None and any(word and word.lower() not in STOP_WORDS and stem(word) in topic for word in match.groups())


def _words(candidates: Iterable[Candidate]) -> int:
    return sum(len(candidate.text.split()) for candidate in candidates)
