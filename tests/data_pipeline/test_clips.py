"""Clips: the part of a sentence that can be quoted, and nothing that the paper doesn't say."""

import pytest

from papergym.data_pipeline.clips import quotable
from papergym.data_pipeline.math_text import DISPLAY, HOLE
from papergym.data_pipeline.plain_text import plain_text


@pytest.mark.parametrize(
    ("sentence", "clip"),
    [
        (
            f"Section {HOLE} will further validate the method by comparing it with theory.",
            "Validate the method by comparing it with theory.",
        ),
        (f"Section {HOLE} investigates the effect of size on drift.", "Investigates the effect of size on drift."),
        (f"Figure {HOLE} shows the correlation coefficients of the ranks.", "Shows the correlation coefficients of the ranks."),
        (f"Figure {HOLE} shows the apparatus.", f"Figure {HOLE} shows the apparatus."),
        (f"Figure {HOLE} shows the rates that rise.", f"Figure {HOLE} shows the rates that rise."),
        (f"Section {HOLE} describes the tube.", f"Section {HOLE} describes the tube."),
        (f"We assume an axisymmetric impact; for splashing see {HOLE}.", "We assume an axisymmetric impact."),
        (f"The tail is fitted by a mixture of two laws, {DISPLAY} with w a weight.", "The tail is fitted by a mixture of two laws."),
        ("We record both floats every minute;", "We record both floats every minute."),
        ("We record both floats.", "We record both floats."),
    ],
)
def test_what_can_be_quoted(sentence, clip):
    assert quotable(sentence) == clip


def test_what_is_shown_in_a_figure_is_shown():
    assert plain_text(r"The ranks of all rods are shown in Figures~\ref{a}, \ref{b} and~\ref{c} for three sizes.") == (
        "The ranks of all rods are shown for three sizes."
    )
    assert (
        plain_text(r"We run many tests over the range, see fig.~\ref{a}a, and keep all.")
        == "We run many tests over the range, and keep all."
    )
