"""Criteria: the grammar of rewriting, and what is chosen from a reference."""

import pytest

from papergym.data_pipeline.english import content_words, past_forms, stem, third_person, verb_forms
from papergym.data_pipeline.passages import Sentence
from papergym.data_pipeline.rewrite import criterion_text
from papergym.data_pipeline.rubric import rubric

REWRITTEN = [
    ("We train an ensemble of networks and compare them with one.", "The plan trains an ensemble of networks and compares them with one."),
    ("We trained a network and compared the loss.", "The plan trains a network and compares the loss."),
    ("We use filters and test samples from the field.", "The plan uses filters and test samples from the field."),
    ("We then carefully fit each curve.", "The plan carefully fits each curve."),
    ("For each of five drives we record 1,000 clogs.", "For each of five drives, the plan records 1,000 clogs."),
    ("To test learning we estimate, for every player, the change.", "To test learning, the plan estimates, for every player, the change."),
    ("We do not include questions on taste.", "The plan does not include questions on taste."),
    ("We start by formulating the energy balance.", "The plan formulates the energy balance."),
    ("We want to compute the determinant of the matrix.", "The plan computes the determinant of the matrix."),
    ("The key idea is to split the rate into phases.", "The plan splits the rate into phases."),
    ("We have trained two judges on our own data.", "The plan trains two judges on its own data."),
    ("Moreover, questions were reviewed by two scientists.", "Questions are reviewed by two scientists."),
    ("The first night was dropped because walls remember.", "In the plan, the first night is dropped because walls remember."),
    ("Volunteers were asked in an interface, which rendered formulas.", "Volunteers are asked in an interface, which renders formulas."),
    ("Two annotators wrote the key.", "Two annotators write the key."),
    ("Each pair is run thrice, so that we compare twins.", "In the plan, each pair is run thrice, so that the plan compares twins."),
    ("We estimate the chain's time and find that it is short.", "The plan estimates the chain's time."),
    ("Not all rods were considered in this study: bent ones are excluded.", "Not all rods are considered: bent ones are excluded."),
    ("For all models, we used greedy decoding (i.e., temperature 0).", "For all models, the plan uses greedy decoding."),
    ("Inspired by thermally driven flows, we consider rates.", "Inspired by thermally driven flows, the plan considers rates."),
    ("We vary the Weber number We and the number Oh.", "The plan varies the Weber number We and the number Oh."),
]  # fmt: skip
GIVEN_UP = [
    "We find that rods rotate.",  # an outcome
    "We show the tube to readers.",
    "We gathered rods and required skills.",  # "gathered" is no verb the rules know
    "We collected rods and sorted samples.",  # verb or participle?
    "Raw in place of normalised histograms.",  # no verb
    "Let us assume a sphere.",
    "They could have been counted by hand.",
    "We build a model around that difference.",
    "The response would differ if everyone were exposed and we had known it.",
    "Is it so?",
]


@pytest.mark.parametrize(("sentence", "criterion"), REWRITTEN)
def test_sentences_become_statements_about_a_plan(sentence, criterion):
    assert criterion_text(sentence) == criterion


@pytest.mark.parametrize("sentence", GIVEN_UP)
def test_what_grammar_cannot_do_is_given_up(sentence):
    assert criterion_text(sentence) is None


def test_a_first_word_loses_its_capital_only_where_the_paper_writes_it_small():
    assert criterion_text("Rods are cut from nylon.", {"rods"}) == "In the plan, rods are cut from nylon."
    assert criterion_text("Basilisk is run on two cores.", {"rods"}) == "Basilisk is run on two cores."


