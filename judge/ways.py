"""Three ways to get verdicts out of a chat model: what is asked, and how the chance that a criterion is met is read from the reply.

json: all criteria in one reply, a reason before each verdict. single: the same, one criterion a request. logprob: one token a criterion;
with p the probabilities of the first token,

    P(met) = p(1) / (p(1) + p(0)),

each summed over the spellings of the answer. Its prompts differ only in their ends, so a prefix cache computes the plan once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from papergym.judge.prompts import Grading, json_messages, one_character_messages
from papergym.judge.verdicts import parse_verdicts
from papergym.model.generation.chat_models import ChatRequest, ChatText

LEAST_MASS = 0.1  # p(1) + p(0) below which a model did not answer what it was asked
_TOKENS_A_VERDICT, _TOKENS_AROUND = 128, 32
_TOP_LOGPROBS = 20  # the most that servers give
_MET, _NOT_MET = {"1", "yes", "true"}, {"0", "no", "false"}


@dataclass(frozen=True)
class Way:
    """together: whether one request asks about all criteria. request(grading, chosen criteria, attempt, characters of a reason);
    read(text, number of criteria): the chance in [0, 1] that each is met, None where the reply doesn't tell."""

    together: bool
    request: Callable[[Grading, Sequence[int], int, int], ChatRequest]
    read: Callable[[ChatText, int], list[float | None]]


def _json_request(grading: Grading, chosen: Sequence[int], attempt: int, reason_length: int) -> ChatRequest:
    limit = _TOKENS_AROUND + _TOKENS_A_VERDICT * len(chosen)
    return ChatRequest(json_messages(grading, chosen, attempt), limit, schema=verdict_schema(len(chosen), reason_length))


def _read_json(text: ChatText, count: int) -> list[float | None]:
    return [None if verdict is None else float(verdict) for verdict in parse_verdicts(text.text, count)]


def _logprob_request(grading: Grading, chosen: Sequence[int], attempt: int, reason_length: int) -> ChatRequest:
    (index,) = chosen
    return ChatRequest(one_character_messages(grading, index, attempt), 1, choices=("0", "1"), top_logprobs=_TOP_LOGPROBS)


def _read_logprobs(text: ChatText, count: int) -> list[float | None]:
    first = text.top_logprobs[0] if text.top_logprobs else ()
    met, not_met = (math.fsum(math.exp(value) for token, value in first if _word(token) in words) for words in (_MET, _NOT_MET))
    return [met / (met + not_met) if met + not_met >= LEAST_MASS else None]


def _word(token: str) -> str:
    return token.strip().casefold()


def verdict_schema(count: int, reason_length: int) -> dict[str, Any]:
    """The JSON schema of a reply with `count` verdicts: {"reason_1": "…", "1": 0, "reason_2": …}.

    Every criterion has keys of its own, in order, so that no model can skip one or name one twice; and reasons are bounded, so that none
    can go on for ever. Servers of every kind enforce as much as this.
    """
    reason, verdict = {"type": "string", "maxLength": reason_length}, {"type": "integer", "enum": [0, 1]}
    properties: dict[str, Any] = {}
    for number in range(1, count + 1):
        properties |= {f"reason_{number}": reason, str(number): verdict}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


WAYS = {
    "json": Way(True, _json_request, _read_json),
    "single": Way(False, _json_request, _read_json),
    "logprob": Way(False, _logprob_request, _read_logprobs),
}
