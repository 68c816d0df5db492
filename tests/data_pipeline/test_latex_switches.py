"""What is shown or not as the source says: toggles, \\ifthenelse, tests of etoolbox, \\unless, and commands that hide their arguments."""

import pytest

from papergym.data_pipeline.latex import load_paper
from papergym.data_pipeline.plain_text import plain_text


def read(folder, text, preamble="", **styles):
    for name, content in styles.items():
        (folder / f"{name}.sty").write_text(content)
    (folder / "main.tex").write_text(f"\\documentclass{{article}}{preamble}\\begin{{document}}\\section{{S}} {text}\\end{{document}}")
    paper = load_paper(folder)
    assert len(paper.sections) == 1
    return paper


A_AND_B = r"\newboolean{a}\newboolean{b}\newboolean{c}\setboolean{b}{true}\setboolean{c}{true}"
CHOSEN = {
    "toggle": (r"\iftoggle{x}{no}{yes}", r"\newtoggle{x}"),
    "toggle that is set in the text": (r"\toggletrue{x}\iftoggle{x}{yes}{no}", r"\newtoggle{x}"),
    "nottoggle": (r"\nottoggle{x}{yes}{no}", r"\newtoggle{x}"),
    "toggles within each other": (
        r"\iftoggle{x}{\iftoggle{y}{no}{no}}{\iftoggle{y}{yes}{no}}", r"\newtoggle{x}\newtoggle{y}\toggletrue{y}",
    ),
    "toggle of the paper's own style": (r"\iftoggle{x}{yes}{no}", r"\usepackage{own}"),
    "switch of the paper's own style": (r"\iflong yes\else no\fi", r"\usepackage{own}"),
    "bool": (r"\ifbool{x}{yes}{no}", r"\newbool{x}\setbool{x}{true}"),
    "switch as boolean": (r"\ifthenelse{\boolean{large}}{yes}{no}", r"\newif\iflarge\largetrue"),
    "and": (r"\ifthenelse{\boolean{b} \AND \boolean{c}}{yes}{no}", A_AND_B),
    "and, one false": (r"\ifthenelse{\boolean{b}\and\boolean{a}}{no}{yes}", A_AND_B),
    "and, one false, one unknown": (r"\ifthenelse{\isodd{\value{page}}\AND\boolean{a}}{no}{yes}", A_AND_B),
    "or": (r"\ifthenelse{\boolean{a}\OR\boolean{b}}{yes}{no}", A_AND_B),
    "or of three": (r"\ifthenelse{\boolean{a}\or\equal{p}{q}\or\boolean{c}}{yes}{no}", A_AND_B),
    "not binds first": (r"\ifthenelse{\not\boolean{a}\AND\boolean{b}}{yes}{no}", A_AND_B),
    "not of braces": (r"\ifthenelse{\NOT{\boolean{a}}}{yes}{no}", A_AND_B),
    "brackets": (r"\ifthenelse{\(\boolean{a}\OR\boolean{b}\)\AND\boolean{c}}{yes}{no}", A_AND_B),
    "not of brackets": (r"\ifthenelse{\NOT \(\boolean{a}\AND\boolean{b}\)}{yes}{no}", A_AND_B),
    "constant": (r"\ifthenelse{\boolean{true}}{yes}{no}", ""),
    "isundefined": (r"\ifthenelse{\isundefined{\foo}}{yes}{no}", ""),
    "isundefined of what is defined": (r"\ifthenelse{\isundefined\foo}{no}{yes}", r"\def\foo{1}"),
    "number": (r"\ifthenelse{\version > 1}{yes}{no}", r"\newcommand{\version}{2}"),
    "ifdef": (r"\ifdef{\foo}{yes}{no}", r"\def\foo{1}"),
    "ifdef without braces": (r"\ifdef\foo{yes}{no}", r"\def\foo{1}"),
    "ifundef": (r"\ifundef{\foo}{yes}{no}", ""),
    "ifcsdef": (r"\ifcsdef{foo}{yes}{no}", r"\def\foo{1}"),
    "ifcsundef": (r"\ifcsundef{foo}{yes}{no}", ""),
    "ifdefstring": (r"\ifdefstring{\venue}{arxiv}{yes}{no}", r"\def\venue{arxiv}"),
    "ifstrequal": (r"\ifstrequal{a}{b}{no}{yes}", ""),
    "ifdefempty": (r"\ifdefempty{\foo}{yes}{no}", r"\def\foo{}"),
    "ifblank": (r"\ifblank{ }{yes}{no}", ""),
    "notblank": (r"\notblank{x}{yes}{no}", ""),
    "unless": (r"\unless\iftrue no\else yes\fi", ""),
    "unless without else": (r"\unless\iffalse yes\fi", ""),
    "excludeversion": (r"\begin{short}no\end{short}yes", r"\excludeversion{short}"),
}  # fmt: skip
OWN = r"\newtoggle{x}\toggletrue{x}\newif\iflong\longtrue"


