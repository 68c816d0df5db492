"""Rules for the general criteria that a rule can decide. Each takes an environment and a plan and returns True, False or None (can't say).

A sentence counts as a statement if it is prose, if it or the sentence before it names two things that the question names, and if it holds
words of its own: content words that are neither words of any research plan, nor in the question, nor in a statement already counted. So
neither repetition, nor the question said again, nor general advice, nor good prose on another subject counts. A longer plan needs more of
them, by the factor by which the coverage rule raises its threshold.
"""

import re

from papergym.environment import Environment
from papergym.judge.coverage import CoverageRule, length_factor, question_stems, rubric_verdicts, topic_stems, without_quotes
from papergym.judge.prose import is_prose, is_sentence
from papergym.judge.words import action_stems, all_words, common_stems, content_words, sentences, stem, stop_words

STATEMENTS, REASONS, OWN_WORDS, TOPIC_WORDS = 2, 2, 2, 2

_REASON = re.compile(
    r"\b(?:because|since|therefore|thus|hence|so that|in order to|rather than|instead of|otherwise|the reason|due to|as this|allowing us"
    r"|to (?:avoid|ensure|rule out|isolate|separate)|which (?:lets|allows|avoids|ensures|makes))\b",
    re.IGNORECASE,
)


def handles_all(environment: Environment, plan: str) -> bool | None:
    """Every criterion of the rubric that the coverage rule can score holds."""
    verdicts = [verdict for verdict in rubric_verdicts(environment, plan, CoverageRule()) if verdict is not None]
    return all(verdicts) if verdicts else None


def detailed(environment: Environment, plan: str) -> bool:
    """At least two statements that do something: they hold a verb of method or experiment, and what it is done to."""
    statements = _statements(environment, plan)
    return sum(not action_stems().isdisjoint(content_words(sentence)) for sentence in statements) >= _needed(STATEMENTS, plan)


def justified(environment: Environment, plan: str) -> bool:
    """At least two statements that give a reason."""
    return sum(bool(_REASON.search(sentence)) for sentence in _statements(environment, plan)) >= _needed(REASONS, plan)


def _needed(count: int, plan: str) -> int:
    return int(count * length_factor(plan, CoverageRule()))


def _statements(environment: Environment, plan: str) -> list[str]:
    topic = topic_stems(environment.question)
    said = set(question_stems(environment.question) | common_stems())
    found = []
    before: set[str] = set()
    for sentence in sentences(without_quotes(environment, plan, CoverageRule())) if is_prose(plan) else ():
        words = all_words(sentence)
        stems = {stem(word) for word in words if word not in stop_words()}
        on_subject = len((stems | before) & topic) >= min(TOPIC_WORDS, len(topic))
        if on_subject and len(stems - said) >= OWN_WORDS and is_sentence(words, sentence):
            found.append(sentence)
            said |= stems
        before = stems
    return found
