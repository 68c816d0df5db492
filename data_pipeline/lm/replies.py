"""From a model's reply to a record of the form that was asked for, and back to the model where it isn't one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

from papergym.data_pipeline.lm.recipe import ModelUse
from papergym.data_pipeline.prompts import PROMPTS
from papergym.data_pipeline.words import words
from papergym.errors import InputError
from papergym.judge.answer import plan_of
from papergym.model.generation.chat_models import ChatRequest
from papergym.model.generation.chat_session import Asker, Tally
from papergym.model.generation.json_text import Container, objects

T = TypeVar("T")
# Behind \n, \r and \t, the rest of LaTeX commands that models write without doubling the backslash. \b and \f never mean a control
# character in prose, so that what follows them needs no list.
_COMMANDS = words(
    "nabla nu ne neq neg not notin nmid nexists nleq ngeq nsubseteq norm newline noindent nolimits nonumber normalsize nicefrac num nocite "
    "nearrow nwarrow natural ncong nparallel nsim nless ngtr "
    "rho rm right rightarrow rangle rVert rvert rceil rfloor ref rule real renewcommand rightharpoonup rightleftharpoons rtimes "
    "risingdotseq rightrightarrows rhd rbrace rbrack rlap raisebox "
    "theta tau text textbf textit textrm textsc textsf texttt textup times to tilde top triangle tan tanh tfrac tr thickapprox therefore "
    "thicksim tag texorpdfstring tbinom to triangleq trianglelefteq trianglerighteq twoheadrightarrow tiny title thinspace"
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([A-Za-z]+)|(.)|$)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPACES = {"n": "\n", "r": "\n", "t": " "}


class Unusable(Exception):
    """A reply that is not what was asked for; it says why, to the model too."""


class Rejected(InputError):
    """Why a paper gives no environment."""


class TooLong(Rejected):
    """A request that the model can't hold, or whose reply it can't finish."""


def latex_unescape(text: str) -> str:
    """What a JSON string means, where LaTeX may stand in it with single backslashes: `\\frac`, `\\theta` and `\\nabla` stay commands."""

    def meaning(match: re.Match[str]) -> str:
        code, word, mark = match.groups()
        if code is not None:
            return chr(int(code, 16))
        if word is not None:
            if word[0] in _SPACES and word not in _COMMANDS:
                return _SPACES[word[0]] + word[1:]
            return "\\" + word
        return mark if mark in ("\\", '"', "'", "/") else "\\" + (mark or "")

    text = _ESCAPE.sub(meaning, text)
    text = re.sub("[\ud800-\udbff][\udc00-\udfff]", lambda pair: pair.group().encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return _CONTROL.sub(" ", re.sub("[\ud800-\udfff]", "\ufffd", text))


def read_record(reply: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object that a reply answers with: the last whole one that has the keys of the schema. Raises Unusable saying what is wrong.

    Thinking doesn't count. A key that stands twice with two values, and a value of another type, are no answer; text around the object is
    let pass, as are arrays of strings in place of a string.
    """
    answer = plan_of(reply)
    if answer is None:
        raise Unusable("it ended inside its thinking")
    if not answer.strip():
        raise Unusable("it was empty")
    required, problem = set(schema["required"]), "there was no JSON object in it"
    for container in reversed(list(objects(answer, latex_unescape))):
        keys = {key for key, _ in container.entries}
        if not container.closed:
            problem = "its JSON object has no end, as if it were cut"
        elif required <= keys:
            return _value(container, schema, "the object")
        else:
            problem = f"its JSON object lacks {', '.join(sorted(required - keys))}"
        if problem.endswith("cut") or keys & required:
            break  # what stands before it is not the answer
    raise Unusable(problem)


def _value(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    """A value as the schema has it. Raises Unusable."""
    kind = schema["type"]
    if kind == "object" and isinstance(value, Container) and value.opener == "{":
        record: dict[str, Any] = {}
        for key, item in value.entries:
            if key not in schema["properties"]:
                continue
            read = _value(item, schema["properties"][key], str(key))
            if record.setdefault(key, read) != read:
                raise Unusable(f"{key} stands in it twice, with two values")
        if missing := sorted(set(schema["required"]) - set(record)):
            raise Unusable(f"{where} lacks {', '.join(missing)}")
        return record
    if kind == "array" and isinstance(value, Container) and value.opener != "{" and value.closed:
        return [_value(item, schema["items"], f"an entry of {where}") for item in value.entries]
    if kind == "integer" and isinstance(value, Decimal) and value == int(value):
        return int(value)
    if kind == "string":
        if isinstance(value, Container) and value.opener != "{" and all(isinstance(item, str) for item in value.entries):
            value = " ".join(value.entries)
        if isinstance(value, str):
            if value not in schema.get("enum", (value,)):
                raise Unusable(f"{where} is {value[:40]!r}, and {' or '.join(schema['enum'])} is needed")
            return value.strip()
    raise Unusable(f"{where} is no {kind}")


def record_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object with exactly these entries."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True)
class Voice:
    """One model, as one paper asks it."""

    asker: Asker
    use: ModelUse
    retries: int
    tally: Tally

    async def ask(
        self,
        what: str,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        divisible: bool = False,
    ) -> T:
        """What `read` makes of the reply's record, asked for again while it or `read` says Unusable.

        what: named in the reason when none of the replies can be used. divisible: the caller can ask for less, so that a reply that reached
        its limit is not asked for again. Raises TooLong and Rejected; BudgetSpent and InputError as the asker does.
        """
        use, problem, cut = self.use, "", False
        for attempt in range(self.retries + 1):
            asked = [dict(message) for message in messages]
            if attempt:
                asked[-1]["content"] += PROMPTS.texts["reminder"].format(number=attempt + 1, problem=problem).rstrip()
            tokens = use.reply_tokens + use.thinking_tokens
            request = ChatRequest(asked, tokens, temperature=use.temperature, seed=use.seed, schema=schema)
            reply = await self.asker.ask(request, self.tally)
            if reply.refused is not None:
                raise TooLong(f"{what}: {use.name} refuses it ({reply.refused})")
            try:
                return read(read_record(reply.texts[0].text, schema))
            except Unusable as error:
                problem, cut = str(error), reply.texts[0].finish_reason == "length"
                if cut:
                    problem += f"; it reached the limit of {tokens} tokens"
                if cut and divisible:
                    break
        reason = f"{what}: no usable reply of {use.name} in {self.retries + 1} attempts; of the last one, {problem}"
        raise TooLong(reason) if cut else Rejected(reason)
