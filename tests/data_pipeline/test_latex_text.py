"""Comments, verbatim text, conditionals, definitions: what of a document is text."""

import pytest

from papergym.data_pipeline.latex import load_paper


def body(tmp_path, text, preamble="", **files):
    """The text of the only section of a small paper, its blanks normalised."""
    for name, content in files.items():
        (tmp_path / f"{name}.tex").write_text(content)
    document = f"\\documentclass{{article}}\n{preamble}\n\\begin{{document}}\n\\section{{One}}\n{text}\n\\end{{document}}\n"
    (tmp_path / "main.tex").write_text(document)
    paper = load_paper(tmp_path / "main.tex")
    assert [section.title for section in paper.sections] == ["One"]
    return " ".join(paper.sections[0].text.split())


CASES = {
    "escaped percent": (r"A gain of 12\% in accuracy.", r"A gain of 12\% in accuracy."),
    "line break then comment": ("row \\\\% note\nnext", r"row \\next"),
    "escaped backslashes and percent": ("a \\\\\\% b % c\nd", r"a \\\% b d"),
    "comment joins lines": ("foo%\n   bar", "foobar"),
    "comment keeps the space before it": ("foo % x\n  bar", "foo bar"),
    "comment line vanishes": ("a\n  % note\nb", "a b"),
    "url with percent": (r"see \url{http://x.example/a%20b} end", r"see \url{http://x.example/a%20b} end"),
    "href with percent and comment": ("\\href{http://x/a%20b}{text}% c\n end", r"\href{http://x/a%20b}{text}end"),
    "verb with percent": (r"use \verb|a % b| end", r"use \verb|a % b| end"),
    "verb star and plus": (r"use \verb*+50% of \section{X}+ end", r"use \verb*+50% of \section{X}+ end"),
    "verb without end is text": ("use \\verb|a % b\nend", r"use \verb|a end"),
    "lstinline": (r"\lstinline[language=C]!x % 2! end % c", r"\lstinline[language=C]!x % 2! end"),
    "mintinline braces": (r"\mintinline{python}{x % 2} end", r"\mintinline{python}{x % 2} end"),
    "comment environment": ("a \\begin{comment}\n\\section{No}\n\\end{comment} b", "a b"),
    "commented end": ("a\n% \\end{document}\nb", "a b"),
    "iffalse": (r"\iffalse old\else new\fi", "new"),
    "iffalse without else": (r"a \iffalse old \section{X} \fi b", "a b"),
    "iffalse nested": (r"a \iffalse \ifnum1=2 x\else y\fi z\fi b", "a b"),
    "iffalse with math iff": (r"a \iffalse $x \iff y$ \fi b", "a b"),
    "iffalse with ifthenelse": (r"a \iffalse \ifthenelse{\boolean{q}}{x}{y} \fi b", "a b"),
    "iftrue": (r"a \iftrue b\else c\fi d", "a b d"),
    "if zero": ("a \\if0\nold\n\\fi b", "a b"),
    "if zero one": (r"a \if01 old\else new\fi", "a new"),
    "ifnum": (r"a \ifnum1>2 b\else c\fi", "a c"),
    "unknown conditional keeps both": (r"\ifvmode a\else b\fi", r"\ifvmode a\else b\fi"),
    "unclosed iffalse is kept": (r"\iffalse a b", r"\iffalse a b"),
    "fi in a comment": ("\\iffalse a % \\fi\n b \\fi c", "c"),
    "listing": (
        "a \\begin{lstlisting}\nx % 2 \\section{No}\n\\end{lstlisting} b",
        "a \\begin{lstlisting} x % 2 \\section{No} \\end{lstlisting} b",
    ),
    "minted": (
        "\\begin{minted}{python}\n# \\input{no} 5 % 2\n\\end{minted}",
        "\\begin{minted}{python} # \\input{no} 5 % 2 \\end{minted}",
    ),
    "verbatim hides iffalse": (r"\begin{verbatim}\iffalse\end{verbatim} kept", r"\begin{verbatim}\iffalse\end{verbatim} kept"),
    "todo ends at its brace": (r"\todo{see \textbf{this} note} after", r"\todo{see \textbf{this} note} after"),
    "heading inside a definition": (r"\newcommand{\x}{\input{no}} after", r"\newcommand{\x}{\input{no}} after"),
    "endinput": ("a\n\\input{part}\nd", "a b d"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_text(tmp_path, name):
    text, expected = CASES[name]
    assert body(tmp_path, text, part="b\n\\endinput\nc") == expected


def test_comment_before_a_blank_line_keeps_the_paragraph(tmp_path):
    (tmp_path / "a.tex").write_text("\\begin{document}\\section{A}one% note\n\ntwo\n%\n\nthree%\n   \nfour\\end{document}")
    text = load_paper(tmp_path / "a.tex").sections[0].text
    assert [part.split() for part in text.split("\n\n")][:3] == [["one"], ["two"], ["three"]]


PREAMBLES = {
    "newif false": (r"\newif\ifdraft", r"a \ifdraft b\else c\fi", "a c"),
    "newif true": (r"\newif\ifdraft \drafttrue", r"a \ifdraft b\else c\fi", "a b"),
    "let iftrue": (r"\let\ifdraft\iftrue", r"a \ifdraft b\else c\fi", "a b"),
    "class option": (r"\newif\ifx@y", r"a \ifCLASSOPTIONcompsoc b\else c\fi", "a c"),
    "boolean": (r"\newboolean{long}\setboolean{long}{true}", r"\ifthenelse{\boolean{long}}{yes}{no}", "yes"),
    "not boolean": (r"\newboolean{long}", r"\ifthenelse{\not\boolean{long}}{yes}{no}", "yes"),
    "equal": (r"\newcommand{\venue}{arxiv}", r"\ifthenelse{\equal{\venue}{arxiv}}{yes}{no}", "yes"),
    "toggle": (r"\newtoggle{full}\toggletrue{full}", r"\iftoggle{full}{yes}{no}", "yes"),
    "settoggle": (r"\newtoggle{full}\settoggle{full}{false}", r"\iftoggle{full}{yes}{no}", "no"),
    "ifdefined": (r"\def\mode{1}", r"\ifdefined\mode yes\else no\fi", "yes"),
    "ifx undefined": ("", r"\ifx\mode\undefined yes\else no\fi", "yes"),
    "ifnum of a macro": (r"\def\arxiv{1}", r"\ifnum\arxiv=1 yes\else no\fi", "yes"),
    "excludecomment": (r"\excludecomment{private}", r"a \begin{private}x\end{private} b", "a b"),
    "own listing": (r"\lstnewenvironment{code}{}{}", "\\begin{code}\n% \\section{X}\\end{code}", r"\begin{code} % \section{X}\end{code}"),
    "own verbatim": (r"\DefineVerbatimEnvironment{code}{Verbatim}{}", r"\begin{code}%\end{code}", r"\begin{code}%\end{code}"),
    "newminted": (r"\newminted{c}{}", r"\begin{ccode}%\end{ccode}", r"\begin{ccode}%\end{ccode}"),
    "short verb": (r"\MakeShortVerb{\|}", r"a |b % c| d", r"a |b % c| d"),
}  # fmt: skip


@pytest.mark.parametrize("name", PREAMBLES)
def test_preamble_decides(tmp_path, name):
    preamble, text, expected = PREAMBLES[name]
    assert body(tmp_path, text, preamble) == expected


def test_verbatim_defined_in_an_included_preamble(tmp_path):
    text = body(tmp_path, r"\begin{code}% \input{no}\end{code}", r"\input{defs}", defs=r"\lstnewenvironment{code}{}{}")
    assert text == r"\begin{code}% \input{no}\end{code}"
