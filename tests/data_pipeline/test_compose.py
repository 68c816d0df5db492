"""Question and reference: what each says, and that neither can know the other's source."""

import inspect

import pytest

from papergym.data_pipeline.aims import aim
from papergym.data_pipeline.compose import question, reference
from papergym.data_pipeline.passages import Sentence


@pytest.mark.parametrize(
    ("sentence", "put"),
    [
        ("Here we ask what sets the lifetime of a clog of rods.", "The question is what sets the lifetime of a clog of rods."),
        ("Our goal is to bound write stalls without more writes.", "The aim is to bound write stalls without more writes."),
        ("The objective of this Letter is to understand how drops spread.", "The aim is to understand how drops spread."),
        ("Using a calibrated model, we assess the effects of three policies.", "The aim is to assess the effects of three policies."),
        ("In this paper we investigate which share of the drift is caused by wind, using a paired float.",
         "The aim is to investigate which share of the drift is caused by wind."),
        ("We measure how long clogs last and find that rods rotate.", "The aim is to measure how long clogs last."),
        ("In this work, we introduce Foo, a novel method for directly and exactly computing likelihoods, based on splines.",
         "What is wanted is a method for directly and exactly computing likelihoods."),
        ("We report an algorithm for finding rare words.", "What is wanted is an algorithm for finding rare words."),
        ("It remains open how the polluter of a test can be identified.", "It remains open how the polluter of a test can be identified."),
        ("What strategies are good invaders?", "What strategies are good invaders?"),
        ("We present Foo.", None),
        ("The purpose of our paper is not to weigh in on this.", None),
        ("Our first question is whether we win?", None),
    ],
)  # fmt: skip
def test_the_aim_loses_its_authors_and_its_means(sentence, put):
    assert aim(sentence) == put


def test_the_question_is_what_is_known_then_what_is_open_then_an_ask():
    goal = [Sentence("Here we ask whether the GP scales.", "Introduction")]
    background = [Sentence("However, the Gaussian process is slow."), Sentence("A GP costs the cube of its points.")]
    text = question(goal, background, {"GP": "Gaussian process"})
    assert text is not None
    assert text.startswith(
        "The Gaussian process is slow. A GP costs the cube of its points. The question is whether the GP scales. How would"
    )
    assert text.endswith(".") and "Propose a method and an experimental design" in text


def test_what_is_to_be_built_is_asked_for_differently():
    built = question([Sentence("Our aim is to build a faster sieve for rod-like grains.")], [Sentence("Sieves are slow.")])
    found = question([Sentence("We ask whether sieves are slow for rod-like grains.")], [Sentence("Sieves are slow.")])
    assert "How would you go about it?" in built and "How would you find out?" in found


def test_no_aim_no_question():
    assert question([], [Sentence("Sieves are slow.")]) is None
    assert question([Sentence("We present Foo.")], [Sentence("Sieves are slow.")]) is None


def test_the_reference_is_the_papers_own_sentences_in_order():
    method = [Sentence("We mount a float.", "Method"), Sentence("It is red.", "Method")]
    assert reference(method, [Sentence("We wait a year.")]) == "Method: We mount a float. It is red.\n\nExperiment: We wait a year."
    assert reference(method, []) == "Method: We mount a float. It is red."


def test_neither_text_can_know_the_others_source():
    """By construction: the question takes goal and background and nothing of the rest, the reference the reverse."""
    assert list(inspect.signature(question).parameters) == ["goal", "background", "abbreviations", "names"]
    assert list(inspect.signature(reference).parameters) == ["method", "experiment"]
