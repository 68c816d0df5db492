"""Bytes that users really have."""

import pytest

from papergym.data_pipeline.latex import load_paper

TEXT = "Dès l’été, Müller et Señor Muñoz – naïfs – ont démontré le théorème de Poincaré."
PLAIN = TEXT.replace("’", "'").replace("–", "--")
DECLARE = "\\usepackage[{}]{{inputenc}}\n"
CASES = {
    "utf-8": (TEXT, "utf-8", ""),
    "utf-8 with BOM": (TEXT, "utf-8-sig", ""),
    "utf-16": (TEXT, "utf-16", ""),
    "latin-1 declared": (PLAIN, "latin-1", "latin1"),
    "latin-1 undeclared": (PLAIN, "latin-1", ""),
    "latin-1 declared as utf-8": (PLAIN, "latin-1", "utf8"),
    "latin-1 declared as applemac": (PLAIN, "latin-1", "applemac"),
    "cp1252 declared": (TEXT, "cp1252", "ansinew"),
    "cp1252 undeclared": (TEXT, "cp1252", ""),
    "cp1252 declared as latin-1": (TEXT, "cp1252", "latin1"),
    "mac roman declared": (TEXT, "mac_roman", "applemac"),
    "mac roman undeclared": (TEXT, "mac_roman", ""),
    "mac roman declared as latin-1": (TEXT, "mac_roman", "latin1"),
    "utf-8 declared as latin-1": (TEXT, "utf-8", "latin1"),
    "latin-2 declared": ("Paweł Gęś, Łódź, žluťoučký kůň", "iso8859-2", "latin2"),
    "cyrillic declared": ("Теорема Колмогорова", "koi8-r", "koi8-r"),
}


def paper(tmp_path, data):
    (tmp_path / "a.tex").write_bytes(data)
    return load_paper(tmp_path / "a.tex")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", CASES)
def test_encoding(tmp_path, name, newline):
    text, codec, declared = CASES[name]
    declaration = DECLARE.format(declared) if declared else ""
    document = (
        f"\\documentclass{{article}}\n{declaration}\\begin{{document}}\n\\section{{{text}}}\n{text} % note\nnext\n\\end{{document}}\n"
    )
    section = paper(tmp_path, document.replace("\n", newline).encode(codec)).sections[0]
    assert section.title.replace("–", "--").replace("’", "'") == text.replace("–", "--").replace("’", "'")
    assert section.text == f"{text} next"


def test_the_byte_e9(tmp_path):
    assert paper(tmp_path, b"\\section{A} Caf\xe9").sections[0].text == "Café"


def test_one_bad_line_in_utf_8(tmp_path):
    data = "\\section{A}\nZoë\n".encode() + b"caf\xe9\n" + "naïve – €".encode()
    assert paper(tmp_path, data).sections[0].text == "Zoë\ncafé\nnaïve – €"


def test_declaration_in_the_main_file_holds_for_its_inputs(tmp_path):
    (tmp_path / "part.tex").write_bytes("Теорема".encode("koi8-r"))
    main = "\\documentclass{article}\\usepackage[koi8-r]{inputenc}\\begin{document}\\section{A}\\input{part}\\end{document}"
    assert paper(tmp_path, main.encode()).sections[0].text == "Теорема"


def test_comment_ends_at_a_bare_carriage_return(tmp_path):
    assert paper(tmp_path, b"\\section{A}\rone % note\rtwo\r\rthree").sections[0].text == "one two\n\nthree"
