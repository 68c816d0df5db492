"""Stages from papers written for the purpose: what goes where, what is left out, and that every sentence is the paper's own."""

import os
import time
from pathlib import Path

import pytest

from papergym.data_pipeline import cues
from papergym.data_pipeline.abbreviations import find_abbreviations, spell_out
from papergym.data_pipeline.compose import question
from papergym.data_pipeline.extract import extract_stages
from papergym.data_pipeline.latex import load_paper
from papergym.data_pipeline.math_text import DISPLAY, HOLE
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.sentences import split_sentences

SAMPLES = sorted(path.parent for path in (Path(__file__).parents[2] / "examples/papers").glob("*/paper.toml"))

SECTIONED = r"""\documentclass{article}\begin{document}\title{Telling wind from water in river gauges}
\begin{abstract}Gauges drift. We ask what moves them.\end{abstract}
\section{Introduction}
River gauges measure the height of water and are read by flood services every hour.
Their readings drift by a hand's breadth in a year, and nobody can tell from one gauge whether the river or the gauge has moved.
Neighbouring gauges have been compared by eye~\cite{eye}, which fails where tributaries enter.
It is unknown whether wind alone explains the drift of gauges (see Figure~\ref{f}).
In this paper we investigate which share of the drift is caused by wind, using a paired float.
We find that wind explains 61\% of the drift.
\section{Method}
We mount a second float inside a perforated tube beside each gauge, so that waves are damped but slow changes pass.
The difference of the two floats is fitted by a state-space model, \begin{equation} x = y \end{equation} with unit variance.
This removes the tide.
Figure~\ref{f} shows the tube.
\section{Experiments}
We install forty pairs on four rivers and record both floats every minute for two years.
Gauges are assigned to the tube at random within pairs of neighbours.
Drift fell by 4.2 cm on average ($p<0.01$).
The tube outperforms the naked gauge.
\section{Conclusion}
We conclude that tubes should be mounted at every gauge of the national network.
\appendix
\section{More experiments}
We also measure salt at the mouth of the largest river with twelve bottles.
\end{document}
"""

LETTER = r"""\documentclass{revtex4}\begin{document}\title{Foam}
Foams drain under gravity and coarsen by diffusion of gas between bubbles.
It is not known which of the two sets the lifetime of a foam in space.
Here we ask what limits the age of a foam without gravity.

We prepare foams of one surfactant at three gas fractions in sealed cells of 20 mm.
The cells are flown on a parabolic aircraft because drainage stops there within a second.

For each gas fraction we record sixty cells by diffuse transmission, in random order, and compare them with cells on the ground.

Lifetimes rose from 40 to 97 seconds. At the highest fraction we find that coarsening dominates, as expected.

In conclusion, we have shown that coarsening limits foams in space.
\end{document}
"""


@pytest.fixture
def stages(tmp_path):
    def read(text):
        (tmp_path / "main.tex").write_text(text)
        return extract_stages(load_paper(tmp_path))

    return read


def test_sections_decide_and_every_sentence_remembers_its_own(stages):
    got = stages(SECTIONED)
    assert [(s.text, s.section) for s in got.goal] == [
        ("In this paper we investigate which share of the drift is caused by wind, using a paired float.", "Introduction")
    ]
    assert [s.text for s in got.method] == [
        "We mount a second float inside a perforated tube beside each gauge, so that waves are damped but slow changes pass.",
        "The difference of the two floats is fitted by a state-space model.",  # cut before the display
    ]
    assert {s.section for s in got.experiment} == {"Experiments"}
    assert [s.text for s in got.experiment] == [
        "We install forty pairs on four rivers and record both floats every minute for two years.",
        "Gauges are assigned to the tube at random within pairs of neighbours.",
    ]
    assert "Neighbouring gauges have been compared by eye, which fails where tributaries enter." in [s.text for s in got.background]


def test_results_conclusions_pointers_and_the_appendix_stay_out(stages):
    everything = " ".join(stages(SECTIONED).stages().values())
    for absent in ("61%", "4.2", "outperforms", "national network", "salt", "Figure", "This removes"):
        assert absent not in everything


def test_a_letter_without_sections_goes_by_its_paragraphs(stages):
    got = stages(LETTER)
    assert [s.text for s in got.goal] == ["Here we ask what limits the age of a foam without gravity."]
    assert got.background[0].text.startswith("Foams drain")
    assert any("sealed cells" in s.text for s in got.method)
    assert any("sixty cells" in s.text for s in got.experiment)
    everything = " ".join(got.stages().values())
    assert "97" not in everything and "conclusion" not in everything


def test_nothing_to_quote_gives_empty_stages(stages):
    got = stages(r"\documentclass{article}\begin{document}Hello. $x=1$.\end{document}")
    assert got.stages() == {"goal": "", "background": "", "method": "", "experiment": ""}


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("Introduction", "introduction"), ("Related work", "background"), ("Experimental design", "experiment"),
        ("Results and discussion", "results"),
        ("Experimental results", "results"), ("Our approach", "method"), ("Empirical strategy", "method"), ("Data", "experiment"),
        ("Conclusions", "skip"), ("Acknowledgements", "skip"), ("Data and code availability", "skip"), ("Bananas", None),
        ("Design of the experiments", "experiment"), ("Study design", "experiment"), ("Design of the estimator", "method"),
    ],
)  # fmt: skip
def test_titles_tell_roles(title, role):
    assert cues.section_role(title) == role


