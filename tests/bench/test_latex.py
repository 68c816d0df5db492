"""The bench of LaTeX loading: papergym falls into none of its traps, and a loader that does is told so."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from papergym.bench.latex import speeds, traps
from papergym.bench.latex_checks import CHECKS, Loaded, faults_of_paper, letters
from papergym.bench.latex_loaders import by_papergym
from papergym.cli import main

EXAMPLES = Path(__file__).parents[2] / "examples/papers"


def test_papergym_reads_every_trap_as_it_should():
    (record,) = traps({"papergym": by_papergym})
    assert record == {"loader": "papergym", "right": len(CHECKS), "of": len(CHECKS), "wrong": {}} and len(CHECKS) >= 20


def raw(folder):
    return Loaded("", [(1, "One")], (folder / "main.tex").read_text(encoding="utf-8", errors="replace"))


def broken(folder):
    raise LookupError("nothing there")


def test_what_a_loader_gets_wrong_is_named_and_a_failure_counts():
    as_it_is, fails, empty = traps({"raw": raw, "broken": broken, "empty": lambda folder: Loaded("", [], "")})
    assert as_it_is["wrong"]["line break before a comment"] == ["keeps 'secret note'"]
    assert as_it_is["wrong"]["input without braces"] == ["loses 'Found'"]
    assert as_it_is["wrong"]["short title"] == ["sections ['One'], not ['Long and full']"]
    assert "escaped percent" not in as_it_is["wrong"] and 0 < as_it_is["right"] < len(CHECKS)
    assert fails["right"] == empty["right"] == 0 and fails["wrong"]["short title"] == ["LookupError: nothing there"]


def test_texts_are_compared_by_letters():
    assert letters(r"A \textbf{Gain} of 12\%, na\"ive_x") == "againof12naivex" and letters("Café – Ω") == "caféω"
    truth = ("main.tex", "T", "We shake", "are timed.", ["A", "B"], ["C"], 5)  # four with headings
    right = Loaded(r"We \emph{shake} rods. They are timed.", [(1, "A"), (2, "a"), (1, "B"), (1, "C")], "kept words")
    assert faults_of_paper(right, truth, ["kept words"], ["lost", r"\iffalse"]) == (5, [])
    wrong = Loaded("We shake", [(1, "A"), (1, "B")], "lost words")
    assert faults_of_paper(wrong, truth, ["kept words"], ["lost"])[1] == [
        "abstract 'We shake' … 'We shake'",
        "2 sections of level 1, not the 3 that there are",
        "2 sections in all, not 5",
        "loses 'kept words'",
        "keeps 'lost'",
    ]


def test_speed_counts_papers_over_rounds_and_those_that_fail():
    fine, bad = speeds({"raw": raw, "broken": broken}, [EXAMPLES / "active-ring", EXAMPLES / "rod-silo"], rounds=3)
    assert fine["failed"] == 1 and bad["failed"] == 2  # rod-silo has no main.tex
    assert fine["slowest_round"] <= fine["papers_per_second"] <= fine["fastest_round"] and fine["rounds"] == 3


@pytest.mark.slow
def test_the_command_compares_four_loaders(tmp_path):
    arguments = ["bench", "latex", str(EXAMPLES / "rod-silo"), str(EXAMPLES / "active-ring"), "--rounds", "2", "--out", str(tmp_path / "o")]
    result = CliRunner().invoke(main, arguments, env={"PAPERGYM_FIXTURES": None})
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in (tmp_path / "o").read_text().splitlines()]
    speed = {record["loader"]: record for record in records if record["measured"] == "speed"}
    assert list(speed) == ["papergym", "pylatexenc", "pandoc", "arxiv-to-prompt"] and all(
        r["papers_per_second"] > 0 for r in speed.values()
    )
    right = {record["loader"]: record["right"] for record in records if record["measured"] == "traps"}
    assert max(right, key=right.get) == "papergym" and min(right.values()) > 3 and records[0]["versions"]["pylatexenc"]
