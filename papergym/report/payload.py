"""The data of the page as one JSON value that stays within a number of bytes, with what was left out counted in it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

import orjson

from papergym.environment import Environment
from papergym.report.read import Run
from papergym.report.records import Answer, clip
from papergym.report.summary import environment_results, reward_length_correlation, stage_curves
from papergym.report.table import compare

T = TypeVar("T")
VERDICT_SIGNS = {True: "1", False: "0", None: "-"}


def build_payload(run: Run, limit: int) -> dict[str, Any]:
    """Everything the page shows, at most about `limit` bytes as `encode` writes it.

    The table, the curves and the shares of met criteria always cover the whole run. Texts are kept in this order while they fit:
    environments (evaluated ones first), held-out answers (the first sample of every row and environment, then the second, …),
    training rollouts (whole steps: first, last, then halving the gaps).
    """
    results = environment_results(run.rows)
    payload: dict[str, Any] = {
        "info": {key: value for key, value in run.info.items() if key != "general_criteria"},
        "general": _general_names(run),
        "notes": list(run.notes),
        "rows": list(run.rows),
        "table": compare(run.rows) if run.rows else list(run.table),
        "correlation": {row: reward_length_correlation(answers) for row, answers in run.rows.items()},
        "results": results,
        "stages": [stage_curves(stage) for stage in run.stages],
        "splits": Counter(split for split, _ in run.environments),
        "heldout": bool(results) and set(results) <= {environment.id for split, environment in run.environments if split == "heldout"},
        "rejects": {"count": len(run.rejects), "first": [_reject(record) for record in run.rejects[:100]]},
        "summaries": run.summaries,
        "judge_exam": run.judge_exam,
    }
    room = limit - len(encode(payload))

    ordered = sorted(run.environments, key=lambda item: item[1].id not in results)
    environments, room = _take([[environment_record(*item)] for item in ordered], room, 0.3)
    answers, room = _take(_by_sample(run.rows), room, 0.65)
    rollouts, room = _take(_spread_steps(run), room, 1.0)
    payload |= {"environments": environments, "answers": answers, "rollouts": rollouts}
    payload["kept"] = {
        "environments": [len(environments), len(run.environments)],
        "answers": [len(answers), sum(map(len, run.rows.values()))],
        "rollouts": [len(rollouts), sum(len(stage.rollouts) for stage in run.stages)],
    }
    return payload


def encode(payload: Any) -> bytes:
    """JSON that can stand inside a script element: no `<`, `>` or `&` is left, so no text in it can end the element."""
    text = orjson.dumps(payload, option=orjson.OPT_NON_STR_KEYS)
    return text.replace(b"<", rb"\u003c").replace(b">", rb"\u003e").replace(b"&", rb"\u0026")


def environment_record(split: str, environment: Environment) -> dict[str, Any]:
    """An environment as the page reads it: the record with its split, its paper's short name and long texts cut."""
    paper = environment.provenance.get("paper")
    paper_name = PurePath(paper).name if isinstance(paper, str) and paper else environment.id
    record = environment.to_record() | {"split": split, "paper": paper_name}
    for name in ("question", "reference"):
        record[name] = clip(record[name]) if record[name] else None
    if record["stages"]:
        record["stages"] = {name: clip(text) for name, text in record["stages"].items()}
    return record


def _take(groups: Iterable[Sequence[T]], room: int, share: float) -> tuple[list[T], int]:
    """Groups, whole and in order, until the first that no longer fits in its share of the room; and the room left."""
    taken: list[T] = []
    budget = available = int(room * share)
    for group in groups:
        size = sum(len(encode(item)) + 1 for item in group)
        if size > available:
            break
        available -= size
        taken.extend(group)
    return taken, room - (budget - available)


def _by_sample(rows: Mapping[str, Sequence[Answer]]) -> list[list[dict[str, Any]]]:
    """One group for each (sample, environment) with its answers in every row, so that before and after stay together."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for answers in rows.values():
        for answer in answers:
            groups[answer.sample, answer.environment].append(_answer_record(answer))
    order = sorted(groups, key=lambda key: key[0])  # stable: environments stay in the order of the evaluation
    return [groups[key] for key in order]


def _spread_steps(run: Run) -> list[list[dict[str, Any]]]:
    """Rollouts grouped by stage and step, in an order that covers every stage evenly however early it is cut off."""
    ranked = []
    for place, stage in enumerate(run.stages):
        steps: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
        for rollout in sorted(stage.rollouts, key=lambda rollout: rollout.step or 0):
            steps[rollout.step].append(_answer_record(rollout))
        groups = list(steps.values())
        ranked += [(rank, place, groups[index]) for rank, index in enumerate(spread(len(groups)))]
    return [group for _, _, group in sorted(ranked, key=lambda item: item[:2])]


def spread(count: int) -> list[int]:
    """0 … count-1 as: first, last, then the middle of each widest gap in turn."""
    order = [0, count - 1][:count]
    gaps = [(0, count - 1)]
    while gaps:
        halves = []
        for low, high in gaps:
            if high - low > 1:
                middle = (low + high) // 2
                order.append(middle)
                halves += [(low, middle), (middle, high)]
        gaps = halves
    return order


def _answer_record(answer: Answer) -> dict[str, Any]:
    record = {
        "source": answer.source,
        "environment": answer.environment,
        "sample": answer.sample,
        "seed": answer.seed,
        "reward": answer.reward,
        "tokens": answer.tokens,
        "finish": answer.finish_reason,
        "specialised": "".join(VERDICT_SIGNS[verdict] for verdict in answer.specialised),
        "general": "".join(VERDICT_SIGNS[verdict] for verdict in answer.general),
        "thinking": answer.thinking,
        "plan": answer.plan,
        "stop": answer.stop,
        "raw": answer.raw,
        "step": answer.step,
        "advantage": answer.advantage,
    }
    return {key: value for key, value in record.items() if value is not None and value != ""} | {"reward": answer.reward}


def _general_names(run: Run) -> list[str]:
    """The "general_criteria" (strings, or objects with a "name") of run.json or of an evaluation's summary; numbers where none says."""
    named = next((names for source in (run.info, *run.summaries.values()) if (names := source.get("general_criteria"))), None)
    names = [str(item.get("name", "")) if isinstance(item, Mapping) else str(item) for item in named] if isinstance(named, list) else []
    answers = [answer for group in (*run.rows.values(), *(stage.rollouts for stage in run.stages)) for answer in group]
    count = max((len(answer.general) for answer in answers), default=0)
    return [names[index] if index < len(names) and names[index] else f"General criterion {index + 1}" for index in range(count)]


def _reject(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: clip(str(record.get(name, "")), 400) for name in ("paper", "reason")}
