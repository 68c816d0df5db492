"""Where inputs lie: \\import and \\subimport within each other, paths by commands, in other case, and as Windows writes them."""

import pytest

from papergym.data_pipeline.latex import load_paper


def read(folder, text, preamble="", files=None):
    """The body's text on one line, and whether anything was warned of."""
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "main.tex").write_text(
        f"\\documentclass{{article}}{preamble}\\begin{{document}}\\section{{S}}\nA\n{text}\nZ\\end{{document}}"
    )
    paper = load_paper(folder)
    return " ".join(paper.sections[0].text.split()), [warning for warning in paper.warnings if "abstract" not in warning]


FOUND = {
    "import without a slash": (r"\import{sec}{part}", "", {"sec/part.tex": "x"}),
    "import from here": (r"\import{./sec/}{part.tex}", "", {"sec/part.tex": "x"}),
    "import*": (r"\import*{sec/}{part}", "", {"sec/part.tex": "x"}),
    "subimport*": (r"\subimport*{sec/}{part}", "", {"sec/part.tex": "x"}),
    "includefrom": (r"\includefrom{sec/}{part}", "", {"sec/part.tex": "x"}),
    "import over two lines": ("\\import{sec/}%\n  {part}", "", {"sec/part.tex": "x"}),
    "import from a command's folder": (r"\import{\secs}{part}", r"\newcommand{\secs}{sec/}", {"sec/part.tex": "x"}),
    "import within an import starts from the root": (
        r"\import{a/}{p}", "", {"a/p.tex": r"\import{b/}{q}", "b/q.tex": "x", "a/b/q.tex": "wrong"},
    ),
    "subimport within a subimport starts from there": (
        r"\subimport{a/}{p}", "", {"a/p.tex": r"\subimport{b/}{q}", "a/b/q.tex": r"\subimport{c}{r}", "a/b/c/r.tex": "x", "c/r.tex": "no"},
    ),
    "subimport upwards": (r"\subimport{a/}{p}", "", {"a/p.tex": r"\subimport{../b/}{q}", "b/q.tex": "x"}),
    "input in a subimport": (r"\subimport{a/}{p}", "", {"a/p.tex": r"\input{t}", "a/t.tex": "x", "t.tex": "wrong"}),
    "behind a subimport": (r"\subimport{a/}{p}\input{t}", "", {"a/p.tex": "", "a/t.tex": "wrong", "t.tex": "x"}),
    "def": (r"\input{\dir/part}", r"\def\dir{sec/one}", {"sec/one/part.tex": "x", "sec/two/part.tex": "wrong"}),
    "a command in braces": (r"\input{\dir{}part}", r"\def\dir{sec/}", {"sec/part.tex": "x"}),
    "a command of a command": (r"\input{\dir part}", r"\newcommand{\top}{sec}\newcommand{\dir}{\top/}", {"sec/part.tex": "x"}),
    "a command that is the name": (r"\input{\file}", r"\def\file{part.tex}", {"part.tex": "x"}),
    "arguments": (r"\load{sec}{one}", r"\newcommand{\load}[2]{\input{#1/#2.tex}}", {"sec/one.tex": "x"}),
    "jobname": (r"\input{\jobname-body}", "", {"main-body.tex": "x"}),
    "jobname with an ending": (r"\input{\jobname.abs}", "", {"main.abs": "x"}),
    "input@path": (r"\input{part}", r"\makeatletter\def\input@path{{a/}{b/}}\makeatother", {"b/part.tex": "x", "c/part.tex": "wrong"}),
    "case of all": (r"\input{SEC/Part.TEX}", "", {"Sec/PART.tex": "x"}),
    "case of the ending": (r"\input{part}", "", {"part.TEX": "x"}),
    "the right case first": (r"\input{Part}", "", {"Part.tex": "x", "part.tex": "wrong"}),
    "letters composed and not": ("\\input{r\u00e9sum\u00e9}", "", {"re\u0301sume\u0301.tex": "x"}),
    "backslash": (r"\input{sec\part}", "", {"sec/part.tex": "x"}),
    "backslash before a command's name": (r"\input{sec\alpha.tex}", "", {"sec/alpha.tex": "x"}),
    "backslash from here, in other case": (r"\input{.\Sec\Part}", "", {"sec/part.tex": "x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(tmp_path, name):
    text, preamble, files = FOUND[name]
    assert read(tmp_path, text, preamble, files) == ("A x Z", [])


NEVER = [
    r"\input{C:/Users/me/part.tex}", r"\input{C:\Users\me\part.tex}", r"\input{d:/part}", r'\input{"C:/My Docs/part"}',
    r"\input C:/docs/part", r"\input{C:part}", r"\input{\\server\share\part}", r"\input{//server/share/part}", r"\input{..\part}",
    r"\input{sec\..\..\part}", r"\input{\home/part}", r"\import{C:/x/}{part}", r"\import{/x/}{part}", r"\import{../}{part}",
    r"\subimport{../}{part}",
]  # fmt: skip


@pytest.mark.parametrize("text", NEVER)
def test_drives_shares_and_what_lies_above_are_never_read(tmp_path, text):
    (tmp_path / "part.tex").write_text("SECRET")
    (tmp_path / "paper").mkdir()
    said, warnings = read(tmp_path / "paper", text, r"\newcommand{\home}{C:/Users}", {"part.tex": "of the paper"})
    assert said == "A Z" and len(warnings) == 1 and "leads out of the paper" in warnings[0]


def test_a_drive_does_not_exist(tmp_path):
    assert read(tmp_path, r"\IfFileExists{C:/a.tex}{yes}{no}", "", {"a.tex": "x"}) == ("A no Z", [])


def test_what_is_included_twice_stands_there_twice(tmp_path):
    files = {"a.tex": "x", "b.tex": r"y \input{a}", "c.tex": "\\section{T} t"}
    assert read(tmp_path, r"\input{b} \include{a} \subimport{./}{a}", "", files) == ("A y x x x Z", [])
    read(tmp_path, r"\input{c} \input{c}", "", files)
    assert [(s.title, s.text.split()) for s in load_paper(tmp_path).sections] == [("S", ["A"]), ("T", ["t"]), ("T", ["t", "Z"])]
