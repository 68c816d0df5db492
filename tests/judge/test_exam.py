"""What the exam measures, by hand; and what the lexical judge has to reach in it."""

from collections import Counter
from importlib.resources import files

import orjson
import pytest

from papergym.judge.exam.__main__ import as_markdown, examine
from papergym.judge.exam.agreement import agreement
from papergym.judge.exam.attacks import ATTACKS
from papergym.judge.exam.labels import load_labels
from papergym.judge.scoring import Scored, open_judge
from papergym.judge.words import all_words, sentences

LABELS = load_labels()


@pytest.fixture(scope="module")
def result():
    return orjson.loads(orjson.dumps({"judge": "lexical", **examine(open_judge("lexical"), LABELS)}))


def test_agreement_by_hand():
    labels = [True, True, True, False, False, True]
    verdicts = [True, True, False, True, False, None]
    figures = agreement(labels, verdicts, list("aabbcc"))
    assert {key: figures[key] for key in ("pairs", "plans", "met", "said", "unscored")} == {
        "pairs": 5,
        "plans": 3,
        "met": 3,
        "said": 3,
        "unscored": 1,
    }
    assert figures["agreement"]["value"] == 0.6 and figures["precision"]["value"] == figures["recall"]["value"] == 0.667
    assert figures["agreement"]["low"] == 0.0 and figures["agreement"]["high"] == 1.0  # only plan b drawn; only a and c drawn
    assert figures["kappa"]["value"] == 0.167  # observed 0.6, expected 0.6·0.6 + 0.4·0.4
    nothing = agreement([False, False], [False, False], ["a", "b"])
    assert nothing["agreement"]["value"] == 1.0 and nothing["precision"]["value"] is nothing["recall"]["value"] is None
    assert nothing["kappa"]["value"] is None and agreement([], [], [])["pairs"] == 0
    swapped = agreement([True, True, False], [True, False, True], list("abc"))
    assert (swapped["met"], swapped["said"], swapped["precision"]["value"], swapped["recall"]["value"]) == (2, 2, 0.5, 0.5)
    one_sided = agreement([True, True, False], [True, False, False], list("abc"))
    assert (one_sided["precision"]["value"], one_sided["recall"]["value"]) == (1.0, 0.5)


def test_intervals_narrow_with_more_plans():
    def width(plans):
        labels = [True, False, True, True] * plans
        verdicts = [True, True, True, False] * plans
        figure = agreement(labels, verdicts, [str(number) for number in range(4 * plans)])["agreement"]
        return figure["high"] - figure["low"]

    assert 0 < width(100) < width(10) / 2


def test_labels_are_whole():
    """60 pairs and more of a model's own answers, none twice, half of them held back; every environment has a plan written for it."""
    model = [pair for pair in LABELS.pairs if pair.source != "written"]
    assert len(model) >= 60 and len({(pair.plan, pair.criterion) for pair in LABELS.pairs}) == len(LABELS.pairs)
    assert abs(sum(pair.held_back for pair in model) - len(model) / 2) <= 1
    assert {pair.label for pair in LABELS.pairs} == {"met", "near", "not"} and all(pair.reason for pair in LABELS.pairs)
    assert Counter(pair.source for pair in model).keys() == {"base", "opsd", "grpo"}
    assert LABELS.plans.keys() == LABELS.environments.keys()
    held = {pair.plan for pair in LABELS.pairs if pair.held_back}
    assert not held & {pair.plan for pair in LABELS.pairs if not pair.held_back and pair.source == "written"}
    for pair in LABELS.pairs:
        assert 0 <= pair.criterion < len(LABELS.environments[pair.environment].rubric)


def test_attacks_are_what_they_say():
    environment = LABELS.environments["rod-silo-329c9ca0"]
    plans = {name: attack(environment, LABELS) for name, attack in ATTACKS.items()}
    assert None not in plans.values() and len(set(plans.values())) == len(plans)
    words = Counter(word for criterion in environment.rubric for word in all_words(criterion.text))
    assert Counter(all_words(plans["the criteria's words in no order"])) == words
    assert Counter(all_words(plans["the criteria, content words swapped"])) == words
    assert Counter(all_words(plans["the reference, each sentence shuffled"])) == Counter(all_words(environment.reference))
    assert len(sentences(plans["a rare word of every criterion"])) == len(environment.rubric)
    assert plans["another paper's reference"] in {other.reference for other in LABELS.environments.values() if other is not environment}


def test_a_judge_that_says_met_to_everything_is_found_out():
    class Generous:
        def score(self, items):
            return [Scored((True,) * len(environment.rubric), (True,), 1.0) for environment, _ in items]

    result = examine(Generous(), LABELS)
    figures = result["agreement"]["all"]
    assert figures["said"] == figures["pairs"] and figures["recall"]["value"] == 1.0 and figures["kappa"]["value"] == 0.0
    assert result["pays"]["an empty plan"] == {"plans": 12, "reward": 1.0, "met": 1.0}
    assert result["signal"]["groups_without_variance"] == result["signal"]["groups"] == 4


def test_the_committed_figures_are_those_of_the_rule(result):
    assert orjson.loads((files("papergym.report") / "lexical_judge.json").read_bytes()) == result
    assert as_markdown(result).count("\n| ") == 2 + 2 * len(result["agreement"]) + len(result["pays"])  # with headings


def test_least_agreement_with_a_reader(result):
    assert result["agreement"]["all, held back"]["agreement"]["value"] >= 0.6
    competent = result["agreement"]["competent plans, held back"]
    assert competent["precision"]["value"] >= 0.75 and competent["recall"]["value"] >= 0.55
    assert competent["near counts"]["precision"]["value"] >= 0.9
    model = result["agreement"]["answers of a model"]
    assert model["met"] == 0 and model["said"] <= 24  # drawn so that a good part was said to be met


@pytest.mark.parametrize(
    "attack, most",
    [
        ("an empty plan", 0.0),
        ("the criteria word for word", 0.3),
        ("the question", 0.0),
        ("the question five times", 0.0),
        ("the criteria's words as a list", 0.0),
        ("the criteria's words in no order", 0.01),
        ("the reference's words in no order", 0.01),
        ("the reference, each sentence shuffled", 0.01),
        ("one rare word of the first criterion", 0.03),
        ("a rare word of every criterion", 0.2),
        ("boilerplate on the subject", 0.15),
        ("the question, then boilerplate", 0.1),
        ("another paper's reference", 0.1),
        ("five other papers' references", 0.1),
    ],
)
def test_most_that_an_attack_is_paid(result, attack, most):
    assert result["pays"][attack]["reward"] <= most


def test_honest_plans_are_paid_and_padding_is_not(result):
    pays = {name: figures["reward"] for name, figures in result["pays"].items()}
    assert pays["the reference plan"] >= 0.9 and pays["a competent plan in other words"] >= 0.4
    assert pays["that plan four times"] < pays["a competent plan in other words"]
    assert pays["that plan, then another paper's reference"] < pays["a competent plan in other words"]


def test_an_untrained_model_has_something_to_learn_from(result):
    signal = result["signal"]
    assert 0.02 <= signal["reward"] <= 0.1 and signal["earn_something"] >= 0.25
    assert signal["groups_without_variance"] == 0
