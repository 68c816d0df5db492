"""Folders, single files and archives; and what a hostile one must not do."""

import gzip
import io
import os
import tarfile
import time
import zipfile

import pytest

from papergym.data_pipeline.latex import load_paper, sources
from papergym.errors import InputError

TEX = b"\\documentclass{article}\\title{T}\\begin{document}\\section{A} one \\input{part}\\end{document}"
FILES = {"ms.tex": TEX, "part.tex": b"two", "fig.png": b"\x89PNG\0\0"}


def tar(files, mode="w", prefix=""):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


KINDS = {
    "paper.tar": tar(FILES),
    "paper.tar.gz": tar(FILES, "w:gz"),
    "paper.tgz": tar(FILES, "w:gz"),
    "paper.gz": tar(FILES, "w:gz"),
    "2401.00001": tar(FILES, "w:gz"),
    "paper.zip": zipped(FILES),
    "misnamed.tex": zipped(FILES),
    "nested.zip": zipped({f"repo-main/{name}": content for name, content in FILES.items()}),
    "dotted.tar": tar(FILES, prefix="./"),
}


@pytest.mark.parametrize("name", KINDS)
def test_archive(tmp_path, name):
    (tmp_path / name).write_bytes(KINDS[name])
    paper = load_paper(tmp_path / name)
    assert paper.main_file == ("repo-main/ms.tex" if name == "nested.zip" else "ms.tex")
    assert (paper.title, paper.sections[0].text.split()) == ("T", ["one", "two"])
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(("name", "main"), [("2401.00001", "2401.00001.tex"), ("paper.gz", "paper.tex"), ("paper.tex.gz", "paper.tex")])
def test_single_gzipped_file(tmp_path, name, main):
    (tmp_path / name).write_bytes(gzip.compress(TEX))
    paper = load_paper(tmp_path / name)
    assert (paper.main_file, paper.title) == (main, "T")
    assert any("not found" in warning for warning in paper.warnings)


