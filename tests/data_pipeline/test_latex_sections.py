"""Titles, headings, abstracts, appendices."""

import pytest

from papergym.data_pipeline.latex import Section, load_paper


def load(tmp_path, body, preamble="", whole=False, **files):
    for name, content in files.items():
        (tmp_path / f"{name}.tex").write_text(content)
    text = body if whole else f"\\documentclass{{article}}\n{preamble}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "main.tex").write_text(text)
    return load_paper(tmp_path / "main.tex")


HEADINGS = {
    "plain": (r"\section{Intro}", "Intro", 1),
    "starred": (r"\section*{Introduction}", "Introduction", 1),
    "blank before the star": (r"\section *{Introduction}", "Introduction", 1),
    "short title": (r"\section[Short]{Long and \emph{full}}", "Long and full", 1),
    "short title with brackets": (r"\section[Short {[a]}]{Long}", "Long", 1),
    "next line": ("\\subsection\n  {On the\n  next line}", "On the next line", 2),
    "subsubsection": (r"\subsubsection{Deep}", "Deep", 3),
    "paragraph": (r"\paragraph{Setup.}", "Setup.", 4),
    "subparagraph": (r"\subparagraph{Detail}", "Detail", 5),
    "chapter": (r"\chapter{One}", "One", 0),
    "part": (r"\part{One}", "One", -1),
    "KOMA": (r"\addsec{Preface}", "Preface", 1),
    "texorpdfstring": (r"\section{The \texorpdfstring{$\alpha$-model}{alpha model}}", "The alpha model", 1),
    "math": (r"\section{The case \(N=2\) and $\alpha$}", "The case N=2 and α", 1),
    "accents": (
        r"\section{Schr\"odinger, Erd\H{o}s, Fran\c{c}ois, na\"{\i}ve, \O rsted}",
        "Schrödinger, Erdős, François, naïve, Ørsted",
        1,
    ),
    "label inside": (r"\section{Methods\label{sec:m}}", "Methods", 1),
    "footnote inside": (r"\section{Methods\footnote{A note.}}", "Methods", 1),
    "link": (r"\section{\href{https://x.example/\#a}{Results in a Model}}", "Results in a Model", 1),
    "ampersand and percent": (r"\section{Q\&A on 5\% more}", "Q&A on 5% more", 1),
    "comment inside": ("\\section{One % note }\n two}", "One two", 1),
    "tie and dash": (r"\section{Fig.~1 -- a ``word''}", "Fig. 1 – a “word”", 1),
    "line break": (r"\section{First\\ second}", "First second", 1),
    "own macro in the title": (r"\section{The \model{} of \who{us}}", "The BigNet of us!", 1),
    "nested braces": (r"\section{{\bf A {nested} one}}", "A nested one", 1),
    "verb": (r"\section{On \verb|a_b|}", "On a_b", 1),
    "color": (r"\section{\textcolor{red}{Red}}", "Red", 1),
    "own heading": (r"\mysec{Own}", "Own", 1),
    "own heading with label": (r"\labelled{Own}{sec:own}", "Own", 1),
    "own heading without argument": (r"\conclusionheading", "Conclusion", 1),
    "own heading by def": (r"\ssec{Own}", "Own", 2),
    "own heading by let": (r"\sect{Own}", "Own", 1),
    "own heading, starred": (r"\starred*{Own}", "Own", 1),
    "own heading, not starred": (r"\starred{Own}", "Own", 1),
    "own heading of another": (r"\outer{Own}", "Own", 1),
    "own heading by xparse": (r"\xsec[sec:x]{Own}", "Own", 1),
    "own heading by startsection": (r"\newhead{Own}", "Own", 2),
}
MACROS = r"""
\newcommand{\model}{BigNet} \newcommand{\who}[1]{#1!}
\newcommand{\mysec}[1]{\vspace{1em}\section{#1}}
\newcommand*\labelled[2]{\section{#1}\label{#2}}
\newcommand{\conclusionheading}{\section*{Conclusion}}
\def\ssec#1{\subsection{#1}}
\let\sect\section
\makeatletter
\newcommand\starred{\@ifstar{\withstar}{\withoutstar}}
\newcommand\newhead{\@startsection{subsection}{2}{\z@}{1em}{1em}{\bf}}
\makeatother
\newcommand{\withstar}[1]{\section*{#1}} \newcommand{\withoutstar}[1]{\section{#1}}
\newcommand{\outer}[1]{\mysec{#1}}
\NewDocumentCommand{\xsec}{o m}{\section{#2}\IfValueTF{#1}{\label{#1}}{}}
\renewcommand{\section}{\origsection}
"""


