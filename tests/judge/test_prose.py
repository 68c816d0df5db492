import random

import pytest

from papergym.judge.prose import is_prose, is_sentence
from papergym.judge.words import all_words, stop_words

PROSE = [
    "We record every arch with a camera, and the shaker is calibrated at the hopper before and after each run.",
    "Costs are drawn once for each round and reused in every cell, so that the treatments face identical draws.",
    "To test learning, we estimate the change in entry after a narrow loss relative to a wide one; errors are clustered by market.",
    "The on-site supplier would have been paid in the first of two months, as the rule of 2017 said it should.",
    "A variant without sounds is used on half of the days, drawn at random from those which the person worked.",
]


def shuffled(text, seed):
    words = text.rstrip(".").split()
    random.Random(seed).shuffle(words)
    return " ".join(words) + "."


@pytest.mark.parametrize("sentence", PROSE)
def test_sentences_are_prose(sentence):
    assert is_sentence(all_words(sentence), sentence)


def test_pairs_that_english_does_not_have():
    for sentence in ("The of silo is up.", "It is for a and silo.", "They will the silo.", "We of silo it."):
        assert not is_sentence(all_words(sentence), sentence)
    assert is_sentence(["the", "silo", "is", "up"], "The 3 silo is up.")
    assert is_sentence(["the", "silo"], "the on-site silo")  # a word with a hyphen is one word


def test_a_list_of_words_is_no_sentence():
    listed = " ".join(word for word in all_words(" ".join(PROSE)) if word not in stop_words())
    assert not is_sentence(all_words(listed), listed)


def test_shuffled_plans_are_not_prose():
    assert is_prose(" ".join(PROSE)) and is_prose("")
    caught = [not is_prose(shuffled(" ".join(PROSE), seed)) for seed in range(100)]
    assert sum(caught) >= 97
    inside = [not is_prose(" ".join(shuffled(sentence, seed) for sentence in PROSE)) for seed in range(100)]
    assert sum(inside) >= 97


def test_one_slip_in_a_plan_is_forgiven():
    assert is_prose("The of silo is up.")
    assert not is_prose("The of silo is up. The of silo is up.")
    assert is_prose("The of silo is up. The of silo is up. " + " ".join(PROSE))
