"""What a criterion may say: decisions, readable without the paper; and which of two is worth more."""

import pytest

from papergym.data_pipeline import cues
from papergym.data_pipeline.english import content_words
from papergym.data_pipeline.passages import Sentence
from papergym.data_pipeline.rewrite import criteria_of, criterion_text
from papergym.data_pipeline.rubric import rubric
from papergym.data_pipeline.worth import is_readable, is_setting, symbols, unintroduced, value

QUESTION = "Silos of rods clog. The question is what sets the lifetime of a clog of rods."

UNREADABLE = [
    "Once selected, the rod is weighed and another rod is removed.",  # leans on the step before
    "In parts of the campaign, volunteers are allowed to use tools of their choice.",
    "In the plan, with what is left over, the buyer purchases more rods.",
    "The plan reports early measurements of rods in tall silos.",  # announces
    "To demonstrate the method, the plan applies it to rods in two silos.",
    "In the plan, the profile of the object shows an excess over the profile of its neighbours.",  # an outcome
    "In the plan, the total outlay is nearly flat across all five sizes of silo.",
    "GP models have been widely used across the physical sciences for rods.",
    "The plan replaces τ_s by λ_i and x_(N-1) by D_f(t) wherever rods clog in the silo.",
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_on_their_own_or_no_decision(text):
    assert not is_readable(text, QUESTION)


def test_a_decision_in_words_is_readable():
    assert is_readable("In the plan, steel spheres of equal mass are run first and last in every week.", QUESTION)


def worth(text):
    words, asked = content_words(text), content_words(QUESTION)
    return value(text, QUESTION, asked, words - asked, words)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        # a decision, and a fact of the same length
        ("In the plan, vibration is measured by noise sensors and logged at every outlet.",
         "In the plan, vibration is excited by noisy gears and grows at every outlet."),
        # in words, and in symbols
        ("The plan models the drop as a cylinder with the diameter of its footprint.",
         "The plan models the drop as a cylinder with diameter D_f and height λ_s."),
        # a structure, and its bare value
        ("In the plan, the replacement rate is estimated separately for each group of workers.",
         "In the plan, the replacement rate for each group of workers is set to 0.5."),
        # introduced, and taken for granted
        ("The plan asks volunteers about a list of lotteries before an interface is shown.",
         "The plan asks the volunteers about the lotteries before the interface is shown."),
    ],
)  # fmt: skip
def test_of_two_the_decision_that_stands_alone_is_worth_more(better, worse):
    assert worth(better) > worth(worse) + 0.3


def test_symbols_settings_and_things_not_introduced_are_counted():
    assert symbols("The plan varies D_max with τ and x_(N-1), from 10^3 to 10^-4.", "D_max is asked for.") == 2
    assert is_setting("The rate is set to ρ = 0.5.") and is_setting("The plan runs 500 steps of burn-in.")
    assert not is_setting("The rate is set by hand for each of five drives.")
    assert unintroduced("The volunteers answer the questions of a survey.", set()) == 1
    assert unintroduced("A list of rods is made and the list is sorted.", set()) == 0


def test_nature_does_not_act_on_purpose():
    assert not cues.is_action("Variability is excited by noisy processes.")
    assert cues.is_action("Variability is removed by a filter.") and cues.is_action("We moreover assume a sphere.")


@pytest.mark.parametrize(
    ("sentence", "criterion"),
    [
        ("Validates the method by comparing it with theory.", "The plan validates the method by comparing it with theory."),
        ("Shows the correlation of the ranks in three sizes.", "The plan reports the correlation of the ranks in three sizes."),
        ("The ranks of all rods are shown for three sizes.", "The plan reports the ranks of all rods for three sizes."),
        ("Instead of the split employed in that theory, here, we split the rate in time.", "The plan splits the rate in time."),
        ("We obtained images on 2025 July 2 with two telescopes (MPC code T03).", "The plan obtains images with two telescopes."),
        ("Using a model, we simulated wins and calculate the share.", "Using a model, the plan simulates wins and calculates the share."),
        ("The stacked estimator uses, for each wave, late groups.", "In the plan, the stacked estimator uses, for each wave, late groups."),
        ("The profile shows an excess compared to the stars.", "In the plan, the profile shows an excess compared to the stars."),
        ("For quality assurance, all questions were read twice.", "For quality assurance, all questions are read twice."),
    ],
)  # fmt: skip
def test_sentences_become_criteria(sentence, criterion):
    assert criterion_text(sentence) == criterion


def test_criteria_hold_no_coined_name():
    assert criteria_of("RodNet is compared with sieves by hand; each sieve is shaken for an hour.", {"RodNet": "network"}) == [
        "In the plan, the network is compared with sieves by hand.",
        "In the plan, each sieve is shaken for an hour.",
    ]


def test_near_duplicates_give_way_and_settings_are_few():
    volunteers = [
        "In three sessions, volunteers are allowed to use tools such as web search to create a realistic setting.",
        "For a subset of silos, volunteers are allowed to use external tools other than asking people.",
    ]
    settings = [f"The {name} of the silo is set to {number} percent of its usual value." for name, number in
                (("slope", 3), ("humidity", 40), ("filling", 70), ("coating", 5))]  # fmt: skip
    others = [
        "Steel spheres of equal mass are weighed first and last in every week.",
        "Uncertainties are computed by a bootstrap over blocks, because consecutive events share one filling.",
        "Each drive is recorded in random order by an observer who is blind to amplitude.",
    ]
    texts = [c.text for c in rubric(QUESTION, [], [Sentence(text) for text in volunteers + settings + others], size=5)]
    assert sum("volunteers are allowed" in text for text in texts) == 1
    assert 1 <= sum("set to" in text for text in texts) <= 2