def test_own_star_command_needs_its_parts_first(tmp_path):
    preamble = r"\makeatletter\newcommand\starred{\@ifstar{\section*}{\section}}\makeatother"
    assert [s.title for s in load(tmp_path, r"\starred*{A} x \starred{B} y", preamble).sections] == ["A", "B"]


@pytest.mark.parametrize("name", HEADINGS)
def test_heading(tmp_path, name):
    heading, title, level = HEADINGS[name]
    paper = load(tmp_path, f"{heading} text after.", MACROS)
    section = paper.sections[-1]
    assert (section.title, section.level, len(paper.sections)) == (title, level, 1)
    assert section.text.endswith("text after.") and "#" not in section.text


NOT_HEADINGS = [
    r"\begin{verbatim}\section{No}\end{verbatim}",
    "\\begin{lstlisting}\n\\section{No}\n\\end{lstlisting}",
    r"\verb|\section{No}|",
    r"\newcommand{\x}{\section{No}}",
    r"\def\x#1{\section{#1}}",
    r"\renewcommand{\section}{\section{No}}",
    r"\titleformat{\section}{\bf}{}{1em}{}",
    r"\setcounter{section}{3}",
    r"\sectionmark{No} \thesection",
    r"\iffalse\section{No}\fi",
    "% \\section{No}\n",
]


@pytest.mark.parametrize("text", NOT_HEADINGS)
def test_no_heading(tmp_path, text):
    assert [s.title for s in load(tmp_path, f"\\section{{Yes}} {text} after").sections] == ["Yes"]


def test_sections_are_flat_and_end_at_the_next_heading(tmp_path):
    sections = load(tmp_path, r"\section{A} one \subsection{B} two \paragraph{C} three \section{D} four").sections
    assert sections == (
        Section("A", 1, "one", False),
        Section("B", 2, "two", False),
        Section("C", 4, "three", False),
        Section("D", 1, "four", False),
    )


def test_text_before_the_first_heading(tmp_path):
    paper = load(tmp_path, r"\title{T}\author{A. U. Thor}\maketitle First words. \section{A} one")
    assert paper.title == "T"
    assert paper.sections[0] == Section("", 0, "First words.", False)


def test_front_matter_alone_is_no_section(tmp_path):
    front = r"\title{T}\author[1]{X \and Y}\affiliation{U of Z}\date{\today}\maketitle\tableofcontents\thispagestyle{empty}\keywords{a, b}"
    assert [s.title for s in load(tmp_path, front + r"\section{A} one").sections] == ["A"]


def test_letter_without_sections(tmp_path):
    paper = load(tmp_path, r"\title{A letter}\begin{abstract}Short.\end{abstract}\maketitle Body of the letter.")
    assert paper.sections == (Section("", 0, "Body of the letter.", False),)
    assert any("no section headings" in warning for warning in paper.warnings)


TITLES = {
    "in the preamble": (r"\title{Of Mice}", "", "Of Mice"),
    "with thanks": (r"\title{Of Mice\thanks{Funded.}}", "", "Of Mice"),
    "short": (r"\title[Mice]{Of Mice}", "", "Of Mice"),
    "by a macro": (r"\newcommand{\full}{Of Mice}\title{\full}", "", "Of Mice"),
    "in the body": ("", r"\title{Of\\ Mice}", "Of Mice"),
    "icml": ("", r"\twocolumn[\icmltitle{Of Mice}]", "Of Mice"),
    "fonts and space": (r"\title{%" + "\n \\vspace{-2em}\\Large\\bfseries Of Mice\n}", "", "Of Mice"),
    "second wins before maketitle": (r"\title{Old}\title{Of Mice}", r"\maketitle\title{Supplement}", "Of Mice"),
    "inside a definition": (r"\newcommand{\apply}{\title{No}}\title{Of Mice}", "", "Of Mice"),
}


@pytest.mark.parametrize("name", TITLES)
def test_title(tmp_path, name):
    preamble, body, expected = TITLES[name]
    assert load(tmp_path, body + r"\section{A} one", preamble).title == expected


