"""Submissions as authors leave them: drafts, answers to referees, templates and twins beside the paper, and what arXiv's 00README says."""

import json

import pytest

from papergym.data_pipeline.latex import load_paper

WORDS = "Many words of a paper stand here, one behind the other. "


def document(title="A study of rods", body=f"\\section{{Introduction}} {WORDS * 30}", cls="article", preamble=""):
    return f"\\documentclass[11pt]{{{cls}}}\n{preamble}\n\\title{{{title}}}\n\\begin{{document}}\n\\maketitle\n{body}\n\\end{{document}}\n"


PAPER = document(body=f"\\begin{{abstract}}Rods.\\end{{abstract}}\\section{{Introduction}} {WORDS * 40}\\section{{Method}} {WORDS * 40}")
LONG = document(body=f"\\section{{Introduction}} {WORDS * 400}")
SHORT = document("Notes", "\\section{A} Short text.")
TWIN = b"\0\5\x16\7\0\2\0\0Mac OS X        \0\2\0\0\0\t\0\0\0\x32\\documentclass{article}\\begin{document}"


def main_of(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_paper(folder).main_file


RIVALS = {
    "copies": {"paper (conflicted copy 2024-01-02).tex": LONG, "Copy of paper.tex": LONG, "paper copy.tex": LONG},
    "backups": {"paper.tex~": LONG, "paper.tex.bak": LONG, "#paper.tex#": LONG},
    "old folders": {"old/paper.tex": LONG, "Old versions/paper_2020.tex": LONG, "v1/paper.tex": LONG},
    "answers": {"response.tex": LONG, "Reply_R1.tex": LONG, "pointbypoint.tex": document("Point-by-point response", WORDS * 300)},
    "a letter in the article class": {"a.tex": document("Cover letter", "Dear Editor, " + WORDS * 300)},
    "supplements": {"paper_SI.tex": LONG, "a.tex": document("{\\Large Supplementary Information:} A study", WORDS * 400)},
    "a supplement by its title's second line": {"a.tex": document("\\textbf{Supporting Information}\\\\ A study", WORDS * 400)},
    "templates": {
        "acmart-sample.tex": LONG,
        "neurips_2023.tex": document("Formatting Instructions For NeurIPS 2023", WORDS * 300),
        "elsarticle-template-num.tex": LONG,
    },
    "latexdiff": {"d.tex": LONG.replace("\\section", "%DIF PREAMBLE EXTENSION\n\\DIFadd{x}\\section"), "diffv1v2.tex": LONG},
    "AppleDouble twins": {"._paper.tex": TWIN, "._main.tex": TWIN},
    "AppleDouble twins that were mistaken for text": {"._main.tex": LONG},
    "a talk": {"talk/main.tex": document(cls="beamer", body=WORDS * 300), "p.tex": document(cls="tikzposter", body=WORDS * 300)},
    "a rest that begins a document without a class": {"rest.tex": LONG.replace("\\documentclass[11pt]{article}", "")},
}  # fmt: skip


@pytest.mark.parametrize("name", RIVALS)
def test_the_paper_among_rivals(tmp_path, name):
    assert main_of(tmp_path, {"paper.tex": PAPER, **RIVALS[name]}) == "paper.tex"


def test_a_paper_in_the_templates_own_file(tmp_path):
    files = {"iclr2024_conference.tex": PAPER, "math_commands.tex": "\\newcommand{\\R}{R}", "iclr2024_conference.sty": "x"}
    assert main_of(tmp_path, files) == "iclr2024_conference.tex"


def test_a_class_that_stands_in_an_input(tmp_path):
    root = f"\\input{{preamble}}\\begin{{document}}\\title{{T}}\\section{{A}} {WORDS}\\end{{document}}"
    assert main_of(tmp_path, {"root.tex": root, "preamble.tex": "\\documentclass{article}\\newcommand{\\x}{y}"}) == "root.tex"
    paper = load_paper(tmp_path)
    assert (paper.title, paper.sections[0].title, "x" in paper.macros) == ("T", "A", True)
    (tmp_path / "arxiv.tex").write_text("\\documentclass{article}\\input{root}")  # a class before it all
    assert main_of(tmp_path, {}) == "arxiv.tex"


SOURCES = [{"filename": "notes.tex", "usage": "toplevel"}, {"filename": "main.tex", "usage": "toplevel"}]
HINTS = {
    "lines": ("00README.XXX", "nohypertex\nfig.pdf ignore\nnotes.tex toplevelfile\n"),
    "Windows lines": ("00README.XXX", b"notes.tex toplevelfile\r\n"),
    "Mac lines": ("00README.XXX", b"nohypertex\rnotes.tex toplevelfile\r"),
    "a tab": ("00README.XXX", "notes.tex\ttoplevelfile\n"),
    "dot slash and capitals": ("00README.XXX", "./Notes.tex TopLevelFile\n"),
    "another case of its name": ("00readme.xxx", "notes.tex toplevelfile\n"),
    "JSON": ("00README.json", json.dumps({"process": {"compiler": "pdflatex"}, "sources": SOURCES})),
    "JSON with a mark": ("00README.json", b"\xef\xbb\xbf" + json.dumps({"sources": SOURCES}).encode()),
    "YAML": ("00README.yaml", "process:\n  compiler: pdflatex\nsources:\n  - filename: notes.tex\n    usage: toplevel # the paper\n"),
    "YAML, the other way": (
        "00README.yml", "sources:\n- usage: ignore\n  filename: 'main.tex'\n- usage: toplevel\n  filename: \"notes.tex\"\n",
    ),
    "TOML": ("00README.toml", '[[sources]]\nfilename = "notes.tex"\nusage = "toplevel"\n'),
}  # fmt: skip


@pytest.mark.parametrize("folder", ["", "repo-main/"])
@pytest.mark.parametrize("name", HINTS)
def test_hints_decide(tmp_path, name, folder):
    path, text = HINTS[name]
    assert main_of(tmp_path, {f"{folder}main.tex": PAPER, f"{folder}notes.tex": SHORT, f"{folder}{path}": text}) == f"{folder}notes.tex"


NO_HINTS = {
    "gone": ("00README.json", '{"sources": [{"filename": "gone.tex", "usage": "toplevel"}]}'),
    "another usage": ("00README.json", '{"sources": [{"filename": "notes.tex", "usage": "include"}]}'),
    "no sources": ("00README.json", '{"sources": null}'),
    "strings": ("00README.json", '{"sources": ["notes.tex"]}'),
    "damaged": ("00README.toml", "[[sources"),
    "outside": ("00README.XXX", "../notes.tex toplevelfile\n"),
    "of a folder inside": ("anc/00README.XXX", "../notes.tex toplevelfile\nnotes.tex toplevelfile\n"),
    "a twin": ("._00README.XXX", "notes.tex toplevelfile\n"),
}


@pytest.mark.parametrize("name", NO_HINTS)
def test_what_is_no_hint(tmp_path, name):
    path, text = NO_HINTS[name]
    assert main_of(tmp_path, {"main.tex": PAPER, "notes.tex": SHORT, path: text}) == "main.tex"


def test_ignored_and_a_name_with_a_blank(tmp_path):
    assert main_of(tmp_path, {"main.tex": PAPER, "my notes.tex": SHORT, "00README.XXX": "main.tex ignore\n"}) == "my notes.tex"
    assert main_of(tmp_path, {"00README.XXX": "my notes.tex toplevelfile\n"}) == "my notes.tex"
