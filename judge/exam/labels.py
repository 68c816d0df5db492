"""The labelled pairs of plan and criterion, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import orjson

from papergym.environment import Environment


@dataclass(frozen=True)
class Pair:
    """What a reader says of a plan and criterion number `criterion` (from 0) of its environment, before seeing any verdict.

    label: "met"; "near", when the plan proposes a part of it or something of its kind, on its subject; or "not". reason: why.
    source: "base", "opsd" or "grpo", samples of a 135M model before and after training, or "written", plans written for this exam.
    """

    source: str
    environment: str
    plan: str
    criterion: int
    label: str
    reason: str
    held_back: bool


@dataclass(frozen=True)
class Labels:
    """environments: by id. plans: environment id -> the plan written for it, where there is one. answers: (environment id, answer) of the
    untrained model to held-out questions, eight each, unlabelled."""

    environments: Mapping[str, Environment]
    plans: Mapping[str, str]
    pairs: Sequence[Pair]
    answers: Sequence[tuple[str, str]]


def load_labels() -> Labels:
    """The labels that come with papergym."""
    data = orjson.loads((files(__name__.rpartition(".")[0]) / "labels.json").read_bytes())
    environments = {record["id"]: Environment.from_record(record) for record in data["environments"]}
    pairs = [Pair(**{**pair, "plan": data["plans"][pair["plan"]]}) for pair in data["pairs"]]
    written = {pair.environment: pair.plan for pair in pairs if pair.source == "written"}
    return Labels(environments, written, pairs, [(environment, data["plans"][plan]) for environment, plan in data["answers"]])
