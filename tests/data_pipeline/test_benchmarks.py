"""PaperGym-Innov and PaperGym-Design: each knows what it may, and judges its own dimension."""

import json
from dataclasses import replace

import pytest

from papergym.data_pipeline.benchmarks import design, innovation, write_benchmarks
from papergym.data_pipeline.compose import ASKS
from papergym.environment import Criterion, Environment, read_environments
from papergym.errors import InputError

PAPER = Environment(
    "p1",
    "cs",
    f"Caches evict blindly. {ASKS[0]}",
    (
        Criterion("The plan weighs age.", "method", "answer", 2.0),
        Criterion("The plan replays traces.", "experiment"),
        Criterion("Neither."),
    ),
    reference="Method: weigh age. Experiment: replay.",
    stages={"goal": "GOAL", "background": "BACKGROUND", "method": "METHOD weighs age", "experiment": "EXPERIMENT replays traces"},
    provenance={"paper": "p"},
)


def test_innov_asks_the_question_and_judges_the_method():
    made = innovation(PAPER)
    assert (made.id, made.benchmark, made.split, made.question) == ("p1-innov", "PaperGym-Innov", "heldout", PAPER.question)
    assert made.reference == "METHOD weighs age" and made.rubric == PAPER.rubric[:1] and made.provenance == PAPER.provenance


def test_design_gives_the_method_away_and_nothing_of_the_experiment():
    made = design(PAPER)
    assert (made.id, made.benchmark) == ("p1-design", "PaperGym-Design")
    assert made.question.startswith("Caches evict blindly.\n\nProposed approach: METHOD weighs age\n\nTake this approach as given.")
    assert "EXPERIMENT" not in made.question and not any(ask in made.question for ask in ASKS)
    assert made.reference == "EXPERIMENT replays traces" and made.rubric == PAPER.rubric[1:2]


def test_design_takes_back_what_a_written_question_asks_for():
    asked = "Caches evict blindly. Propose a method and an experimental design that would help."
    made = design(replace(PAPER, question=asked)).question
    assert made == asked + design(PAPER).question.removeprefix("Caches evict blindly.").replace(
        "\n\nTake this", "\n\nOf what is asked above, only the experiments are wanted. Take this"
    )


def test_both_files_are_written_and_what_can_be_in_neither_is_named(tmp_path):
    bare = replace(PAPER, id="bare", stages=None)
    half = replace(PAPER, id="half", rubric=(PAPER.rubric[0], replace(PAPER.rubric[1], weight=-1.0)))
    summary = write_benchmarks([PAPER, bare, half], tmp_path / "b")
    assert list(summary.counts.values()) == [2, 1, 3] and (summary.left, summary.report) == (0, "")
    assert [e.id for e in read_environments(tmp_path / "b/innov.jsonl")] == ["p1-innov", "half-innov"]
    assert read_environments(tmp_path / "b/design.jsonl") == [design(PAPER)]
    rejects = [json.loads(line) for line in (tmp_path / "b/rejects.jsonl").read_text().splitlines()]
    assert [(reject["environment"], reject["benchmark"]) for reject in rejects] == [
        ("bare", "innov"),
        ("bare", "design"),
        ("half", "design"),
    ]
    assert "stages.method: a text is needed" in rejects[0]["reason"] and "dimension 'experiment'" in rejects[2]["reason"]
    with pytest.raises(InputError, match=r"none of 1 environments can be in the benchmark innov: environment 'bare', stages\.method"):
        write_benchmarks([bare], tmp_path / "c")
    assert not (tmp_path / "c").exists()
