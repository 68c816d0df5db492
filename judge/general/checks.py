"""Rules for the general criteria that a rule can decide. Each takes an environment and a plan and returns True, False or None (can't say).

A sentence counts as a statement if it is prose and holds words of its own: content words that are neither words of any research plan, nor
in the question, nor in a statement already counted. So neither repetition, nor the question said again, nor general advice counts.
"""

import re

from papergym.environment import Environment
from papergym.judge.coverage import CoverageRule, rubric_verdicts
from papergym.judge.words import action_stems, all_words, common_stems, content_words, sentences, stem, stop_words

STATEMENTS, REASONS, OWN_WORDS = 3, 2, 2

_REASON = re.compile(
    r"\b(?:because|since|therefore|thus|hence|so that|in order to|rather than|instead of|otherwise|the reason|due to|as this|allowing us"
    r"|to (?:avoid|ensure|rule out|isolate|separate)|which (?:lets|allows|avoids|ensures|makes))\b",
    re.IGNORECASE,
)
_LEAST_FUNCTION_WORDS = CoverageRule().least_function_words


def handles_all(environment: Environment, plan: str) -> bool | None:
    """Every criterion of the rubric that the coverage rule can score holds."""
    verdicts = [verdict for verdict in rubric_verdicts(environment, plan, CoverageRule()) if verdict is not None]
    return all(verdicts) if verdicts else None


def detailed(environment: Environment, plan: str) -> bool:
    """At least three statements that do something: they hold a verb of method or experiment, and what it is done to."""
    statements = _statements(environment, plan)
    return sum(not action_stems().isdisjoint(content_words(sentence)) for sentence in statements) >= STATEMENTS


def justified(environment: Environment, plan: str) -> bool:
    """At least two statements that give a reason."""
    return sum(bool(_REASON.search(sentence)) for sentence in _statements(environment, plan)) >= REASONS


def _statements(environment: Environment, plan: str) -> list[str]:
    said = set(content_words(environment.question)) | common_stems()
    found = []
    for sentence in sentences(plan):
        words = all_words(sentence)
        own = {stem(word) for word in words if word not in stop_words()} - said
        prose = sum(word in stop_words() for word in words) >= _LEAST_FUNCTION_WORDS * len(words)
        if prose and len(own) >= OWN_WORDS:
            found.append(sentence)
            said |= own
    return found