def test_verb_forms():
    assert [third_person(verb) for verb in ("train", "match", "apply", "play", "go", "fix")] == [
        "trains",
        "matches",
        "applies",
        "plays",
        "goes",
        "fixes",
    ]
    assert past_forms("plan") == ("planned",) and "labelled" in past_forms("label") and past_forms("apply") == ("applied",)
    forms = verb_forms()
    assert forms["past"]["drew"] == forms["past"]["drawn"] == forms["third"]["draws"] == forms["gerund"]["drawing"] == "draw"
    assert forms["gerund"]["running"] == "run" and forms["gerund"]["using"] == "use"


def test_content_words_are_stems_without_stop_words():
    assert content_words("The simulations were simulated again.") == {"simulat"}
    assert stem("strategies") == stem("strategy") and stem("batches") == stem("batch")
    assert content_words("of the and we") == set()


QUESTION = (
    "Silos of rods clog at their outlet and vibration reopens them. The question is what sets the lifetime of a clog of rods. "
    "How would you find out?"
)
METHOD = [
    "Rods are cut from nylon at constant volume with four aspect ratios, so that grain mass drops out of every comparison.",
    "The orifice ring alone is vibrated by three voice coils, while the silo wall rests on a separate frame.",
    "We choose pairs of frequency and amplitude along lines of constant peak acceleration and along lines of constant peak velocity.",
    "Clogs of rods are important in many fields.",
    "One rod in two hundred carries a tungsten core whose pair of x-ray projections gives its orientation.",
    "We then vibrate rods.",
]
EXPERIMENT = [
    "Steel spheres of equal mass are run first and last in every week, as a check that the apparatus has not drifted.",
    "Uncertainties come from a bootstrap over blocks, because consecutive events share a filling.",
    "A single power law and a stretched exponential serve as rival models, compared by likelihood on held-out events.",
    "Steel spheres of the same mass are run first and last in each week, as a check that the apparatus does not drift.",
    "Each drive is recorded in blocks of fifty in random order; relative humidity is kept between 45 and 50% throughout.",
    "These blocks are described above.",
    "The mean waiting time is 24% shorter than in Fig. 3.",
]


def choose(size=10, question=QUESTION):
    return rubric(question, [Sentence(text) for text in METHOD], [Sentence(text) for text in EXPERIMENT], size=size)


def test_criteria_are_concrete_distinct_and_of_both_dimensions():
    criteria = choose()
    texts = [criterion.text for criterion in criteria]
    assert len(texts) == len(set(texts)) == 9
    assert sum("spheres" in text for text in texts) == 1  # said twice by the paper, asked once
    assert not any("important" in text or "above" in text or "shorter" in text or "vibrate rods" in text for text in texts)
    assert {criterion.dimension for criterion in criteria} == {"method", "experiment"}
    assert {criterion.source for criterion in criteria} <= {"answer", "both"}
    assert all(criterion.weight == 1.0 for criterion in criteria)
    assert (
        "The plan chooses pairs of frequency and amplitude along lines of constant peak acceleration and "
        "along lines of constant peak velocity." in texts
    )
    # one decision each: the semicolon parts two
    assert any(text.startswith("In the plan, each drive is recorded") for text in texts)
    assert any("humidity is kept" in text and "drive" not in text for text in texts)


def test_a_criterion_that_the_question_gives_away_is_not_asked():
    leaked = choose(question=QUESTION + " " + METHOD[1])
    assert not any("voice coils" in criterion.text for criterion in leaked)
    assert any("voice coils" in criterion.text for criterion in choose())


def test_source_tells_whether_the_question_points_at_the_subject():
    sources = {
        criterion.text: criterion.source for criterion in choose(question=QUESTION + " Orientation and x-ray projections of rods matter.")
    }
    assert next(source for text, source in sources.items() if "tungsten" in text) == "both"
    assert next(source for text, source in sources.items() if "bootstrap" in text) == "answer"


def test_the_order_and_choice_are_deterministic_and_size_is_kept():
    assert choose() == choose()
    assert len(choose(size=4)) == 4
    assert {criterion.dimension for criterion in choose(size=4)} == {"method", "experiment"}
