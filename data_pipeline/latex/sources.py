"""The files of a paper as a mapping from relative path to bytes. Nothing is unpacked to disk and nothing outside the paper is read.

A folder is read file by file when a file is asked for; an archive is streamed once and its text members are kept in memory.
"""

import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from gzip import GzipFile
from pathlib import Path
from typing import IO

from papergym.data_pipeline.latex.names import names
from papergym.errors import InputError

MAX_TEXT_BYTES = 16 << 20  # one LaTeX file; the longest theses are below 5 MB
MAX_ARCHIVE_BYTES = 200 << 20  # the archive as it lies on disk
MAX_UNPACKED_BYTES = 256 << 20  # everything that comes out of it, figures included
MAX_FILES = 20_000
MAX_FOLDER_DEPTH = 12

BINARY_SUFFIXES = names(
    ".pdf .png .jpg .jpeg .gif .tif .tiff .bmp .eps .ps .svg .webp .mp4 .mov .avi .zip .gz .tgz .tar .xz .bz2 .7z .rar .npy"
    " .npz .h5 .hdf5 .pkl .mat .fits .parquet .xlsx .docx .pptx .ttf .otf .pfb .so .o .dll .exe .pyc .ipynb .csv .tsv .dat"
    " .synctex"
)
SKIPPED_FOLDERS = frozenset((".git", ".hg", ".svn", "__MACOSX", "node_modules", ".venv", "__pycache__"))
OTHER_FORMATS = {
    b"%PDF": "a PDF",
    b"%!PS": "PostScript",
    b"\xd0\xcf\x11\xe0": "a Word document",
    b"<!DO": "an HTML page",
    b"<htm": "an HTML page",
}


@dataclass
class Sources:
    """`files` maps a POSIX path inside the paper to its bytes; `main` is set when the input itself names one file.

    `skipped` maps paths that were left out of `files` to the reason, for whoever asks for one of them.
    """

    files: Mapping[str, bytes]
    main: str | None = None
    warnings: list[str] = field(default_factory=list)
    skipped: Mapping[str, str] = field(default_factory=dict)


