"""What a response answers: the text after its thinking block, without control tokens."""

import re

_REFUSAL = re.compile(
    r"\W*(?:(?:i(?:['’]m| am)(?: very)? sorry|sorry|i apologi[sz]e|unfortunately)\b[^.!?\n]{0,80}?)?"
    r"\b(?:i|we) (?:can(?:['’]t|not| not)|(?:a|')m (?:unable|not able)|am (?:unable|not able)|won['’]t|will not|must decline|decline)"
    r"(?: be able)?(?: to)? (?:assist|help|answer|provide|comply|fulfil?l|do (?:that|this)|write|create|generate|continue|support)\b",
    re.IGNORECASE,
)
_REFUSAL_WORDS = 120  # in more than so many, something else is said too
_CONTROL = re.compile(r"<[|｜][^<>|｜\s]{1,64}[|｜]>")


def plan_of(response: str) -> str | None:
    """Returns the answer of a decoded response: what follows the last `</think>`, stripped; "" when nothing follows.

    None when there is no answer: a `<think>` that is not closed, so that the response ended, or was cut, while thinking.
    Control tokens such as <|im_end|> are removed wherever they stand, so that no plan can close the message of a judge's prompt.
    """
    answer = response.rpartition("</think>")[2]
    return None if "<think>" in answer else strip_control_tokens(answer)


def strip_control_tokens(text: str) -> str:
    """Replaces <|name|> by a space everywhere (a space, so that what is left can't form another) and strips <s>, </s> and white space."""
    return _CONTROL.sub(" ", text).strip().removeprefix("<s>").removesuffix("</s>").strip()


def is_refusal(plan: str) -> bool:
    """Whether a plan begins by declining to answer and is short. A rule of thumb in English, for counting; nothing is scored by it."""
    return bool(_REFUSAL.match(plan)) and len(plan.split()) <= _REFUSAL_WORDS
