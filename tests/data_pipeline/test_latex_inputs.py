"""Documents of many files."""

import pytest

from papergym.data_pipeline.latex import load_paper


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def read(folder, command, files, preamble=""):
    """The body's text on one line, and the warnings, of a main file that holds `command` between two words."""
    write(folder, files)
    (folder / "main.tex").write_text(
        f"\\documentclass{{article}}{preamble}\\begin{{document}}\\section{{S}}\nA\n{command}\nZ\\end{{document}}"
    )
    paper = load_paper(folder)
    assert paper.main_file == "main.tex"
    return " ".join(paper.sections[0].text.split()), [warning for warning in paper.warnings if "abstract" not in warning]


FOUND = {
    "braces": (r"\input{part}", "part.tex"),
    "extension": (r"\input{part.tex}", "part.tex"),
    "no braces": (r"\input part", "part.tex"),
    "no braces, extension": (r"\input part.tex", "part.tex"),
    "quotes": (r'\input "my part"', "my part.tex"),
    "quotes in braces": (r'\input{"my part"}', "my part.tex"),
    "blanks": (r"\input{ part }", "part.tex"),
    "folder": (r"\input{sections/part}", "sections/part.tex"),
    "dot slash": (r"\input{./sections/part.tex}", "sections/part.tex"),
    "up and down": (r"\input{sections/../part}", "part.tex"),
    "other case": (r"\input{Sections/Part}", "sections/part.tex"),
    "include": (r"\include{part}", "part.tex"),
    "text file": (r"\input{part.txt}", "part.txt"),
    "dotted name": (r"\input{v1.2}", "v1.2.tex"),
    "no extension": (r"\input{part}", "part"),
    "bbl": (r"\input{main.bbl}", "main.bbl"),
    "unknown macro": (r"\input{\root/sections/part}", "deep/sections/part.tex"),
    "hidden file": (r"\input{./.setup.ltx}", ".setup.ltx"),
    "import": (r"\import{sections/}{part}", "sections/part.tex"),
    "subimport": (r"\subimport{sections}{part.tex}", "sections/part.tex"),
    "input if it exists": (r"\InputIfFileExists{part}{}{none}", "part.tex"),
    "elsewhere in the paper": (r"\input{tex/part}", "src/tex/part.tex"),
    "at the end of a line": ("\\input part\n", "part.tex"),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(tmp_path, name):
    command, path = FOUND[name]
    assert read(tmp_path, command, {path: "found"}) == ("A found Z", [])


def test_macro_path(tmp_path):
    preamble = r"\newcommand{\latexroot}{.}\providecommand{\parts}{\latexroot/sections}"
    assert read(tmp_path, r"\input{\parts/a.tex}", {"sections/a.tex": "right", "b/sections/a.tex": "wrong"}, preamble) == ("A right Z", [])


def test_imported_file_inputs_from_its_own_folder(tmp_path):
    files = {"sec/part.tex": r"x \input{table} y", "sec/table.tex": "inner", "table.tex": "outer"}
    assert read(tmp_path, r"\import{sec/}{part}", files)[0] == "A x inner y Z"
    assert read(tmp_path, r"\input{sec/part}", files)[0] == "A x outer y Z"


def test_spliced_inside_a_sentence(tmp_path):
    assert read(tmp_path, "of \\textbf{\\input{n.tex}}different kinds", {"n.tex": "164\n"})[0] == r"A of \textbf{164 }different kinds Z"


def test_primitive_input_ends_at_a_blank(tmp_path):
    write(
        tmp_path,
        {
            "defs.tex": "\\def\\x{1}\n",
            "main.tex": "\\documentclass{article}\\begin{document}\\input defs.tex \\section{A} text\\end{document}",
        },
    )
    assert [(section.title, section.text) for section in load_paper(tmp_path).sections] == [("A", "text")]


def test_included_twice_is_kept_twice(tmp_path):
    assert read(tmp_path, r"\input{a} \input{a}", {"a.tex": "x"}) == ("A x x Z", [])


def test_circle_is_warned_of(tmp_path):
    text, warnings = read(tmp_path, r"\input{a}", {"a.tex": r"a \input{b}", "b.tex": r"b \input{a} c"})
    assert text == "A a b c Z"
    assert warnings == [r"b.tex: \input{a} leads back to a.tex, which is being read; skipped"]


def test_main_that_inputs_itself(tmp_path):
    assert "leads back" in read(tmp_path, r"\input{main}", {})[1][0]


def test_missing_is_warned_of(tmp_path):
    assert read(tmp_path, r"\input{nowhere}", {}) == ("A Z", [r"main.tex: \input{nowhere} not found"])


def test_commented_input_is_not_read(tmp_path):
    assert read(tmp_path, "% \\input{old}\n\\%\\input{a}", {"old.tex": "old", "a.tex": "x"}) == (r"A \%x Z", [])


def test_input_in_verbatim_is_not_read(tmp_path):
    assert read(tmp_path, r"\verb|\input{a}|", {"a.tex": "x"}) == (r"A \verb|\input{a}| Z", [])


def test_subfile_loses_its_preamble_and_end(tmp_path):
    part = "\\documentclass[../main]{subfiles}\n\\usepackage{x}\n\\begin{document}\nbody % \\end{document}\nmore\n\\end{document}\njunk"
    assert read(tmp_path, r"\subfile{sec/part}", {"sec/part.tex": part}) == ("A body more Z", [])


def test_standalone_figure_loses_its_preamble(tmp_path):
    figure = "\\documentclass{standalone}\\usepackage{tikz}\\begin{document}\\begin{tikzpicture}\\end{tikzpicture}\\end{document}"
    assert read(tmp_path, r"\input{fig/f.tex}", {"fig/f.tex": figure})[0] == r"A \begin{tikzpicture}\end{tikzpicture} Z"


def test_subfile_inputs_beside_itself(tmp_path):
    part = "\\documentclass[../main]{subfiles}\\begin{document}\\subfile{../fig/f}\\end{document}"
    figure = "\\documentclass[../main]{subfiles}\\begin{document}figure\\end{document}"
    assert read(tmp_path, r"\subfile{sec/part}", {"sec/part.tex": part, "fig/f.tex": figure}) == ("A figure Z", [])


def test_file_written_by_the_document(tmp_path):
    text, warnings = read(tmp_path, "\\begin{filecontents}{gen.tex}\nmade % x\n\\end{filecontents}\n\\input{gen}", {})
    assert (text, warnings) == ("A made Z", [])


def test_if_file_exists(tmp_path):
    assert read(tmp_path, r"\IfFileExists{a.tex}{yes \input{a}}{no}", {"a.tex": "x"})[0] == "A yes x Z"
    assert read(tmp_path, r"\IfFileExists{b.tex}{yes}{no}", {})[0] == "A no Z"


def test_binary_input_is_skipped(tmp_path):
    (tmp_path / "a.tex").write_bytes(b"\x00\x05\x16\x07\x00\x02")
    assert read(tmp_path, r"\input{a}", {})[1] == [r"main.tex: a.tex is no text, \input{a} skipped"]


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../outside", "../../outside", "sections/../../outside", "C:/outside", "~/outside", "|ls", r"..\outside"]
)
def test_outside_is_never_read(tmp_path, path):
    (tmp_path / "outside.tex").write_text("SECRET")
    (tmp_path / "paper").mkdir()
    text, warnings = read(tmp_path / "paper", f"\\input{{{path}}}", {"ok.tex": "x"})
    assert "SECRET" not in text and "root:" not in text
    assert len(warnings) == 1 and path.split("\\")[0] in warnings[0]