@pytest.mark.parametrize("name", CHOSEN)
def test_chosen(tmp_path, name):
    text, preamble = CHOSEN[name]
    assert read(tmp_path, text, preamble, own=OWN).sections[0].text == "yes"


UNKNOWN = [
    r"\iftoggle{never made}{a}{b}",
    r"\ifthenelse{\isodd{\value{page}}}{a}{b}",
    r"\ifthenelse{\isodd{\value{page}}\OR\boolean{a}}{a}{b}",
    r"\ifthenelse{\boolean{a}\OR\boolean{b}\AND\boolean{c}}{a}{b}",
    r"\ifthenelse{}{a}{b}",
    r"\ifdef{\chapter}{a}{b}",
    r"\ifdefstring{\foreign}{x}{a}{b}",
    r"\unless\ifvmode a\else b\fi",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_where_the_source_does_not_tell_both_are_kept(tmp_path, text):
    assert read(tmp_path, text, A_AND_B).sections[0].text == text


BOTH = r"\newcommand{\full}[1]{\iflong #1\fi}\newcommand{\brief}[1]{\iflong\else #1\fi}"
HIDERS = {
    "a switch that is on": (r"\newif\iflong\longtrue" + BOTH, "full"),
    "a switch that is off": (r"\newif\iflong" + BOTH, "brief"),
    "a toggle": (
        r"\newtoggle{l}\toggletrue{l}\newcommand{\full}[1]{\iftoggle{l}{#1}{}}\newcommand{\brief}[1]{\nottoggle{l}{#1}{}}", "full",
    ),
    "a test": (
        r"\def\at{arxiv}\newcommand{\full}[1]{\ifthenelse{\equal{\at}{arxiv}}{#1}{}}\newcommand{\brief}[1]{\ifthenelse{\equal{\at}{x}}{#1}{}}",
        "full",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDERS)
def test_commands_that_show_their_argument_or_not(tmp_path, name):
    preamble, shown = HIDERS[name]
    paper = read(tmp_path, r"before \full{full} \brief{brief} after", preamble)
    assert paper.sections[0].text.split() == plain_text(paper.sections[0].text, paper.macros).split() == ["before", shown, "after"]


def test_an_argument_that_may_be_empty(tmp_path):
    preamble = r"\newcommand{\net}[1]{\ifthenelse{\equal{#1}{}}{Net}{Net-#1}}"
    assert read(tmp_path, r"\net{} and \net{5}", preamble).sections[0].text == "Net and Net-5"


def test_a_branch_may_hold_headings_and_inputs(tmp_path):
    (tmp_path / "a.tex").write_text("from a file")
    text = r"\iftoggle{x}{\subsection{Yes} \input{a}}{\subsection{No} u} \ifthenelse{\boolean{y}}{\subsection{No}}{\subsection{Too} v}"
    (tmp_path / "main.tex").write_text(
        rf"\documentclass{{article}}\newtoggle{{x}}\toggletrue{{x}}\newboolean{{y}}\begin{{document}}{text}\end{{document}}"
    )
    assert [(s.title, s.text) for s in load_paper(tmp_path).sections] == [("Yes", "from a file"), ("Too", "v")]
