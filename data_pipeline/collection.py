"""A folder that holds one paper an entry."""

from pathlib import Path

from papergym.errors import InputError

SELECTION = "demo.txt"  # names, one a line, of the entries to use; without it all are used
NOT_PAPERS = (".md", ".txt", ".toml", ".json", ".jsonl", ".pdf", ".html", ".csv", ".py")


def list_papers(folder: str | Path, *, selected: bool = True) -> list[Path]:
    """The papers of a folder, by name: every sub-folder and every file that is not plainly something else, or those that demo.txt names.

    selected: whether demo.txt is heeded. Raises InputError when there are none or demo.txt names what is not there, FileNotFoundError,
    NotADirectoryError.
    """
    folder = Path(folder)
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and not plainly_no_paper(entry))
    selection = folder / SELECTION
    if selected and selection.exists():
        try:
            names = selection.read_text(encoding="utf-8").split()
        except UnicodeDecodeError as error:
            raise InputError(f"{selection}: is not UTF-8 text (byte {error.start}); save it as UTF-8, one name a line") from error
        if missing := [name for name in names if not (folder / name).exists()]:
            raise InputError(f"{selection}: names {missing[0]!r}, which is not in {folder}")
        entries = [folder / name for name in names]
    if not entries:
        raise InputError(f"{folder}: no papers in it; each is a folder, a .tex file or an archive of LaTeX sources")
    return entries


def plainly_no_paper(entry: Path) -> bool:
    """Whether the name of an entry says that it is something else."""
    if entry.is_dir():
        return False
    return entry.suffix.lower() in NOT_PAPERS or entry.name.upper().startswith(("LICENSE", "README", "MAKEFILE"))


def check_single_papers(papers: tuple[Path, ...]) -> None:
    """Refuses a folder that plainly holds several papers, of which load_paper would have to choose one. Raises InputError naming it."""
    for paper in papers:
        if not paper.is_dir() or any(paper.glob("*.tex")):
            continue
        documents = [
            child for child in sorted(paper.iterdir()) if child.is_dir() and any(_is_document(file) for file in child.glob("*.tex"))
        ]
        if len(documents) > 1:
            raise InputError(f"{paper}: holds several papers ({documents[0].name}, {documents[1].name}, …); name each, as in {paper}/*")


def _is_document(file: Path) -> bool:
    return b"\\documentclass" in file.read_bytes()
