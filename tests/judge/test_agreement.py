import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.agreement import agreement, calibration, cohen_kappa, verdict_table
from papergym.judge.agreement_figure import draw, markdown

ENVIRONMENTS = {
    name: Environment(name, domain, "Q", (Criterion("a", "method"), Criterion("b", "experiment")))
    for name, domain in (("e0", "cs"), ("e1", "cs"), ("e2", "econ"), ("e3", "econ"))
}


def record(judge, environment, specialised, general=(True,), run=0, sample=0, **more):
    ids = {"judge": judge, "run": run, "row": "base", "environment": environment, "sample": sample}
    return ids | {"specialised": list(specialised), "general": list(general), "reward": 0.5} | more


def figures_of(*records):
    return agreement(verdict_table(records, ENVIRONMENTS))


@pytest.mark.parametrize(
    ("counts", "kappa"),
    [
        ([20, 5, 10, 15], 0.4),  # p_o = 0.7, p_e = 0.5
        ([25, 0, 0, 25], 1.0),
        ([0, 25, 25, 0], -1.0),
        ([4, 4, 4, 4], 0.0),
        ([45, 15, 25, 15], (0.6 - 0.54) / 0.46),
        ([7, 0, 0, 0], math.nan),  # both always say yes: nothing can be told
        ([0, 0, 0, 0], math.nan),
    ],
)
def test_kappa_by_hand(counts, kappa):
    assert cohen_kappa(np.array([counts]))[0] == pytest.approx(kappa, nan_ok=True)


@given(st.tuples(*[st.integers(0, 40)] * 4))
def test_kappa_is_symmetric_and_with_equal_margins_it_is_the_correlation(counts):
    both, first, second, neither = counts
    kappa = cohen_kappa(np.array([[both, first, second, neither]]))[0]
    for same in ([both, second, first, neither], [neither, first, second, both]):
        assert cohen_kappa(np.array([same]))[0] == pytest.approx(kappa, nan_ok=True)
    if first and both + neither:
        cells = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], [both, first, first, neither], axis=0)
        correlation = np.corrcoef(cells.T)[0, 1]
        assert cohen_kappa(np.array([[both, first, first, neither]]))[0] == pytest.approx(correlation)


def test_pairs_by_hand():
    """Unscored verdicts leave the pair; groups hold what their names say."""
    figures = figures_of(
        record("x", "e0", [True, True], [True]),
        record("x", "e2", [False, True], [None]),
        record("y", "e0", [True, False], [True]),
        record("y", "e2", [False, True], [True]),
    )
    (pair,) = figures["pairs"]
    assert pair["judges"] == ["x", "y"]
    assert list(pair)[1:] == ["all", "experiment", "general", "method", "domain: cs", "domain: econ"]
    values = {name: (pair[name]["agreement"]["mean"], pair[name]["verdicts"]) for name in list(pair)[1:]}
    assert values == {
        "all": (4 / 5, 5),
        "method": (1.0, 2),
        "experiment": (1 / 2, 2),
        "general": (1.0, 1),
        "domain: cs": (2 / 3, 3),
        "domain: econ": (1.0, 2),
    }
    assert pair["all"]["kappa"]["mean"] == pytest.approx((4 / 5 - (4 / 5 * 3 / 5 + 1 / 5 * 2 / 5)) / (1 - (4 / 5 * 3 / 5 + 1 / 5 * 2 / 5)))
    assert figures["judges"]["x"]["strictness"]["all"]["mean"] == 4 / 5 and figures["judges"]["x"]["unscored"] == 1
    assert figures["judges"]["y"]["strictness"]["domain: econ"]["mean"] == 2 / 3


def test_self_consistency_by_hand():
    figures = figures_of(
        record("x", "e0", [True, True], [None], run=0),
        record("x", "e1", [True, False], [True], run=0),
        record("x", "e0", [True, False], [True], run=1),
        record("x", "e1", [True, False], [False], run=1),
    )["judges"]["x"]
    assert figures["run_means"] == [pytest.approx(4 / 5), pytest.approx(3 / 6)] and figures["range"] == pytest.approx(0.3)
    assert figures["same"]["mean"] == pytest.approx(3 / 5)  # of the five units that both runs scored
    assert figures["unscored"] == 1
    criteria = figures_of(
        *(
            record("x", "e0", [verdict, True], [None], run=run, sample=sample)
            for run, sample, verdict in ((0, 0, 1), (0, 1, 0), (1, 0, 1), (1, 1, 1))
        )
    )["criteria"]["x"]
    by_key = {(entry["set"], entry["criterion"]): (entry["mean"], entry["range"]) for entry in criteria}
    assert by_key == {("specialised", 0): (0.75, 0.5), ("specialised", 1): (1.0, 0.0), ("general", 0): (None, None)}


