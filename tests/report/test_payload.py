"""Counts and curves by hand; what is kept when a run is larger than the page."""

import itertools
import json
import math

import pytest

from papergym.report.payload import build_payload, encode, spread
from papergym.report.read import read_run
from papergym.report.records import Answer
from papergym.report.stages import Stage
from papergym.report.summary import environment_results, reward_length_correlation, stage_curves


def answer(environment: str, sample: int, reward: float | None, tokens: int = 10, specialised=(), general=()) -> Answer:
    return Answer("base", environment, sample, "", "plan", "", "", tokens, "stop", tuple(specialised), tuple(general), reward)


def test_results_count_met_and_scored():
    rows = {
        "base": [
            answer("a", 0, 0.5, 10, [True, False, None], [True]),
            answer("a", 1, None, 20, [None, False, None], [None]),
            answer("a", 2, 0.2, 60, [True, True, None], [False]),
        ]
    }
    assert environment_results(rows) == {
        "a": {
            "base": {
                "reward": pytest.approx(0.35),
                "tokens": 30.0,
                "scored": 2,
                "samples": 3,
                "specialised": [[2, 2], [1, 3], [0, 0]],
                "general": [[1, 2]],
            }
        }
    }


def test_correlation_looks_inside_environments():
    # Longer is better within both questions, although the question with longer answers scores lower.
    answers = [answer("a", 0, 0.8, 10), answer("a", 1, 0.9, 20), answer("b", 0, 0.1, 100), answer("b", 1, 0.2, 110)]
    assert reward_length_correlation(answers) == pytest.approx(1.0)
    flipped = [answer("a", 0, 0.8, 20), answer("a", 1, 0.9, 10), answer("a", 2, None, 900)]
    assert reward_length_correlation(flipped) == pytest.approx(-1.0)
    assert reward_length_correlation([answer("a", 0, 0.5, 10), answer("a", 1, 0.5, 30)]) is None
    assert reward_length_correlation([]) is None


def test_curves_by_hand():
    metrics = [{"step": step, "time": 1000.0 + step, "time/step": 30.0, "loss": float(step), "kl": None} for step in range(1, 16)]
    metrics[2]["loss"] = None
    curve = stage_curves(Stage("grpo", metrics, []))
    assert curve["steps"] == 15 and curve["group"] == 1
    assert curve["minutes"][:3] == [0.5, 1.0, 1.5]  # pauses between steps don't count
    assert curve["series"]["loss"][:4] == [1.0, 2.0, None, 4.0]
    assert set(curve["series"]) == {"loss", "time/step"}  # kl never had a value
    assert curve["ends"]["loss"] == [1.5, 14.5, 2]


def test_training_time_from_clock_times():
    metrics = [{"step": step, "time": 60.0 * step * step} for step in (1, 2, 3)]
    assert stage_curves(Stage("sft", metrics, []))["minutes"] == [0.0, 3.0, 8.0]


def test_long_stages_are_drawn_as_means():
    curve = stage_curves(Stage("grpo", [{"step": step, "loss": float(step), "time/step": 60.0} for step in range(1, 2502)], []))
    assert curve["group"] == 3 and len(curve["step"]) == 834
    assert curve["series"]["loss"][:2] == [2.0, 5.0]
    assert (curve["step"][0], curve["step"][-1]) == (3, 2501)
    assert (curve["minutes"][0], curve["minutes"][-1]) == (3.0, 2501.0)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 100])
def test_spread_is_a_permutation_that_covers_early(count):
    order = spread(count)
    assert sorted(order) == list(range(count))
    if count == 100:
        first = sorted(order[:9])
        assert first[0] == 0 and first[-1] == 99
        assert max(b - a for a, b in itertools.pairwise(first)) <= 14


def test_what_does_not_fit_is_left_out_evenly_and_counted(fake_run):
    run = read_run(fake_run(steps=40, rollouts=4, heldout=4, samples=6))
    whole = build_payload(run, 10**9)
    assert whole["kept"] == {"environments": [7, 7], "answers": [72, 72], "rollouts": [320, 320]}
    small = build_payload(run, 120_000)
    assert len(encode(small)) <= 120_000
    assert small["table"] == whole["table"] and small["results"] == whole["results"]

    kept, total = small["kept"]["answers"]
    assert 9 <= kept < total == 72
    groups = {(item["sample"], item["environment"]) for item in small["answers"]}
    assert kept == 3 * len(groups)  # before and after stay together
    samples = [item["sample"] for item in small["answers"]]
    assert samples == sorted(samples)

    steps = {(item["source"], item["step"]) for item in small["rollouts"]}
    assert len(small["rollouts"]) == 4 * len(steps)  # whole groups
    assert {("opsd", 1), ("opsd", 40), ("grpo", 1), ("grpo", 40)} <= steps


def test_room_for_nothing_keeps_the_numbers(fake_run):
    payload = build_payload(read_run(fake_run(steps=3)), 0)
    assert payload["answers"] == payload["rollouts"] == payload["environments"] == []
    assert len(payload["table"]) == 3


def test_encoding_is_inert_and_exact():
    value = {"text": "</script><!--<script>& \u2028 </SCRIPT > \U0001f600 \\ \"'", "number": 0.1}
    text = encode(value)
    assert not set(b"<>&") & set(text)
    assert json.loads(text) == value


def test_general_criteria_have_names_or_numbers(fake_run):
    folder = fake_run(steps=2)
    assert build_payload(read_run(folder), 10**6)["general"][5] == "No ethical issues"
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(info | {"general_criteria": [{"name": "Only this"}]}))
    assert build_payload(read_run(folder), 10**6)["general"][:2] == ["Only this", "General criterion 2"]


def test_rewards_survive_the_encoding(fake_run):
    run = read_run(fake_run(steps=2))
    payload = json.loads(encode(build_payload(run, 10**7)))
    found = {(item["source"], item["environment"], item["sample"]): item for item in payload["answers"]}
    signs = {"1": True, "0": False, "-": None}
    for row, answers in run.rows.items():
        for original in answers:
            item = found[row, original.environment, original.sample]
            assert item["reward"] is None if original.reward is None else math.isclose(item["reward"], original.reward)
            assert tuple(signs[sign] for sign in item["specialised"]) == original.specialised
            assert item["plan"] == original.plan


def test_each_seeds_curve_stands_beside_their_mean():
    seeds = {"seed0": [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 3.0}], "seed1": [{"step": 2, "kl": 5.0}]}
    curve = stage_curves(Stage("grpo", [{"step": 1, "kl": 1.0}, {"step": 2, "kl": 4.0}], [], "opsd", seeds))
    assert curve["series"]["kl"] == [1.0, 4.0] and curve["seeds"]["kl"] == [[1.0, 3.0], [None, 5.0]]
    assert curve["after"] == "opsd"


def test_a_long_run_stays_small(long_run):
    run = read_run(long_run(seeds=3, steps=60))
    payload = build_payload(run, 500_000)
    assert len(encode(payload)) <= 500_000 and payload["kept"]["rollouts"][0] < payload["kept"]["rollouts"][1]
    kept = {(rollout["source"], rollout["seed"]) for rollout in payload["rollouts"]}
    assert {seed for _, seed in kept} == {"seed0", "seed1", "seed2"} and len({stage for stage, _ in kept}) == 5
