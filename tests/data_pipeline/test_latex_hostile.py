"""Any bytes and any LaTeX-like text: only ValueError or OSError, and in linear time."""

import io
import tarfile
import time
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from papergym.data_pipeline.latex import Paper, load_paper

TEXT = r"""
\section{A} ¦\section*{¦\section[¦\subsection¦\paragraph{P.}¦{¦}¦[¦]¦%¦\%¦\\¦\¦$x_1$¦\begin{document}¦\end{document}¦\begin{abstract}
¦\end{abstract}¦\abstract{a}¦\title{T}¦\maketitle¦\input{main}¦\input other ¦\include{other}¦\subfile{other}¦\import{.}{other}¦\iffalse
¦\iftrue ¦\else ¦\fi ¦\newif\ifq ¦\qtrue ¦\ifq ¦\ifx\a\b ¦\ifnum1=2 ¦\ifthenelse{\boolean{q}}{x}{y}¦\newcommand{\a}[1]{\section{#1}}
¦\a{t}¦\a¦\def\b#1{\a{#1}\b}¦\b{u}¦\let\c\section¦\c{v}¦\newenvironment{e}{\begin{abstract}}{\end{abstract}}¦\begin{e}¦\end{e}¦\verb|x|
¦\verb!%!¦\begin{verbatim}¦\end{verbatim}¦\begin{comment}¦\end{comment}¦\MakeShortVerb{\!}¦!¦\url{a%b}¦\appendix ¦\endinput
¦\documentclass[a]{b}¦\usepackage{own}¦\makeatletter¦\makeatother¦\@ifstar{x}{y}¦\NewDocumentCommand{\d}{s o m}{\section{#3}}¦\d*[a]{b}
¦\CatchFileDef{\g}{other}{}¦\g¦\begin{filecontents}{f.tex}¦\end{filecontents}¦\IfFileExists{other}{a}{b}¦\texorpdfstring{a}{b}¦\'e¦\'{\i}
¦#1¦#¦^^M¦é¦two words ¦text. """
PIECES = [*TEXT.split("¦"), "|", "\n", "\n\n", "% note\n", "\t", "\x00", "\x0c", "\ufeff", "\\"]
documents = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
wrapped = documents.map(lambda text: f"\\documentclass{{article}}\\begin{{document}}\\section{{S}}{text} end\\end{{document}}")
quick = settings(max_examples=250, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])


def outcome(path):
    """The paper or the allowed error's text."""
    try:
        paper = load_paper(path)
    except (ValueError, OSError) as error:
        return str(error)
    assert isinstance(paper, Paper) and (paper.abstract or paper.sections)
    assert all(isinstance(part, str) for s in paper.sections for part in (s.title, s.text))
    assert all("\n" not in section.title for section in paper.sections)
    return paper


@quick
@given(main=documents | wrapped, other=documents, style=documents)
def test_any_latex(tmp_path, main, other, style):
    for name, text in (("main.tex", main), ("other.tex", other), ("own.sty", style)):
        (tmp_path / name).write_text(text)
    assert outcome(tmp_path / "main.tex") == outcome(tmp_path / "main.tex")
    outcome(tmp_path)


@quick
@given(data=st.binary(max_size=600), head=st.sampled_from([b"", b"\x1f\x8b\x08", b"PK\x03\x04", b"\\section{A}", b"\xff\xfe"]))
def test_any_bytes(tmp_path, data, head):
    (tmp_path / "main.tex").write_bytes(head + data)
    outcome(tmp_path / "main.tex")


@quick
@given(data=st.data())
def test_damaged_archives(tmp_path, data):
    buffer = io.BytesIO()
    kind = data.draw(st.sampled_from(["w", "w:gz", "zip"]))
    text = b"\\documentclass{article}\\begin{document}\\section{A} one\\end{document}"
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/main.tex", text)
    else:
        with tarfile.open(fileobj=buffer, mode=kind) as archive:
            member = tarfile.TarInfo("a/main.tex")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    damaged = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, min(len(damaged) - 1, 700)))] = data.draw(st.integers(0, 255))
    (tmp_path / "p").write_bytes(bytes(damaged[: data.draw(st.integers(1, len(damaged)))]))
    outcome(tmp_path / "p")


@given(text=wrapped)
@settings(quick, max_examples=100)
def test_a_comment_at_every_line_end_changes_nothing(tmp_path, text):
    """Two routes: a document, and the same with comment lines put between its lines."""
    if "\x00" in text or "verb" in text or "!" in text or "filecontents" in text or "comment" in text:
        return
    (tmp_path / "main.tex").write_text(text)
    plain = outcome(tmp_path / "main.tex")
    (tmp_path / "main.tex").write_text(text.replace("\n", "\n % \\section{No} }{ \\fi \n"))
    commented = outcome(tmp_path / "main.tex")
    assert plain == commented


HOSTILE = {
    "real text": "\\section{A} Words of \\emph{a} paper with $x$ and 12\\% more % note\nand \\textbf{\\todo{x}} so on.\n\n",
    "open headings": "\\section{",
    "open brackets": "\\section[",
    "open braces": "{",
    "groups in brackets": "\\section[{}",
    "open verbatim": "\\begin{verbatim}",
    "open verb": "\\verb|",
    "open urls": "\\url{",
    "open conditionals": "\\iffalse ",
    "conditionals": "\\iftrue x\\else y\\fi ",
    "open definitions": "\\newcommand{\\a}{",
    "definitions": "\\def\\a#1{x}",
    "open inputs": "\\input{",
    "missing inputs": "\\input{a}",
    "comments": "%\n",
    "backslashes": "\\",
    "blanks": " ",
    "open authors": "\\author[",
    "abstracts": "\\begin{abstract}",
    "caught files": "\\CatchFileDef{\\a}{main}{}",
    "headings by macro": "\\s{a}",
    "titles that expand": "\\section{\\t} x ",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear(tmp_path, name):
    """300 kB of each in well under what a quadratic reader needs; the process's own time, since the machine may be busy."""
    preamble = "\\newcommand{\\s}[1]{\\section{#1}}\\def\\t{x\\t\\t}"
    (tmp_path / "main.tex").write_text(preamble + HOSTILE[name] * (300_000 // len(HOSTILE[name]) if "expand" not in name else 100))
    start = time.process_time()
    outcome(tmp_path / "main.tex")
    assert time.process_time() - start < 5
