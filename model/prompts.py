"""The prompts of the policy: the student's asks for a research plan, the teacher's adds what only a teacher may see.

Short and direct, because the smallest models follow nothing else.
"""

from collections.abc import Mapping
from typing import Literal

from papergym.environment import Environment
from papergym.errors import InputError

TeacherContext = Literal["rubric", "reference", "rubric+reference"]

_REQUEST = (
    "{question}\n\n"
    "Write a concrete research plan that answers this. Say step by step what you will do and why: first the method, then the experiment."
)
_RUBRIC = "A good plan meets these points:\n{criteria}\nWrite a plan that meets them, as your own decisions."
_REFERENCE = "An expert's plan:\n{reference}\nWrite such a plan in your own words, as your own decisions."


def student_messages(environment: Environment) -> list[Mapping[str, str]]:
    """The chat messages that ask for a plan: the environment's own messages if it has them, else the question with a request."""
    if environment.messages is not None:
        return list(environment.messages)
    return [{"role": "user", "content": _REQUEST.format(question=environment.question)}]


def teacher_messages(environment: Environment, context: TeacherContext = "rubric") -> list[Mapping[str, str]]:
    """The student's messages with the rubric, the reference or both added to the last one, as guidance and not as a thing to mention.

    Raises InputError for another context, and naming the environment that has no reference when one is asked for.
    """
    parts = context.split("+")
    if context not in ("rubric", "reference", "rubric+reference"):
        raise InputError(f"teacher context {context!r}: use rubric, reference or rubric+reference")
    guidance = []
    if "rubric" in parts:
        guidance.append(_RUBRIC.format(criteria="\n".join(f"- {criterion.text}" for criterion in environment.rubric)))
    if "reference" in parts:
        if environment.reference is None:
            raise InputError(f"environment {environment.id!r}, reference: it has none, so the teacher context {context!r} can't be made")
        guidance.append(_REFERENCE.format(reference=environment.reference))
    *earlier, last = student_messages(environment)
    return [*earlier, {**last, "content": "\n\n".join([last["content"], *guidance])}]
