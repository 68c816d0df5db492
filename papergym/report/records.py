"""One sampled response as the page shows it, read from a line of eval/<row>.jsonl or rollouts.jsonl and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papergym.errors import InputError
from papergym.files import read_json

TEXT_LIMIT = 20_000  # characters of one text that the page keeps; thinking can run to hundreds of thousands

Verdicts = tuple[bool | None, ...]


@dataclass(frozen=True)
class Answer:
    """One sampled response, of an evaluation (row) or of training (stage, step). reward and verdicts: None means not scored.

    thinking + plan + stop is the response; raw is the whole response where the plan can't be found in it, else "".
    Every text is cut to TEXT_LIMIT characters, with the cut stated in the text.
    """

    source: str  # row or stage
    environment: str
    sample: int
    thinking: str
    plan: str
    stop: str
    raw: str
    tokens: int
    finish_reason: str
    specialised: Verdicts
    general: Verdicts
    reward: float | None
    step: int | None = None
    advantage: float | None = None
    entropy: float | None = None  # nats a token, of an evaluation's answer
    seed: str = ""  # name of the training run that it comes from, where there are several


def read_answer(record: Mapping[str, Any], source: str, where: str, rubrics: Mapping[str, int], step: int | None = None) -> Answer:
    """rubrics: environment id -> number of criteria, to check the verdicts against. Raises InputError naming place, field and value."""
    for name in ("environment", "response", "plan", "finish_reason"):
        if not isinstance(record.get(name), str) and not (name == "plan" and record.get(name, "") is None):
            raise InputError(f"{where}, {name}: a string is needed, not {record.get(name)!r}")
    environment = record["environment"]
    specialised = _verdicts(record, "specialised", where)
    expected = rubrics.get(environment)
    if specialised and expected is not None and len(specialised) != expected:
        raise InputError(
            f"{where}, specialised: {len(specialised)} verdicts for the {expected} criteria of environment {environment!r};"
            " the answers belong to other environments than those in environments/"
        )
    plan = record["plan"] or ""  # null where the response never left its thinking block
    thinking, stop, raw = _around(record["response"], plan)
    return Answer(
        source=source,
        environment=environment,
        sample=integer(record, "sample", where),
        thinking=clip(thinking),
        plan=clip(plan),
        stop=clip(stop),
        raw=clip(raw),
        tokens=integer(record, "tokens", where),
        finish_reason=record["finish_reason"],
        specialised=specialised,
        general=_verdicts(record, "general", where),
        reward=_number(record, "reward", where),
        step=step,
        advantage=_number(record, "advantage", where),
        entropy=_number(record, "entropy", where),
        seed=str(record.get("seed", "")),
    )


def _around(response: str, plan: str) -> tuple[str, str, str]:
    """What stands before and after the plan, or the whole response as the third where the plan isn't part of it."""
    start = response.rfind(plan) if plan else len(response)
    if start < 0:
        return "", "", response
    return response[:start], response[start + len(plan) :], ""


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """The text, or its two ends with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n\n[… {len(text) - 2 * half:,} characters left out of this report …]\n\n{text[-half:]}"


def _verdicts(record: Mapping[str, Any], name: str, where: str) -> Verdicts:
    values = record.get(name) or []
    if not isinstance(values, list) or not all(value is None or isinstance(value, bool) for value in values):
        raise InputError(f"{where}, {name}: a list of true, false or null is needed, not {str(values)[:60]}")
    return tuple(values)


def _number(record: Mapping[str, Any], name: str, where: str) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}, {name}: a number or null is needed, not {value!r}")
    return float(value)


def integer(record: Mapping[str, Any], name: str, where: str) -> int:
    """A whole number of a record. Raises InputError naming place, field and value."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}, {name}: a whole number is needed, not {value!r}")
    return value


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object, {} where there is no file."""
    if not path.exists():
        return {}
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: a JSON object is needed, not {type(value).__name__}")
    return value