def test_outside_through_a_macro(tmp_path):
    (tmp_path / "outside.tex").write_text("SECRET")
    (tmp_path / "paper").mkdir()
    text, warnings = read(tmp_path / "paper", r"\input{\up/outside}", {}, r"\newcommand{\up}{..}")
    assert text == "A Z" and "leads out of" in warnings[0]


def test_links_are_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.tex").write_text("SECRET")
    paper = tmp_path / "paper"
    paper.mkdir()
    (paper / "a.tex").symlink_to(tmp_path / "outside" / "a.tex")
    (paper / "folder").symlink_to(tmp_path / "outside")
    text, warnings = read(paper, r"\input{a}\input{folder/a}", {})
    assert text == "A Z"
    assert r"main.tex: \input{a}: symbolic link, not followed" in warnings
    assert r"main.tex: \input{folder/a}: symbolic link, not followed" in warnings


def test_endless_expansion_is_refused(tmp_path):
    doubling = [f"\\newcommand{{\\x{chr(97 + i)}}}{{\\x{chr(98 + i)}\\x{chr(98 + i)}}}" for i in reversed(range(24))]
    with pytest.raises(ValueError, match="expand to more than"):
        read(tmp_path, r"\xa", {}, r"\newcommand{\xy}{\section{S}}" + "".join(doubling))


def test_files_that_multiply_are_refused(tmp_path):
    files = {f"f{i}.tex": f"\\input{{f{i + 1}}}\\input{{f{i + 1}}}\n" for i in range(30)} | {"f30.tex": "x"}
    with pytest.raises(ValueError, match="expand to more than"):
        read(tmp_path, r"\input{f0}", files)