def test_folder_and_file_agree(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert load_paper(tmp_path) == load_paper(tmp_path / "ms.tex") == load_paper(str(tmp_path))


def test_archive_and_folder_agree(tmp_path):
    (tmp_path / "folder").mkdir()
    for name, content in FILES.items():
        (tmp_path / "folder" / name).write_bytes(content)
    (tmp_path / "paper.zip").write_bytes(zipped(FILES))
    assert load_paper(tmp_path / "folder") == load_paper(tmp_path / "paper.zip")


@pytest.mark.parametrize("evil", ["/etc/x.tex", "../x.tex", "a/../../x.tex", "C:\\x.tex", "C:x.tex", "..\\x.tex", "\\x.tex"])
@pytest.mark.parametrize("pack", [tar, zipped])
def test_unsafe_names_are_skipped(tmp_path, evil, pack):
    evil_main = TEX.replace(b"{T}", b"{EVIL}") + b" " * 10_000
    (tmp_path / "p").write_bytes(pack({evil: evil_main, **FILES}))
    paper = load_paper(tmp_path / "p")
    assert (paper.title, paper.main_file) == ("T", "ms.tex")
    assert any("outside the paper" in warning for warning in paper.warnings)
    assert os.listdir(tmp_path) == ["p"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_skipped(tmp_path, kind):
    buffer = io.BytesIO(tar({"ms.tex": TEX}))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        member = tarfile.TarInfo("part.tex")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    (tmp_path / "p.tar").write_bytes(buffer.getvalue())
    paper = load_paper(tmp_path / "p.tar")
    assert "root:" not in paper.sections[0].text
    assert "part.tex: a link or device in the archive, skipped" in paper.warnings


def test_links_in_a_zip_are_skipped(tmp_path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("ms.tex", TEX)
        member = zipfile.ZipInfo("part.tex")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    paper = load_paper(tmp_path / "p.zip")
    assert paper.sections[0].text == "one"
    assert "part.tex: a link in the archive, skipped" in paper.warnings


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(sources, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(sources, "MAX_TEXT_BYTES", 1 << 19)


ZEROS = bytes(3 << 20)


@pytest.mark.parametrize(
    "bomb",
    [
        gzip.compress(ZEROS),
        tar({"a.bin": ZEROS}, "w:gz"),
        zipped({"a.tex": ZEROS}),
        zipped({f"{i}.tex": ZEROS[: 1 << 18] for i in range(9)}),
    ],
)
def test_bombs_are_refused(tmp_path, bomb, small_limits):
    (tmp_path / "bomb").write_bytes(bomb)
    with pytest.raises(InputError, match=r"unpacks to more than|no LaTeX text.*larger than"):
        load_paper(tmp_path / "bomb")


def test_a_real_bomb_ends_quickly(tmp_path):
    with gzip.open(tmp_path / "bomb.gz", "wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(bytes(1 << 20))
    start = time.monotonic()
    with pytest.raises(InputError, match="unpacks to more than 256 MB"):
        load_paper(tmp_path / "bomb.gz")
    assert time.monotonic() - start < 10


def test_a_zip_that_lies_about_its_sizes(tmp_path, small_limits):
    data = bytearray(zipped({"ms.tex": TEX, "part.tex": ZEROS}))
    size = (3 << 20).to_bytes(4, "little")
    (tmp_path / "p.zip").write_bytes(bytes(data).replace(size, (9).to_bytes(4, "little")))
    with pytest.raises(InputError):
        load_paper(tmp_path / "p.zip")


@pytest.mark.parametrize("name", ["huge.tex", "huge.gz", "huge.zip"])
def test_files_of_hundreds_of_megabytes_are_refused(tmp_path, name):
    head = {"huge.tex": b"\\documentclass", "huge.gz": b"\x1f\x8b", "huge.zip": b"PK\x03\x04"}[name]
    with open(tmp_path / name, "wb") as file:
        file.write(head)
        file.truncate(300 << 20)
    with pytest.raises(InputError, match="300 MB is more than"):
        load_paper(tmp_path / name)


def test_large_file_in_a_folder_is_skipped(tmp_path):
    (tmp_path / "ms.tex").write_bytes(TEX)
    with open(tmp_path / "part.tex", "wb") as file:
        file.truncate(300 << 20)
    paper = load_paper(tmp_path)
    assert "part.tex: larger than 16 MB, not read" in paper.warnings


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_FILES", 3)
    for pack in (tar, zipped):
        (tmp_path / "p").write_bytes(pack({f"{index}.tex": b"x" for index in range(5)}))
        with pytest.raises(InputError, match="more than 3 files"):
            load_paper(tmp_path / "p")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.pdf", b"%PDF-1.5 x", "a PDF"),
        ("a.gz", gzip.compress(b"%PDF-1.5 x"), "a PDF"),
        ("a.ps", b"%!PS-Adobe", "PostScript"),
        ("a.html", b"<!DOCTYPE html>", "an HTML page"),
        ("a.tex", b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        ("a.gz", gzip.compress(b"\0\1\2"), "binary"),
        ("a.gz", gzip.compress(TEX)[:-20], "damaged"),
        ("a.gz", b"\x1f\x8bnothing", "damaged"),
        ("a.tar.gz", tar({"a.tex": os.urandom(100_000)}, "w:gz")[:50_000], "damaged"),
        ("a.zip", zipped(FILES)[:-30], "damaged"),
        ("a.zip", zipped({"fig.png": b"x"}), "no LaTeX text"),
        ("a.zip", zipped({"a.tex": b""}), "no LaTeX text"),
        ("a.tar", tar({"readme.md": b"hello"}), "no LaTeX text"),
    ],
)
def test_what_is_no_paper(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=reason) as error:
        load_paper(tmp_path / name)
    assert str(tmp_path / name) in str(error.value) and "\n" not in str(error.value)


def test_empty_folder_missing_path_and_pipe(tmp_path):
    with pytest.raises(InputError, match="no LaTeX text"):
        load_paper(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_paper(tmp_path / "nowhere.tex")
    os.mkfifo(tmp_path / "pipe.tex")
    with pytest.raises(InputError, match="not a regular file"):
        load_paper(tmp_path / "pipe.tex")
    (tmp_path / "ms.tex").write_bytes(TEX)
    assert load_paper(tmp_path).main_file == "ms.tex"


def test_a_link_that_the_user_names_is_read(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "ms.tex").write_bytes(TEX)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link.tex").symlink_to(tmp_path / "real" / "ms.tex")
    assert load_paper(tmp_path / "here" / "link.tex").title == "T"
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    assert load_paper(tmp_path / "folder").main_file == "ms.tex"
