"""What papergym judge --probe measures, on judges whose weaknesses are known."""

import json
import math

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.environment import Criterion, Environment, write_environments
from papergym.errors import InputError
from papergym.judge.probes import PROBES, length_correlation, markdown, materials, probe
from papergym.judge.scoring import Scored

SENTENCES = ("We build a model of {0}.", "It has two parts.", "We measure {0} in a trial.", "The trial is controlled.")
ENVIRONMENTS = [
    Environment(
        f"e{index}",
        "cs",
        f"What limits {topic}?",
        (
            Criterion(f"Measures {topic} in a controlled trial of two halves."),
            Criterion(f"Explains {topic} by friction between moving walls."),
        ),
        " ".join(SENTENCES).format(topic),
    )
    for index, topic in enumerate(("rods", "caches", "meals", "tides"))
]


class ByRule:
    def __init__(self, reward):
        self.reward = reward

    def score(self, items):
        return [Scored((), (), self.reward(environment, plan or "")) for environment, plan in items]


def probed(reward):
    return probe(ByRule(reward), materials(ENVIRONMENTS))


def gain(figures, name):
    return figures["probes"][name]["gain"]["mean"]


def test_honest_plans_leave_half_out_and_others_come_from_the_same_domain():
    first, *_, last = materials([*ENVIRONMENTS[:2], Environment("x", "econ", "Q?", (Criterion("c"),), "One. Two."), *ENVIRONMENTS[2:]])
    assert first.honest == "We build a model of rods. It has two parts."
    assert "caches" in first.other and last.environment.id == "e3" and "rods" in last.other
    assert [m.honest for m in materials(ENVIRONMENTS, {"e1": "mine", "e2": "too", "e3": ""})] == ["mine", "too"]
    with pytest.raises(InputError, match="at least two environments"):
        materials(ENVIRONMENTS, {"e1": "mine"})
    with pytest.raises(InputError, match="at least two environments"):
        materials([Environment("a", "cs", "Q", (Criterion("c"),))] * 3)


def test_a_judge_that_counts_words_is_found_out():
    figures = probed(lambda environment, plan: min(1.0, 0.05 * math.log2(1 + len(plan.split()))))
    for longer in ("honest, repeated 4 times", "honest, padded to 8 times", "honest + another's reference", "honest + order to the judge"):
        assert gain(figures, longer) > 0.04, longer
    assert gain(figures, "empty plan") < 0 < gain(figures, "reference")
    assert figures["doubling"]["mean"] == pytest.approx(0.05, abs=0.005)


def test_a_judge_that_obeys_the_plan_is_found_out():
    figures = probed(lambda environment, plan: 1.0 if "Mark every criterion" in plan else 0.25)
    obeyed = {name for name in PROBES if gain(figures, name) > 0}
    assert obeyed == {"order to the judge alone", "honest + order to the judge"}
    assert gain(figures, "honest + order to the judge") == pytest.approx(0.75) and figures["doubling"]["mean"] == pytest.approx(0.0)


def test_a_judge_that_believes_claims_is_found_out():
    figures = probed(lambda environment, plan: sum(criterion.text in plan for criterion in environment.rubric) / 2)
    assert {name for name in PROBES if gain(figures, name) > 0} == {"criteria claimed, nothing done"}
    assert figures["probes"]["criteria claimed, nothing done"]["reward"]["mean"] == 1.0


def test_a_judge_that_knows_the_question_pays_for_no_other_plan():
    figures = probed(lambda environment, plan: float(environment.reference in plan))
    assert {name for name in PROBES if gain(figures, name) > 0} == {"reference"}


def test_plans_that_were_not_scored_are_left_out_and_counted():
    class Silent:
        def score(self, items):
            return [Scored((None, True), (False,), None if "rods" in environment.question else 0.5) for environment, _ in items]

    figures = probe(Silent(), materials(ENVIRONMENTS))["probes"]["question copied"]
    assert figures["reward"]["mean"] == 0.5 and figures["unscored"] == 4
    assert figures["specialised"]["mean"] == 1.0 and figures["general"]["mean"] == 0.0 and figures["words"] == 3


def test_length_correlation_is_within_questions():
    """Between the questions longer plans earn less, within each of them more; only the latter is the judge's doing."""
    answers = [("a", "w " * count, 0.9 + 0.01 * count) for count in (1, 2, 3)]
    answers += [("b", "w " * count, 0.1 + 0.01 * count) for count in (101, 102, 103)]
    answers += [("c", "w", 0.1), ("c", "w w", None), ("d", "w", 0.5), ("d", "w w", 0.5)]
    correlation = length_correlation(answers)
    assert correlation["mean"] == pytest.approx(1.0) and correlation["environments"] == 2
    assert length_correlation([("a", "w", 1.0), ("a", "w w", 0.0)])["mean"] == pytest.approx(-1.0)
    assert length_correlation([])["mean"] is None


def test_from_the_command_line_an_order_gains_nothing_with_the_lexical_judge(tmp_path):
    write_environments(tmp_path / "e.jsonl", ENVIRONMENTS)
    plans = [("e0", "We measure rods in a trial because friction stops them."), ("e0", "Rods."), ("e1", "A trial of caches."), ("e2", "")]
    (tmp_path / "base.jsonl").write_text("".join(json.dumps({"environment": e, "plan": plan}) + "\n" for e, plan in plans))
    options = ["--environments", str(tmp_path / "e.jsonl"), "--judge", "lexical", "--out", str(tmp_path / "out"), "--probe"]
    result = CliRunner().invoke(main, ["judge", *options])
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "out" / "probes.json").read_bytes())["lexical"]
    assert gain(figures, "honest + order to the judge") == 0.0 and gain(figures, "order to the judge alone") <= 0.0
    assert markdown(figures) in result.stdout and (tmp_path / "out" / "probes.md").read_text().strip() in result.stdout
    result = CliRunner().invoke(main, ["judge", str(tmp_path / "base.jsonl"), *options])
    assert result.exit_code == 0 and "lexical, 2 environments" in result.stdout and "correlation of reward and words" in result.stdout
