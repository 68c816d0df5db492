"""Which file is the paper."""

import pytest

from papergym.data_pipeline.latex import load_paper


def document(title="A Theory of Things", body="\\section{A} " + "Some words of a paper. " * 30, cls="article", extra=""):
    return f"\\documentclass[11pt]{{{cls}}}\n{extra}\\title{{{title}}}\n\\begin{{document}}\n\\maketitle\n{body}\n\\end{{document}}\n"


LONG = document(body="\\section{B} " + "Longer than the paper itself. " * 300)
PAPER = document()
RIVALS = {
    "supplement by name": ("ms.tex", {"supplement.tex": LONG}),
    "supplement by title": ("ms.tex", {"ms2.tex": LONG.replace("A Theory", "Supplementary material for: A Theory")}),
    "response": ("paper.tex", {"response_to_reviewers.tex": LONG, "rebuttal2.tex": LONG}),
    "cover letter": ("paper.tex", {"coverletter.tex": document(cls="letter"), "cover-letter-2.tex": LONG}),
    "slides": ("Study.tex", {"Study-Slides.tex": LONG.replace("{article}", "{beamer}")}),
    "standalone figure": (
        "study.tex",
        {"network.tex": document(cls="standalone"), "tex/fig1.tex": LONG.replace("{article}", "{standalone}")},
    ),
    "subfiles": ("study.tex", {"parts/intro.tex": LONG.replace("[11pt]{article}", "[../study]{subfiles}")}),
    "old draft": ("study.tex", {"study_old.tex": LONG, "backup/study.tex": LONG, "study-draft.tex": LONG}),
    "latexdiff": ("study.tex", {"study2.tex": LONG.replace("\\section", "%DIF PREAMBLE\n\\DIFaddbegin\\DIFadd{x}\\section")}),
    "template of the journal": ("study.tex", {"template.tex": LONG, "IEEE-sample.tex": LONG}),
    "AppleDouble twin": ("study.tex", {"._study.tex": b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X\\documentclass"}),
    "macOS folder": ("study.tex", {"__MACOSX/main.tex": LONG}),
    "commented class": ("study.tex", {"main.tex": "% \\documentclass{article}\n\\section{X} y"}),
    "part of the paper": ("study.tex", {"main.tex": "\\section{Main part} text"}),
    "deep": ("src/tex/ms.tex", {"src/tex/figures/plot.tex": document(cls="standalone")}),
    "old LaTeX": ("study.tex", {"macros.tex": "\\newcommand{\\x}{y}"}),
}


@pytest.mark.parametrize("name", RIVALS)
def test_main_among_rivals(tmp_path, name):
    main, rivals = RIVALS[name]
    paper = PAPER.replace("\\documentclass[11pt]{article}", "\\documentstyle[11pt]{article}") if name == "old LaTeX" else PAPER
    for path, content in {main: paper, **rivals}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert load_paper(tmp_path).main_file == main


def test_arxiv_hints_come_first(tmp_path):
    (tmp_path / "main.tex").write_text(LONG)
    (tmp_path / "other.tex").write_text(PAPER)
    assert load_paper(tmp_path).main_file == "main.tex"
    (tmp_path / "00README.XXX").write_text("other.tex toplevelfile\nfig.tex ignore\n")
    assert load_paper(tmp_path).main_file == "other.tex"
    (tmp_path / "00README.json").write_text('{"sources": [{"filename": "main.tex", "usage": "toplevel"}]}')
    assert load_paper(tmp_path).main_file == "main.tex"
    (tmp_path / "00README.json").write_text('{"sources": [{"filename": "main.tex", "usage": "ignore"}]}')
    (tmp_path / "00README.XXX").unlink()
    assert load_paper(tmp_path).main_file == "other.tex"
    (tmp_path / "00README.json").write_text("[not json")
    assert load_paper(tmp_path).main_file == "main.tex"


def test_a_named_file_is_the_main_file(tmp_path):
    (tmp_path / "main.tex").write_text(LONG)
    (tmp_path / "supplement.tex").write_text(PAPER)
    assert load_paper(tmp_path / "supplement.tex").main_file == "supplement.tex"


def test_no_document_class_at_all(tmp_path):
    (tmp_path / "root.tex").write_text("\\section{A} one \\input{big}")
    (tmp_path / "big.tex").write_text("words " * 500)
    paper = load_paper(tmp_path)
    assert paper.main_file == "root.tex"
    assert any("no file has a \\documentclass" in warning for warning in paper.warnings)


def test_equal_rivals_are_warned_of(tmp_path):
    (tmp_path / "one.tex").write_text(PAPER)
    (tmp_path / "two.tex").write_text(PAPER)
    paper = load_paper(tmp_path)
    assert (paper.main_file, paper.warnings[0]) == ("one.tex", "one.tex is taken for the paper, but two.tex looks as likely")
