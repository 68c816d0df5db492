import random

import pytest

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.general import load_general
from papergym.judge.general.checks import detailed, handles_all, justified

ENVIRONMENT = Environment(
    id="e",
    domain="physics",
    question="Clogs of elongated rods in a silo: how does vibration reopen them?",
    rubric=(
        Criterion("A shaker drives the outlet sinusoidally at fixed acceleration"),
        Criterion("Arch lifetimes are fitted by survival curves"),
    ),
)
STATEMENTS = [
    "We record every arch of rods with a camera under the silo.",
    "The vibration of the silo is calibrated with an accelerometer at the hopper.",
    "We vary the amplitude and the frequency of the vibration of the silo in shuffled order.",
]


def test_seven_criteria_in_the_order_of_the_protocol():
    criteria = load_general()
    assert [criterion.name for criterion in criteria] == [
        "Handles all criteria",
        "Detailed, specific solution",
        "No overlooked flaws",
        "Well-justified rationale",
        "Cost and effort efficient",
        "No ethical issues",
        "Consistent with the overall plan",
    ]
    assert [criterion.check for criterion in criteria] == [handles_all, detailed, None, justified, None, None, None]


def test_detailed_counts_two_statements_that_do_something():
    for missing in range(3):
        assert detailed(ENVIRONMENT, " ".join(STATEMENTS[:missing] + STATEMENTS[missing + 1 :]))
        assert not detailed(ENVIRONMENT, STATEMENTS[missing])
    assert not detailed(ENVIRONMENT, STATEMENTS[0] * 10)  # repetition
    assert not detailed(ENVIRONMENT, "We will carefully handle all important issues and evaluate the results of the method. " * 5)
    assert not detailed(ENVIRONMENT, f"{ENVIRONMENT.question} " * 5)
    assert not detailed(ENVIRONMENT, "")


def test_a_statement_is_on_the_subject():
    elsewhere = ["We record every bidder with a camera in the hall.", "The prices of tenders are calibrated with an index for the year."]
    assert not detailed(ENVIRONMENT, " ".join(elsewhere))
    assert detailed(ENVIRONMENT, " ".join(f"{sentence[:-1]} of the silo under vibration." for sentence in elsewhere))
    after_it = (
        "Rods in the silo are under vibration. We record every bidder with a camera. It is so. The prices are calibrated with an index."
    )
    assert not detailed(ENVIRONMENT, after_it)  # only the sentence just after one on the subject counts
    assert detailed(ENVIRONMENT, after_it.replace("It is so", "There are rods in the silo"))


def test_a_long_plan_needs_more_statements():
    """600 words and more: twice as many statements are needed, and there are three."""
    padding = " So it was for us as it is in what comes after this." * 50
    assert detailed(ENVIRONMENT, " ".join(STATEMENTS)) and not detailed(ENVIRONMENT, " ".join(STATEMENTS) + padding)


def test_shuffled_words_state_nothing():
    words = " ".join(STATEMENTS).replace(".", "").split()
    random.Random(1).shuffle(words)
    assert not detailed(ENVIRONMENT, f"{' '.join(words[:20])}. {' '.join(words[20:])}.")


def test_justified_counts_two_reasons():
    reasons = [
        "We pulse the vibration of the silo because continuous driving heats the membrane.",
        "Amplitudes of the vibration are drawn at random so that fatigue of the silo averages out.",
    ]
    assert justified(ENVIRONMENT, " ".join(reasons))
    assert not justified(ENVIRONMENT, reasons[0] * 4)
    assert not justified(ENVIRONMENT, " ".join(reasons).replace("because", "and").replace("so that", "and"))
    assert not justified(ENVIRONMENT, "This is good because it is important. " * 3)


def test_handles_all_asks_for_each_criterion():
    whole = (
        "A shaker drives the outlet of the silo at an acceleration. The lifetimes of arches in the silo are fitted by curves of survival."
    )
    assert handles_all(ENVIRONMENT, whole) is True
    assert handles_all(ENVIRONMENT, whole.split(". ")[0] + " of the silo") is False
    assert handles_all(ENVIRONMENT, "") is False
    paraphrase = Environment(
        id="e", domain="physics", question=ENVIRONMENT.question, rubric=(Criterion("Vibration reopens clogs of rods"),)
    )
    assert handles_all(paraphrase, whole) is None


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[criterion]]\nname = "Detail"\ntext = "It is detailed."\ncheck = "detailed"\n[[criterion]]\nname = "Tone"\ntext = "Kind."\n'
    )
    criteria = load_general(path)
    assert [(criterion.name, criterion.check) for criterion in criteria] == [("Detail", detailed), ("Tone", None)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("criterion = 3", "no .*criterion.* tables"),
        ("", "no .*criterion.* tables"),
        ('[[criterion]]\nname = "A"', "criterion 1, text: a non-empty string is needed, not None"),
        ('[[criterion]]\nname = "A"\ntext = "B"\nweight = 2', "criterion 1: unknown key 'weight'"),
        ('[[criterion]]\nname = "A"\ntext = "B"\ncheck = "magic"', "unknown check 'magic'"),
        ("[[criterion", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, message):
    path = tmp_path / "general.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_general(path)