ABSTRACTS = {
    "environment": ("", "\\begin{abstract}\n We do % x\n it. \\end{abstract}", "We do it."),
    "in the preamble": (r"\begin{abstract}We do it.\end{abstract}", "", "We do it."),
    "command": (r"\abstract{We \emph{do} it.}", "", r"We \emph{do} it."),
    "structured command": ("", r"\abstract{Context.}" + "\n{Aims.}\n{Methods.}", "Context. Aims. Methods."),
    "included": ("", r"\begin{abstract}\input{abs}\end{abstract}", "From a file."),
    "wholly included": ("", r"\input{every}", "Wholly."),
    "by a macro": (r"\newcommand{\abs}{We do it.}", r"\begin{abstract}\abs\end{abstract}", "We do it."),
    "caught file": (r"\CatchFileDef{\abs}{abs.tex}{}", r"\begin{abstract}\abs{}\end{abstract}", "From a file."),
    "own environment": (
        r"\newenvironment{abs}{\begin{abstract}\small}{\end{abstract}}",
        r"\begin{abs}We do it.\end{abs}",
        "\\small We do it.",
    ),
    "own commands": (r"\def\ba{\begin{abstract}}\def\ea{\end{abstract}}", r"\ba We do it.\ea", "We do it."),
    "section": ("", r"\section*{Abstract} We do it.", "We do it."),
    "IEEE": ("", r"\IEEEtitleabstractindextext{\begin{abstract}We do it.\end{abstract}}", "We do it."),
    "never closed": ("", r"\begin{abstract}We do it.", "We do it."),
}


@pytest.mark.parametrize("name", ABSTRACTS)
def test_abstract(tmp_path, name):
    preamble, body, expected = ABSTRACTS[name]
    files = {"abs": "From a file.\n", "every": r"\begin{abstract}Wholly.\end{abstract}"}
    paper = load(tmp_path, body + r"\section{A} one", preamble, **files)
    assert " ".join(paper.abstract.split()) == expected
    assert [(s.title, s.text) for s in paper.sections] == [("A", "one")]


APPENDICES = {
    "command": r"\section{A} a \appendix \section{B} b \subsection{C} c",
    "environment": r"\section{A} a \begin{appendices}\section{B} b \subsection{C} c \end{appendices}",
    "old environment": r"\section{A} a \begin{appendix}\section{B} b \subsection{C} c \end{appendix}",
    "heading": r"\section{A} a \section*{Appendix B} b \subsection{C} c",
    "supplement": r"\section{A} a \section{Supplementary Material} b \section{C} c",
    "in a file": r"\section{A} a \input{app}",
    "own command": r"\newcommand{\startapp}{\clearpage\appendix} \section{A} a \startapp \section{B} b \section{C} c",
}


@pytest.mark.parametrize("name", APPENDICES)
def test_appendix(tmp_path, name):
    paper = load(tmp_path, APPENDICES[name], app=r"\appendix\section{B} b \section{C} c")
    assert [section.appendix for section in paper.sections] == [False, True, True]
    assert not any("ppendi" in section.text for section in paper.sections)


def test_after_the_appendix_environment(tmp_path):
    paper = load(tmp_path, r"\section{A} a \begin{appendices}\section{B} b\end{appendices} \section{Thanks} t")
    assert [section.appendix for section in paper.sections] == [False, True, False]


def test_fragment_without_a_class(tmp_path):
    assert load(tmp_path, r"Lead words. \section{A} one", whole=True).sections == (
        Section("", 0, "Lead words.", False),
        Section("A", 1, "one", False),
    )


def test_text_behind_the_end_is_not_read(tmp_path):
    paper = load(tmp_path, "\\section{A} one\n% \\end{document}\ntwo\n\\end{document}\n\\section{B} junk")
    assert [(s.title, s.text.split()) for s in paper.sections] == [("A", ["one", "two"])]


def test_unclosed_heading_takes_its_line(tmp_path):
    sections = load(tmp_path, "\\section{Open\ntext\n\n\\section{Next} more").sections
    assert [(s.title, s.text) for s in sections] == [("Open", "text"), ("Next", "more")]


def test_definitions_of_the_paper_are_handed_on(tmp_path):
    paper = load(tmp_path, r"\section{A} \net{} wins", r"\newcommand{\net}{Big\textsc{Net}}")
    assert paper.macros["net"].body == r"Big\textsc{Net}" and paper.macros["net"].parameters == ()


def test_definitions_in_the_papers_own_style(tmp_path):
    (tmp_path / "own.sty").write_text(r"\newcommand{\@head}[1]{\section{#1}}\newcommand{\mysec}[1]{\@head{#1}} \section{No}")
    assert [s.title for s in load(tmp_path, r"\mysec{Yes} x", r"\usepackage{amsmath,own}").sections] == ["Yes"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("% only a comment", "no text"),
        ("\\documentclass{article}\\begin{document}\\end{document}", "no text"),
        ("\\documentclass{article}\\begin{document}\\input{gone}\\end{document}", "gone"),
        ("\\documentclass{article}\\begin{document}\\includepdf{paper.pdf}\\end{document}", "no text"),
    ],
)
def test_no_text_is_an_error_with_its_reason(tmp_path, text, reason):
    with pytest.raises(ValueError, match=reason):
        load(tmp_path, text, whole=True)
