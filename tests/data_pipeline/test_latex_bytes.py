"""Bytes and titles that users really have: Mac Roman and Windows quotes, declarations that are wrong, odd line ends, much text."""

import time

import pytest

from papergym.data_pipeline.latex import load_paper
from papergym.data_pipeline.latex.decoding import decode

TEXTS = [
    "It’s “quoted” – she said: ‘don’t’ — and the authors’ dogs… 1–2, state–space",
    "The “quoted” word, it’s here",
    "El niño de mañana: el señor País está aquí, corazón, también más",
    "Größe über Maß, Äpfel Öl Übung größer für schöne Mädchen",
    "où l’été à Noël, garçon, dès l’œuvre, « cœur »",
    "perché così è già più città, lunedì, può",
    "Poincaré’s “theorem” of São Paulo",
    "naïve",
    "Ångström",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("codec", ["cp1252", "mac_roman", "utf-8"])
@pytest.mark.parametrize("declared", [None, "utf-8", "koi8_r"])
def test_text_is_known_by_its_letters_whatever_is_declared(text, codec, declared):
    assert decode(f"Words before. {text} Words behind.".encode(codec), declared) == f"Words before. {text} Words behind."


@pytest.mark.parametrize(("text", "codec"), [("Теорема Колмогорова о $x$-координатах", "koi8_r"), ("Łódź źle, kůň", "iso8859-2")])
def test_a_true_declaration_is_believed(text, codec):
    assert decode(text.encode(codec), codec) == text


@pytest.mark.parametrize("codec", ["cp1252", "mac_roman"])
def test_a_dash_alone_is_a_dash(codec):
    assert decode("a – b".encode(codec)) == "a – b"


def section(tmp_path, data):
    (tmp_path / "a.tex").write_bytes(data)
    return load_paper(tmp_path / "a.tex").sections[0].text


def test_a_declaration_in_a_comment_is_none(tmp_path):
    text = "\\documentclass{article}\n% \\usepackage[koi8-r]{inputenc}\n\\usepackage[latin2]{inputenc}\n\\begin{document}\\section{S}\nŁódź"
    assert section(tmp_path, text.encode("iso8859-2")) == "Łódź"
    assert section(tmp_path, text.replace("% ", "5\\% ").replace("Łódź", "Теорема").encode("koi8-r")) == "Теорема"


LINES = {
    "CR": (b"\\section{S}\rone % \\section{No}\rtwo\r\rthree\r", "one two\n\nthree"),
    "CR before LF twice over": (b"\\section{S}\r\r\none % note\r\r\ntwo\r\r\n\r\r\nthree", "one two\n\nthree"),
    "all kinds": (b"\\section{S}\r\none\rtwo\n\rthree", "one\ntwo\n\nthree"),
    "an end of file from DOS": (b"\\section{S}\none\n\\end{document}\n\x1a", "one"),
    "filled up with NUL": (b"\\section{S}\none\n\\end{document}\n" + b"\0" * 500, "one"),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(tmp_path, name):
    data, text = LINES[name]
    assert section(tmp_path, data) == text


def test_a_part_with_bare_carriage_returns_in_mac_roman(tmp_path):
    (tmp_path / "p.tex").write_bytes("un café % note\rdeux\r\rtrois".encode("mac_roman"))
    assert section(tmp_path, b"\\section{S}\n\\input{p}\n") == "un café deux\n\ntrois"


TITLES = {
    "texorpdfstring": (r"{The \texorpdfstring{$\alpha$}{alpha}-model}", "", "The alpha-model"),
    "texorpdfstring over two lines": ("{A \\texorpdfstring{$\\beta$}%\n  {beta} model}", "", "A beta model"),
    "texorpdfstring with groups": (r"{On \texorpdfstring{\textbf{H\textsubscript{2}O}}{H2O} in ice}", "", "On H2O in ice"),
    "texorpdfstring for a line end": (r"{Rods\texorpdfstring{\\}{ }in silos}", "", "Rods in silos"),
    "texorpdfstring in a command": (r"{The \bnet{} net}", r"\newcommand{\bnet}{\texorpdfstring{$\beta$}{BETA}}", "The BETA net"),
    "commands with arguments": (r"{Fast \up{FOO}}", r"\newcommand{\up}[1]{\textsc{#1}}", "Fast FOO"),
    "optional argument": (r"{Fast \op{x}}", r"\newcommand{\op}[2][d]{(#2)}", "Fast (x)"),
    "xspace": (r"{\sys, a net}", r"\newcommand{\sys}{\textsc{SysNet}\xspace}", "SysNet, a net"),
    "ensuremath": (r"{The \lcdm{} model}", r"\newcommand{\lcdm}{\ensuremath{\Lambda}-CDM}", "The Λ-CDM model"),
    "let": (r"{The \bar\ net}", r"\def\foo{Foo}\let\bar\foo", "The Foo net"),
    "defined anew": (r"{The \foo}", r"\newcommand{\foo}{old}\renewcommand{\foo}{new}", "The new"),
    "by xparse": (r"{\foo{Foo}}", r"\NewDocumentCommand{\foo}{m}{#1!}", "Foo!"),
    "wholly a command": (r"{\mytitle}", r"\newcommand{\mytitle}{A Title\thanks{NSF \url{http://x.y/a_b%20c}}}", "A Title"),
    "a picture": (r"{\raisebox{-1pt}{\includegraphics[width=1em]{a}} Net}", "", "Net"),
}


@pytest.mark.parametrize("name", TITLES)
def test_titles(tmp_path, name):
    title, preamble, plain = TITLES[name]
    (tmp_path / "main.tex").write_text(
        f"\\documentclass{{article}}{preamble}\n\\title{title}\n\\begin{{document}}\\maketitle\\section{{S}} x\\end{{document}}"
    )
    assert load_paper(tmp_path).title == plain


def test_three_megabytes_in_seconds(tmp_path):
    """Of everything together; the process's own time, since the machine may be busy."""
    paragraph = (
        "The \\textbf{rods} of \\kind{n} are shaken \\cite{a,b} for $t=\\frac{1}{2}$ hours % not \\iffalse\nand 5\\% of them clog; "
        "see \\url{http://x.y/a%20b}. \\iflong Long.\\else Short.\\fi \\iftoggle{t}{One.}{Two.} \\only{Seen.} \\verb|\\section{No}|\n\n"
    )
    part = "\\section{A \\texorpdfstring{$\\alpha$}{alpha} \\kind{n}}\n" + paragraph * 120
    count = 3_000_000 // len(part) + 1
    for number in range(count):
        (tmp_path / f"part{number}.tex").write_text(part)
    inputs = "".join(f"\\input{{part{number}}}\n" for number in range(count))
    preamble = "\\newif\\iflong\\newtoggle{t}\\newcommand{\\kind}[1]{kind~#1}\\newcommand{\\only}[1]{\\iflong #1\\fi}"
    (tmp_path / "main.tex").write_text(f"\\documentclass{{article}}{preamble}\\begin{{document}}{inputs}\\end{{document}}")
    start = time.process_time()
    paper = load_paper(tmp_path)
    assert time.process_time() - start < 10
    assert len(paper.sections) == count and sum(len(s.text) for s in paper.sections) > 2_000_000
    text = paper.sections[-1].text
    assert paper.sections[-1].title == "A alpha kind n" and text.count("Short. Two.") == 120 and "Long" not in text and "Seen" not in text