class Folder(Mapping[str, bytes]):
    """The regular files below a folder, read on demand; symbolic links are never followed."""

    def __init__(self, root: Path):
        self._root = root
        self.skipped: dict[str, str] = {}
        self._names = dict.fromkeys(sorted(_walk(root, self.skipped)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        descriptor = os.open(self._root / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_TEXT_BYTES + 1)[:MAX_TEXT_BYTES]


def read_sources(path: str | Path) -> Sources:
    """Reads a folder, a LaTeX file, a gzipped one, or a .tar, .tar.gz or .zip of them; the kind is taken from the content, not the name.

    Raises InputError when the input is no LaTeX source, damaged or too large, and OSError when it can't be read.
    """
    path = Path(path)
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        folder = Folder(path)
        return Sources(folder, None, [f"{name}: {reason}" for name, reason in folder.skipped.items()], folder.skipped)
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file or folder; give a folder, a .tex file or an archive of LaTeX")
    with open(path, "rb") as file:
        head = file.read(512)
        file.seek(0)
        if head.startswith(b"\x1f\x8b"):
            _refuse_large(path, status.st_size, MAX_ARCHIVE_BYTES)
            return _read_gzip(path, file)
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            _refuse_large(path, status.st_size, MAX_ARCHIVE_BYTES)
            return _read_zip(path, file)
        if _is_tar(head):
            _refuse_large(path, status.st_size, MAX_UNPACKED_BYTES)
            return _read_tar(path, file)
    _refuse_other(path, head)
    _refuse_large(path, status.st_size, MAX_TEXT_BYTES)
    folder = Folder(path.parent)
    # The file itself may be a symbolic link that the user chose; its text is then read through the link.
    return Sources(_WithFile(folder, path.name, path.read_bytes()), path.name, skipped=folder.skipped)


class _WithFile(Mapping[str, bytes]):
    """A folder plus the one file that was named by the user."""

    def __init__(self, folder: Folder, name: str, content: bytes):
        self._folder, self._name, self._content = folder, name, content

    def __iter__(self) -> Iterator[str]:
        yield self._name
        yield from (name for name in self._folder if name != self._name)

    def __len__(self) -> int:
        return len(self._folder) + (self._name not in self._folder)

    def __contains__(self, name: object) -> bool:
        return name == self._name or name in self._folder

    def __getitem__(self, name: str) -> bytes:
        return self._content if name == self._name else self._folder[name]


def _walk(root: Path, skipped: dict[str, str]) -> Iterator[str]:
    """Relative paths of the regular files below a folder, breadth first, so that a limit cuts the deepest ones.

    Links, large files and unreadable folders go to `skipped`, each with its reason.
    """
    level, seen = [""], 0
    for _ in range(MAX_FOLDER_DEPTH):
        deeper = []
        for folder in level:
            try:
                entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
            except OSError as error:
                if not folder:
                    raise
                skipped[folder] = f"not read ({error.strerror})"
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                seen += 1
                if seen > MAX_FILES:
                    skipped[folder or "."] = f"more than {MAX_FILES} files; those deeper in the folder are not considered"
                    return
                if entry.is_symlink():
                    if Path(name).suffix.lower() not in BINARY_SUFFIXES:
                        skipped[name] = "symbolic link, not followed"
                elif entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED_FOLDERS:
                        deeper.append(name)
                elif entry.is_file(follow_symlinks=False) and Path(name).suffix.lower() not in BINARY_SUFFIXES:
                    if entry.stat(follow_symlinks=False).st_size > MAX_TEXT_BYTES:
                        skipped[name] = f"larger than {MAX_TEXT_BYTES >> 20} MB, not read"
                        continue
                    yield name
        level = deeper


class _Limited:
    """A stream that refuses to give more than `limit` bytes, so that a decompression bomb ends early."""

    def __init__(self, stream: IO[bytes] | GzipFile, path: Path, limit: int):
        self._stream, self._path, self._left = stream, path, limit

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(chunk)
        if self._left < 0:
            raise InputError(f"{self._path}: unpacks to more than {MAX_UNPACKED_BYTES >> 20} MB; remove large data files and pack it again")
        return chunk


def _read_gzip(path: Path, file: IO[bytes]) -> Sources:
    try:
        with GzipFile(fileobj=file) as unpacked:
            head = unpacked.read(512)
            unpacked.seek(0)
            if _is_tar(head):
                return _read_tar(path, unpacked)
            _refuse_other(path, head)
            content = _Limited(unpacked, path, MAX_UNPACKED_BYTES).read()
    except (EOFError, zlib.error, OSError) as error:
        raise InputError(f"{path}: the gzip data is damaged ({error})") from error
    _refuse_large(path, len(content), MAX_TEXT_BYTES)
    name = path.stem if path.suffix.lower() == ".gz" else path.name
    name = name if name.lower().endswith(".tex") else f"{name}.tex"
    return Sources({name: content}, name)


def _read_tar(path: Path, file: IO[bytes] | GzipFile) -> Sources:
    sources = Sources(files := {})
    try:
        with tarfile.open(fileobj=_Limited(file, path, MAX_UNPACKED_BYTES), mode="r|") as archive:  # type: ignore[call-overload]
            for count, member in enumerate(archive, 1):
                _refuse_many(path, count)
                if member.isdir():
                    continue
                if not member.isreg():
                    sources.warnings.append(f"{member.name}: a link or device in the archive, skipped")
                    continue
                name = _safe_name(member.name, member.size, sources.warnings)
                stream = archive.extractfile(member) if name else None
                if name and stream:
                    files[name] = stream.read()
    except (tarfile.TarError, EOFError, zlib.error, UnicodeError) as error:
        raise InputError(f"{path}: the tar archive is damaged ({error})") from error
    return sources


def _read_zip(path: Path, file: IO[bytes]) -> Sources:
    sources = Sources(files := {})
    left = MAX_UNPACKED_BYTES
    try:
        with zipfile.ZipFile(file) as archive:
            _refuse_many(path, len(archive.infolist()))
            for member in archive.infolist():
                if member.is_dir():
                    continue
                if stat.S_ISLNK(member.external_attr >> 16):
                    sources.warnings.append(f"{member.filename}: a link in the archive, skipped")
                    continue
                if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    sources.warnings.append(f"{member.filename}: encrypted or in an unusual compression, skipped")
                    continue
                name = _safe_name(member.filename, member.file_size, sources.warnings)
                if name:
                    with archive.open(member) as stream:
                        files[name] = _Limited(stream, path, left).read()
                    left -= len(files[name])
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, UnicodeError, RuntimeError) as error:
        raise InputError(f"{path}: the zip archive is damaged ({error})") from error
    return sources


def _safe_name(name: str, size: int, warnings: list[str]) -> str | None:
    """The member's path inside the paper; None for what is no text or would lie outside."""
    parts = name.replace("\\", "/").split("/")
    if not parts[0] or re.match(r"[A-Za-z]:", name) or ".." in parts or "\0" in name:
        warnings.append(f"{name!a}: a path outside the paper, skipped")
        return None
    parts = [part for part in parts if part not in ("", ".")]
    if not parts or Path(parts[-1]).suffix.lower() in BINARY_SUFFIXES or not SKIPPED_FOLDERS.isdisjoint(parts):
        return None
    if size > MAX_TEXT_BYTES:
        warnings.append(f"{name}: larger than {MAX_TEXT_BYTES >> 20} MB, skipped")
        return None
    return "/".join(parts)


def _is_tar(head: bytes) -> bool:
    """A tar header carries a checksum of itself, which no text has by chance."""
    if len(head) < 512:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _refuse_large(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise InputError(f"{path}: {size >> 20} MB is more than the {limit >> 20} MB that a paper's source may have")


def _refuse_many(path: Path, count: int) -> None:
    if count > MAX_FILES:
        raise InputError(f"{path}: more than {MAX_FILES} files in the archive; give the paper's own source only")


def _refuse_other(path: Path, head: bytes) -> None:
    for magic, kind in OTHER_FORMATS.items():
        if head[:4].lower() == magic.lower():
            raise InputError(f"{path}: this is {kind}, not LaTeX; give the paper's LaTeX source")
