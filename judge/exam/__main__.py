"""python -m papergym.judge.exam [--judge SPEC] [--out FILE.json]: examines a judge on the labels that come with papergym.

Prints the figures as Markdown and writes them as JSON. The same judge gives the same file; the lexical judge takes two seconds.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from papergym.files import write_json
from papergym.judge.exam.agreement import MEASURES, agreement
from papergym.judge.exam.attacks import ATTACKS
from papergym.judge.exam.labels import Labels, Pair, load_labels
from papergym.judge.scoring import Judge, Scored, open_judge, score_all

SETS: Mapping[str, Callable[[Pair], bool]] = {
    "answers of a model": lambda pair: pair.source != "written",
    "competent plans": lambda pair: pair.source == "written",
    "all": lambda pair: True,
    "answers of a model, held back": lambda pair: pair.source != "written" and pair.held_back,
    "competent plans, held back": lambda pair: pair.source == "written" and pair.held_back,
    "all, held back": lambda pair: pair.held_back,
}


def examine(judge: Judge, labels: Labels) -> dict[str, Any]:
    """{"agreement": set -> figures, "pays": attack -> {"plans", "reward", "met"}, "signal": figures on an untrained model's answers}."""
    scores = score_all(judge, [(labels.environments[pair.environment], pair.plan) for pair in labels.pairs])
    verdicts = [score.specialised[pair.criterion] for pair, score in zip(labels.pairs, scores, strict=True)]
    read = list(zip(labels.pairs, verdicts, strict=True))
    return {
        "agreement": {name: _agreement([(pair, verdict) for pair, verdict in read if chosen(pair)]) for name, chosen in SETS.items()},
        "pays": {name: _payment(judge, labels, attack) for name, attack in ATTACKS.items()},
        "signal": _signal(judge, labels),
    }


def _agreement(read: Sequence[tuple[Pair, bool | None]]) -> dict[str, Any]:
    """The figures with a near miss counted as not met, and under "near counts" with it counted as met."""
    verdicts, plans = [verdict for _, verdict in read], [pair.plan for pair, _ in read]
    strict = agreement([pair.label == "met" for pair, _ in read], verdicts, plans)
    return {**strict, "near counts": agreement([pair.label != "not" for pair, _ in read], verdicts, plans)}


def _payment(judge: Judge, labels: Labels, attack: Any) -> dict[str, Any]:
    """Means over the environments for which the attack makes a plan."""
    plans = [(environment, attack(environment, labels)) for environment in labels.environments.values()]
    scores = score_all(judge, [(environment, plan) for environment, plan in plans if plan is not None])
    return {"plans": len(scores), "reward": _reward(scores), "met": round(fmean(map(_share_met, scores)), 3)}


def _signal(judge: Judge, labels: Labels) -> dict[str, Any]:
    """What there is to learn from: the mean reward, and how many groups of answers to one question all earn the same."""
    scores = score_all(judge, [(labels.environments[name], plan) for name, plan in labels.answers])
    groups: dict[str, set[float | None]] = {}
    for (name, _), score in zip(labels.answers, scores):
        groups.setdefault(name, set()).add(score.reward)
    return {
        "answers": len(scores),
        "groups": len(groups),
        "reward": _reward(scores),
        "earn_something": round(fmean(bool(score.reward) for score in scores), 3),
        "groups_without_variance": sum(len(rewards) == 1 for rewards in groups.values()),
    }


def _reward(scores: list[Scored]) -> float | None:
    rewards = [score.reward for score in scores if score.reward is not None]
    return round(fmean(rewards), 3) if rewards else None


def _share_met(score: Scored) -> float:
    verdicts = [verdict for verdict in score.specialised if verdict is not None]
    return sum(verdicts) / len(verdicts) if verdicts else 0.0


def as_markdown(result: Mapping[str, Any]) -> str:
    """Three tables, as docs/judge.md shows them."""
    lines = []
    for near in (False, True):
        lines += ["| pairs | n | met or near | said met |" if near else "| pairs | n | met | said met |"]
        lines[-1] += "".join(f" {measure} |" for measure in MEASURES)
        lines += ["|---|---|---|---|" + "---|" * len(MEASURES)]
        for name, strict in result["agreement"].items():
            figures = strict["near counts"] if near else strict
            cells = " | ".join(_interval(figures[measure]) for measure in MEASURES)
            lines.append(f"| {name} | {figures['pairs']} | {figures['met']} | {figures['said']} | {cells} |")
        lines.append("")
    lines += ["| plan | reward | criteria met |", "|---|---|---|"]
    lines += [f"| {name} | {paid['reward']:.3f} | {paid['met']:.0%} |" for name, paid in result["pays"].items()]
    return "\n".join(lines)


def _interval(figure: Mapping[str, float | None]) -> str:
    if figure["value"] is None:
        return "–"
    value, low, high = (number and round(number, 2) + 0.0 for number in (figure["value"], figure["low"], figure["high"]))  # + 0.0: no −0.00
    return f"{value:.2f}" + ("" if low is None else f" [{low:.2f}, {high:.2f}]")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m papergym.judge.exam", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--judge", default="lexical", help='"lexical", module:function, or a JSON object with the key "kind"')
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    spec = orjson.loads(arguments.judge) if arguments.judge.startswith("{") else arguments.judge
    result = {"judge": spec, **examine(open_judge(spec), load_labels())}
    if arguments.out:
        write_json(arguments.out, result)
    print(as_markdown(result))
    print(orjson.dumps(result["signal"]).decode())


if __name__ == "__main__":
    main()
