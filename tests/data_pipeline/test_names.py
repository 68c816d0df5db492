"""Names that a paper gives to its own work: found where it gives them, gone from what a plan is judged by."""

import pytest

from papergym.data_pipeline.names import coined_names, is_named, without_names


@pytest.mark.parametrize(
    ("title", "text", "macros", "names"),
    [
        ("Fast sums", "We call our method and its implementations sandpiper. It sums.", [], {"sandpiper": "method"}),
        ("Rods", "In this work, we report a novel framework, which we call RodBench, for rods.", [], {"RodBench": "framework"}),
        ("SumPy: sums in Python", "SumPy is a small algebra system. See sumpy.core for more.", [], {"SumPy": "system"}),
        ("A first look at a wandering object: 9X/FOO", "It moves.", [], {"9X/FOO": "object"}),
        ("Debts", "Tidewater is compared with others.", [r"\textsf{Tidewater}\xspace"], {"Tidewater": "method"}),
        ("Foam: why it ages", "Old foam is wet.", [], {}),  # a word of the language
        ("Rods", "We present RodNet and use a tool called OtherTool.", [r"\mathcal{L}"], {"RodNet": "method"}),
        ("Rods", "We call this the splurge, which we call drift.", [], {}),  # terms, not names
    ],
)
def test_names_are_found_where_they_are_given(title, text, macros, names):
    assert coined_names(title, text, macros) == names


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("RodBench is compared with others.", "The framework is compared with others."),
        ("All questions in RodBench are read.", "All questions in the framework are read."),
        ("We use the RodBench corpus.", "We use the corpus."),
        ("The RodBench framework is run.", "The framework is run."),
        ("We factor matrices of RodBench models.", "We factor matrices of the framework's models."),
        ("We draw a RodBench process.", None),  # of which kind, only the paper says
        ("We sample RodBench-Mini.", None),
        ("Nothing is named.", "Nothing is named."),
    ],
)
def test_names_give_way_to_their_noun(text, plain):
    assert without_names(text, {"RodBench": "framework"}) == plain


def test_a_name_is_a_whole_word():
    assert is_named("We run RodBench.", {"RodBench": "framework"})
    assert not is_named("We run RodBenches.", {"RodBench": "framework"})