def test_one_run_says_nothing_about_steadiness():
    assert figures_of(record("x", "e0", [True, True]))["judges"]["x"]["same"] is None


def test_intervals_resample_environments_not_verdicts():
    """A thousand equal answers to each of four questions are no more evidence than one."""
    few = [record(judge, f"e{e}", [e != 3 or judge == "x", True]) for judge in "xy" for e in range(4)]
    many = [record(judge, f"e{e}", [e != 3 or judge == "x", True], sample=s) for judge in "xy" for e in range(4) for s in range(50)]
    one, other = (figures_of(*records)["pairs"][0]["all"]["agreement"] for records in (few, many))
    assert one == other and one["low"] < one["mean"] < one["high"]
    assert one["mean"] == pytest.approx(11 / 12) and one["low"] == pytest.approx(9 / 12)


def test_intervals_cover():
    """A 95 % interval of the agreement of two judges with known error holds the truth about 19 times in 20."""
    held = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        environments = {f"e{e}": Environment(f"e{e}", "cs", "Q", (Criterion("a"),) * 5) for e in range(30)}
        truth = random.random((30, 5)) < 0.5
        records = [
            record(judge, f"e{e}", (truth[e] ^ (random.random(5) < error)).tolist(), ())
            for judge, error in (("x", 0.1), ("y", 0.2))
            for e in range(30)
        ]
        interval = agreement(verdict_table(records, environments))["pairs"][0]["all"]["agreement"]
        held += interval["low"] <= 0.9 * 0.8 + 0.1 * 0.2 <= interval["high"]
    assert 33 <= held <= 40


def test_judges_of_different_plans_are_not_compared():
    with pytest.raises(InputError, match="judge 'y', run 0: it judged other plans"):
        figures_of(record("x", "e0", [True, True]), record("y", "e1", [True, True]))
    with pytest.raises(InputError, match="other plans or criteria"):
        figures_of(record("x", "e0", [True, True]), record("y", "e0", [True, True], [True, True]))


def test_calibration_by_hand():
    chances = {"specialised_chances": [0.75, 0.25], "general_chances": [1.0]}
    records = [
        record("soft", "e0", [True, False], [True], **chances),
        record("strong", "e0", [True, True], [None]),
        record("soft", "e1", [True, False], [True], **chances),
        record("strong", "e1", [False, False], [True]),
    ]
    figures = calibration(verdict_table(records, ENVIRONMENTS), "soft", "strong")
    assert figures["brier"] == pytest.approx((0.25**2 + 0.75**2 + 0.75**2 + 0.25**2 + 0) / 5)
    assert figures["error"] == pytest.approx((2 * 0.25 + 2 * 0.25 + 0) / 5)
    assert [(entry["low"], entry["units"], entry["chance"], entry["met"]) for entry in figures["bins"]] == [
        (0.2, 2, 0.25, 0.5),
        (0.7, 2, 0.75, 0.5),
        (0.9, 1, 1.0, 1.0),
    ]


def test_table_and_figure_hold_the_numbers(tmp_path):
    figures = figures_of(
        *(record(judge, f"e{e}", [e % 2 == 0, judge == "x"], run=run) for judge in ("x", "y") for run in (0, 1) for e in range(4))
    )
    text = markdown(figures)
    assert "| x and y | all " in text and "66.7%" in text and "| x     | 2    | 0.0 points" in text
    assert all(len(one) == len(other) for table in text.split("\n\n") for one, other in pairwise(table.splitlines()))
    draw(figures, tmp_path / "agreement.svg")
    draw(figures, tmp_path / "again.svg")
    svg = (tmp_path / "agreement.svg").read_text()
    assert "<svg" in svg and "image" in svg
