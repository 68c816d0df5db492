"""What is a criterion: a statement about a plan that is atomic, binary and definite."""

import pytest

from papergym.data_pipeline.lm.criteria import fault

QUESTION = "Rods clog silos. What limits the outflow of rods from a silo with a narrow outlet? Propose a method and an experimental design."


@pytest.mark.parametrize(
    "text",
    [
        "The plan vibrates the silo with a voice coil before every discharge.",
        "The plan compares shaken discharges with a still control silo of the same geometry.",
        "The plan measures the friction coefficient between two rods by an inclined plane.",
        "The plan models an arch as a chain of hinges whose stability depends on $\\theta$.",
    ],
)
def test_concrete_criteria_pass(text):
    assert fault(text, QUESTION) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Vibrates the silo with a voice coil before discharge.", "does not begin"),
        ("The plan shakes rods.", "has 4 words"),
        ("The plan vibrates the silo by a voice coil " + "very " * 60 + "often.", "words"),
        ("The plan vibrates the silo with a coil. It also films the arches.", "not one statement"),
        ("The plan vibrates the silo with a voice coil and compares it with a still control.", "more than one thing"),
        ("The plan vibrates the silo; the control silo stays still all day.", "more than one thing"),
        ("The plan films (a) arches, (b) hinges of the silo.", "more than one thing"),
        ("The plan vibrates the silo as well as the hopper with coils.", "more than one thing"),
        ("The plan describes how well the voice coil shakes the hopper.", "no matter of yes or no"),
        ("The plan vibrates the hopper with an appropriate voice coil.", "no matter of yes or no: appropriate"),
        ("The plan vibrates the hopper with a coil, if possible twice.", "no matter of yes or no"),
        ("The plan vibrates the hopper as the reference plan does.", "speaks of reference plan"),
        ("The plan reaches a hopper throughput accuracy of 93.2% after shaking.", "outcome"),
        ("The plan proposes a novel method with a rigorous evaluation.", "generic"),
        ("The plan includes baselines, datasets and ablation studies.", "generic"),
        ("The plan is about what limits the outflow of rods from the silo.", "only repeats the question"),
    ],
)
def test_others_are_refused_with_a_reason(text, reason):
    assert reason in (fault(text, QUESTION) or "")
