"""LaTeX to plain sentences: hand-written expectations, properties on generated input, and linear time on hostile input."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papergym.data_pipeline.latex import Macro
from papergym.data_pipeline.math_text import DISPLAY, HOLE, math_text
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.sentences import split_sentences


@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"We \emph{really} use \textbf{two} {\it kinds} of \textcolor{red}{data}.", "We really use two kinds of data."),
        (r"Known facts~\cite{a,b} hold \citep[e.g.,][p.~3]{c}.", "Known facts hold."),
        (r"Rates fell.\footnote{A note with $x_1$ and {braces}.} They rose.", "Rates fell. They rose."),
        (r"Old work (see Sec.~\ref{s} and \cref{t}) is slow.", "Old work is slow."),
        (r"Poor \'etudes by Erd\H{o}s, \v{C}ech, na\"{\i}ve \ss{} and \O re.", "Poor études by Erdős, Čech, naïve ß and Øre."),
        (r"Some 12\% of \$3 --- or 4--5 ``units'' --- at 50\,\% duty.", 'Some 12% of $3 — or 4–5 "units" — at 50% duty.'),
        (r"The \texttt{fit()} call of \href{http://x.org}{the site} works.", "The fit() call of the site works."),
        (r"A current of \SI{3}{\micro\ampere\per\second} and \qty{20}{\degreeCelsius}.", "A current of 3 µA/s and 20 °C."),
        (r"All \glspl{llm} and one \gls{api} call \enquote{tools}.", 'All LLMs and one API call "tools".'),
        (r"As in a letter [J. Fluid Mech. 407, 27 (2000)], it holds.", "As in a letter, it holds."),
        ("First part.\n\nSecond\npart.", "First part.\n\nSecond part."),
        (r"Points: \begin{itemize}[leftmargin=*]\item One is here. \item[b] Two is here.\end{itemize} End.",
         "Points:\n\nOne is here.\n\nTwo is here.\n\nEnd."),
        (r"Before \begin{figure}[t]\caption{No. Not this.}\includegraphics{x}\end{figure} after.", "Before after."),
        (r"Before. \begin{theorem}It is true.\end{theorem}\begin{proof}Clear.\end{proof} After.", "Before. After."),
    ],
)  # fmt: skip
def test_text(latex, plain):
    assert plain_text(latex) == plain


@pytest.mark.parametrize(
    ("latex", "plain"),
    [
        (r"\mathcal{O}(N^{3})", "O(N^3)"),
        (r"D_\text{max}/D_0 \sim Re^{1/5}", "D_max/D_0 ~ Re^(1/5)"),
        (r"1\le We \le 10^3", "1 ≤ We ≤ 10^3"),
        (r"x_{N-1}=\frac{a+b}{2}", "x_(N-1) = (a+b)/2"),
        (r"\sqrt{\rho D_0^3/\gamma}", "sqrt(ρ D_0^3/γ)"),
        (r"1{,}000", "1,000"),
        (r"60^{\circ}", "60°"),
        (r"\hat{x} \pm \boldsymbol{\sigma}^2", "x̂ ± σ^2"),
        (r"\binom{164}{2}", "(164 choose 2)"),
        (r"\begin{pmatrix} a & b \end{pmatrix}", HOLE),
        (r"\unheardof{x}", HOLE + "x"),
    ],
)
def test_inline_formulas_stay_readable(latex, plain):
    assert math_text(latex) == plain


def test_what_prose_cannot_say_leaves_a_hole_and_not_a_wrong_sentence():
    assert HOLE in plain_text(r"As shown in Figure~\ref{f}, it grows.")
    assert HOLE in plain_text(r"\citet{knuth} proved it.")
    assert HOLE in plain_text(r"As described in \cite{a}, it is so.")
    assert HOLE in plain_text(r"There were \variable{output/count.txt} answers.")
    assert HOLE in plain_text(r"The \NoSuchMacro grows.")
    assert (
        plain_text(r"It is fitted by \begin{equation} a = b \end{equation} where $a$ is small.")
        == f"It is fitted by {DISPLAY} where a is small."
    )
    # A new sentence behind the display: the two must not fuse.
    assert split_sentences(plain_text(r"It is \[ a = b \] We go on.")) == [f"It is {DISPLAY}.", "We go on."]


def test_user_macros_are_written_out():
    macros = {
        "tool": Macro((), r"\textsc{Sieve}\xspace"),
        "vs": Macro((), r"\color{red} \normalfont"),
        "note": Macro((("mandatory", ""),), "#1"),
        "loop": Macro((), r"\loop"),
        "draw": Macro((), r"\begin{tikzpicture}x\end{tikzpicture}"),
    }
    assert (
        plain_text(r"Here \tool stops; \tool{} waits for \note{two \emph{keys}}.", macros) == "Here Sieve stops; Sieve waits for two keys."
    )
    assert plain_text(r"A law \vs for large drops.", macros) == "A law for large drops."  # the switch must not swallow "for"
    assert HOLE in plain_text(r"A \loop and a \draw here.", macros)


def test_expansion_is_bounded():
    doubling = {"a" * n: Macro((), "\\" + "a" * (n + 1) + " " + "\\" + "a" * (n + 1)) for n in range(1, 40)}
    start = time.perf_counter()
    assert len(plain_text(r"\a \a \a", doubling)) < 100_000
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    "hostile",
    ["{" * 200_000, "$" * 200_001, r"\cite{" * 30_000, r"\begin{figure}" * 5_000, "\\" * 200_001, r"\frac" * 50_000,
     "(" * 20_000 + "\\ref{a}",
     "$" + "{" * 50_000 + "$", "_" * 50_000, r"\'" * 50_000, "`" * 100_000, r"\footnote[" * 10_000],
)  # fmt: skip
def test_hostile_input_takes_linear_time(hostile):
    start = time.perf_counter()
    plain_text(hostile)
    assert time.perf_counter() - start < 3


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab {}$\\_^%~[]()\n.,'`&-", max_size=200))
def test_any_input_gives_text_without_braces_or_double_blanks(latex):
    text = plain_text(latex)
    assert "  " not in text and text == text.strip()
    assert plain_text("A plain sentence.") == "A plain sentence."


SENTENCES = [
    "We use e.g. two and i.e. three of Smith et al. in Fig. 3 and Eq. (4).",
    "It fell by 0.5 per cent vs. 1.25 before.",
    "J. M. Burgers and A. Turing agreed.",
    "The diameter is D.",
    "Rods of 15 ms.",
    "Lifts never slip (see also B. C. Lee. It is open) at all.",
    'She said "it works."',
    "Is it so?",
    "It is!",
    "The U.S. economy grew.",
    "In 2004 it shrank.",
]


def test_sentences_are_split_where_a_reader_would():
    assert split_sentences(" ".join(SENTENCES)) == SENTENCES


@pytest.mark.parametrize(
    "whole",
    ["Results of Jones et al. The rest is new.", "It rains in the U.S. The sun shines.", "It has three parts, A, B, etc. Then it ends."],
)
def test_an_abbreviation_ends_a_sentence_before_a_word_that_begins_one(whole):
    assert len(split_sentences(whole)) == 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*SENTENCES, "a", "B.", "No. 5", "(x.", "y)"]), max_size=12))
def test_no_character_is_lost_in_splitting(parts):
    paragraph = " ".join(parts)
    assert " ".join(split_sentences(paragraph)) == paragraph