@pytest.mark.parametrize(
    ("sentence", "result"),
    [
        ("We find that larger models are better.", True),
        ("Our method outperforms the baseline by 3 points.", True),
        ("Accuracy rose by 4 per cent.", True),
        ("The mean was 24.1 days earlier.", True),
        ("These results suggest that tubes help.", True),
        ("We fix the learning rate at 0.01 for all runs.", False),
        ("At least 1,000 clogs are recorded for each drive.", False),
        ("Baselines share the architecture and the total compute.", False),
        ("False discoveries are controlled at 5%.", False),
    ],
)
def test_outcomes_are_told_from_decisions(sentence, result):
    assert cues.is_result(sentence) is result


def test_a_starred_heading_and_a_placebo_are_experiment(stages):
    got = stages(
        SECTIONED.replace(r"\section{Experiments}", r"\subsection*{Design of the experiments}").replace(
            "This removes the tide.", "As a placebo, we mount twelve tubes without any holes at gauges on still lakes."
        )
    )
    assert {s.section for s in got.experiment} == {"Method", "Design of the experiments"}
    assert sum("placebo" in s.text for s in got.experiment) == 1 and not any("placebo" in s.text for s in got.method)


def test_a_system_is_its_own_aim_and_is_not_named(stages):
    system = r"""\documentclass{article}\begin{document}\title{RodLib: rods in code}
\begin{abstract}RodLib is an open source library for the simulation of long rods written in Lisp.\end{abstract}
\section{Introduction} Rods are simulated in many fields and every group writes its own code. This paper presents RodLib.
\section{Design} RodLib uses a tree of boxes, so that only neighbours are compared.\end{document}"""
    got = stages(system)
    assert got.names == {"RodLib": "library"}
    assert question(got.goal, got.background, got.abbreviations, got.names).startswith(
        "Rods are simulated in many fields and every group writes its own code. What is wanted is an open source library "
        "for the simulation of long rods. How would you go about it?"
    )


def test_dangling_openings_are_seen_and_expletives_are_not():
    for sentence in ("This removes the tide.", "Both fail.", "In these cases it holds.", "However, they differ.", "The former is better."):
        assert cues.is_dangling(sentence)
    for sentence in (
        "It remains open whether tides matter.",
        "In this paper we ask why.",
        "The first objects were found.",
        "Thus far nobody knows.",
    ):
        assert not cues.is_dangling(sentence)


def test_such_things_were_spoken_of_before():
    assert cues.leans_back("It was hypothesized that such an aggregate could form in a coma.")
    assert not cues.leans_back("It was hypothesized that grains such as these form in a coma.")


def test_a_tie_to_the_sentence_before_may_be_cut_only_where_the_rest_stands_alone():
    assert cues.opens_action("To do so, we run a thousand simulations.")
    assert cues.opens_action("The key idea is to split the rate.")
    assert not cues.opens_action("Hence, we use them for our evaluations.")
    assert not cues.opens_action("However, they run.")


def test_abbreviations_are_found_by_their_initials_and_spelled_out_once():
    found = find_abbreviations("The iterated prisoner's dilemma (IPD) and Large language models (LLMs) are old (see XY).")
    assert found == {"IPD": "iterated prisoner's dilemma", "LLM": "large language model"}
    assert spell_out("Use LLMs in the IPD; LLMs win.", found) == (
        "Use large language models (LLMs) in the iterated prisoner's dilemma (IPD); LLMs win."
    )


def check_faithful(folder):
    """Every sentence of every stage stands in the plain text of the section that it names, up to a cut before a display."""
    paper = load_paper(folder)
    got = extract_stages(paper)
    texts: dict[str, str] = {"Abstract": plain_text(paper.abstract, paper.macros)}
    for section in paper.sections:
        texts[section.title] = texts.get(section.title, "") + "\n\n" + plain_text(section.text, paper.macros)
    for stage in (got.goal, got.background, got.method, got.experiment):
        for sentence in stage:
            text, source = sentence.text[1:-1], texts[sentence.section]  # a clip may begin inside its sentence: "Section 4 validates ..."
            assert text in source, sentence
            assert HOLE not in sentence.text and DISPLAY not in sentence.text
            assert len(split_sentences(sentence.text)) == 1
    return got


@pytest.mark.parametrize("folder", SAMPLES, ids=lambda path: path.name)
def test_sample_papers_are_quoted_faithfully(folder):
    got = check_faithful(folder)
    assert got.goal and got.background and len(got.method) + len(got.experiment) >= 10


@pytest.mark.skipif("PAPERGYM_FIXTURES" not in os.environ, reason="PAPERGYM_FIXTURES is unset")
def test_real_papers_are_quoted_faithfully():
    folders = sorted(path for path in (Path(os.environ["PAPERGYM_FIXTURES"]) / "papers").iterdir() if path.is_dir())
    assert len(folders) == 7
    for folder in folders:
        check_faithful(folder)


@pytest.mark.parametrize(
    "text",
    [
        "was " * 60_000,
        "A. " * 60_000,
        "a" * 300_000,
        "(A. " * 40_000,
        "we train and " * 20_000,
        "We find that x. " * 15_000,
        "x, " * 80_000,
    ],
)
def test_a_monstrous_section_takes_little_time(tmp_path, text):
    (tmp_path / "main.tex").write_text(SECTIONED.replace("This removes the tide.", text))
    paper = load_paper(tmp_path)
    start = time.perf_counter()
    assert extract_stages(paper).goal
    assert time.perf_counter() - start < 10
