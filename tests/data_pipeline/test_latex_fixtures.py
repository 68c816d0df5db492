"""Seven real papers, with expectations written by hand from their sources."""

import os
from pathlib import Path

import pytest

from papergym.data_pipeline.latex import load_paper

FOLDER = os.environ.get("PAPERGYM_FIXTURES")
pytestmark = pytest.mark.skipif(not FOLDER, reason="PAPERGYM_FIXTURES is unset")

# folder: main file, title, start and end of the abstract, titles of level 1 before and in the appendix, number of sections
EXPECTED = {
    "drop-impact-prl": (
        "ms.tex",
        "Unifying theory of scaling in drop impact: Forces & maximum spreading diameter",
        "The dynamics of drop impact on a rigid surface -- omnipresent in nature",
        "in contrast to what had been assumed in prior theories.",
        [],
        [],
        1,
    ),
    "atlas-3i": (
        "src/tex/ms.tex",
        "Discovery and Preliminary Characterization of a Third Interstellar Object: 3I/ATLAS",
        "We report initial observations aimed at the characterization of a third interstellar object",
        "compositional indicators of formation conditions.",
        ["Introduction", "Discovery and hyperbolic orbit characterization", "Observational Analysis", "Discussion"]
        + ["Data and Software Availability"],
        [],
        11,
    ),
    "celerite": (
        "paper/ms.tex",
        "Fast and scalable Gaussian process modeling with applications to astronomical time series",
        "The growing field of large-scale time domain astronomy requires methods",
        r"\project{C++}, \project{Python}, and \project{Julia}.",
        ["Introduction", "Gaussian processes", "The celerite model", "celerite as a model of stellar variations"]
        + ["Semiseparable matrices & celerite", "Examples", "Comparisons to other methods", "Discussion"],
        ["Ensuring positive definiteness for celerite models", "Semiseparable matrix operations"],
        25,
    ),
    "sympy-paper": (
        "paper.tex",
        "SymPy: symbolic computing in Python",
        "SymPy is an open source computer algebra system written in pure Python.",
        "details of the architecture and features of SymPy.",
        ["Introduction", "Overview of Capabilities", "Numerics", "Physics Submodule", "Architecture", "Projects that Depend on SymPy"]
        + ["Conclusion and Future Work"],
        [],
        25,
    ),
    "chembench": (
        "src/tex/ms.tex",
        "Are large language models superhuman chemists?",
        "Large language models (LLMs) have gained widespread interest",
        "evaluating LLMs in specific domains.",
        ["Introduction", "Results and Discussion", "Conclusions", "Methods", "Data and code availability", "Acknowledgements"]
        + ["Statement of ethical compliance", "Conflicts of interest", "Author contributions"],
        ["Appendix"],
        53,
    ),
    "axelrod-moran": (
        "main.tex",
        "Evolution Reinforces Cooperation with the Emergence of Self-Recognition Mechanisms: an empirical study of the Moran process for"
        " the iterated Prisoner’s dilemma",
        "We present insights and empirical results from an extensive numerical study",
        "as strategies employing handshake mechanisms.",
        ["Introduction", "Validation", "Empirical results", "Discussion", "Conclusion", "Acknowledgements"],
        ["List of players"],
        14,
    ),
    "hafiscal-econ": (
        "HAFiscal.tex",
        "Welfare and Spending Effects of Consumption Stimulus Policies",
        "Using a heterogeneous agent model calibrated to match spending dynamics over four years",
        "in the version of our model without a multiplier.",
        ["Introduction", "Model", "Parameterizing the model", "Comparing fiscal stimulus policies", "Robustness in a HANK and SAM Model"]
        + ["Conclusion", "Endnotes"],
        ["Appendices", "Details of the HANK and SAM Model", "Results in a Model Without the Splurge", "Robustness"],
        66,
    ),
}
PHRASES = {
    "drop-impact-prl": [
        "Droplet impact on a rigid surface is omnipresent",
        "suggests to try such an approach also to other hydrodynamic problems",
    ],
    "atlas-3i": [r"\%"],
    "axelrod-moran": [r"of \textbf{164 }complex and adaptive strategies", r"\STATE population $\gets$ initial population"],
    "sympy-paper": [r">>> C.orient(B, 'axis', (pi/2, B.x))", "SymPy is a full featured computer algebra system"],
    "chembench": ["Questions were added via pull requests to the"],
    "hafiscal-econ": [
        r"\mathbf{c}_{i,t} & = \mathbf{c}_{sp,i,t} + \mathbf{c}_{opt,i,t}",  # \input{\eqns/splurge.ltx}
        "Welfare effectiveness: policy ``bang for the buck'' comparison",  # a table of its own in a subfile of a subfile
    ],
}
ABSENT = {
    "drop-impact-prl": ["please leave like this", "Governing equations"],
    "atlas-3i": [r"\iffalse"],
    "hafiscal-econ": [r"\documentclass", r"\end{document}", "verbatimwrite", "Poverty"],
    "axelrod-moran": [r"\documentclass", r"\begin{document}"],
    "sympy-paper": ["This section requires some citations"],
}


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", EXPECTED)
def test_paper(name):
    main, title, start, end, body, appendix, count = EXPECTED[name]
    paper = load_paper(Path(FOLDER) / "papers" / name)
    assert (paper.main_file, paper.title) == (main, title)
    assert flat(paper.abstract).startswith(start) and flat(paper.abstract).endswith(end)
    assert [s.title for s in paper.sections if s.level == 1 and not s.appendix] == body
    assert [s.title for s in paper.sections if s.level == 1 and s.appendix] == appendix
    assert len(paper.sections) == count
    text = flat(" ".join(section.text for section in paper.sections))
    for phrase in PHRASES.get(name, []):
        assert phrase in text
    for phrase in ABSENT.get(name, []):
        assert phrase not in text


def test_what_is_missing_is_said():
    papers = {name: load_paper(Path(FOLDER) / "papers" / name) for name in ("celerite", "sympy-paper", "hafiscal-econ")}
    assert papers["celerite"].warnings == (r"paper/ms.tex: \include{vc} not found",)
    assert papers["sympy-paper"].warnings == (r"paper.tex: \input{authors} not found",)
    assert all("LorenzPts_robustness" in warning for warning in papers["hafiscal-econ"].warnings)


def test_letter_is_one_section():
    (section,) = load_paper(Path(FOLDER) / "papers" / "drop-impact-prl").sections
    assert (section.title, section.level, section.appendix) == ("", 0, False)


def test_bodies_go_under_the_headings_of_the_main_file():
    sections = {s.title: s for s in load_paper(Path(FOLDER) / "papers" / "sympy-paper").sections}
    assert sections["Basic Usage"].level == 2 and "Symbolic variables" in sections["Basic Usage"].text
    assert sections["Vector Algebra"].level == 3 and "reference frame-, time-" in sections["Vector Algebra"].text


def test_titles_of_deeper_levels():
    titles = {s.title: s.level for s in load_paper(Path(FOLDER) / "papers" / "hafiscal-econ").sections}
    assert (
        titles["Households"] == 2 and titles["Calibrated parameters — Recession"] == 3 and titles["2. Extended unemployment benefits."] == 4
    )
    assert "Example 2: Inferences with the “wrong” model" in {s.title for s in load_paper(Path(FOLDER) / "papers" / "celerite").sections}
    assert "The special case of N=2" in {s.title for s in load_paper(Path(FOLDER) / "papers" / "axelrod-moran").sections}
