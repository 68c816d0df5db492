import pytest

from papergym.data_pipeline.collection import check_single_papers, list_papers
from papergym.errors import InputError

DOCUMENT = "\\documentclass{article}\\begin{document}x\\end{document}"


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.tex").write_text(DOCUMENT)
    (tmp_path / "c.tar.gz").write_bytes(b"")
    for name in ("README.md", "LICENSE", ".hidden", "notes.txt"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_every_paper_of_a_folder_or_those_selected(folder):
    assert [path.name for path in list_papers(folder)] == ["a", "b", "c.tar.gz"]
    (folder / "demo.txt").write_text("b\na\n")
    assert [path.name for path in list_papers(folder)] == ["b", "a"]
    (folder / "demo.txt").write_text("b\nz\n")
    with pytest.raises(InputError, match=r"demo\.txt: names 'z'"):
        list_papers(folder)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no papers in it"):
        list_papers(tmp_path)


def test_a_folder_of_papers_is_not_read_as_one(folder):
    with pytest.raises(InputError, match=r"holds several papers \(a, b"):
        check_single_papers((folder,))
    check_single_papers((folder / "a", folder / "c.tar.gz"))
    (folder / "main.tex").write_text(DOCUMENT)
    check_single_papers((folder,))  # a paper with documents in sub-folders


def test_a_selection_that_is_not_utf8_is_refused(folder):
    (folder / "demo.txt").write_bytes("a\nbé\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"demo\.txt: is not UTF-8 text \(byte 3\); save it as UTF-8"):
        list_papers(folder)
