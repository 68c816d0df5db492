"""The sample papers: marked as invented, of the promised sizes and splits, all different, and all readable by the loader."""

import re
import tomllib
from collections import Counter
from datetime import date
from itertools import combinations
from pathlib import Path

import pytest

from papergym.data_pipeline.latex import Paper, load_paper

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
FOLDERS = sorted(path.parent for path in PAPERS.glob("*/paper.toml"))
NAMES = [folder.name for folder in FOLDERS]
DISPLAYED = re.compile(
    r"\\begin\{(equation|align|lstlisting|tabular|thebibliography)\*?\}.*?\\end\{\1\*?\}|\\\[.*?\\\]|\$[^$]*\$", re.DOTALL
)
COMMAND = re.compile(r"\\(?:begin|end|label|ref|eqref|cite\w*)\*?(?:\[[^\]]*\])?\{[^}]*\}|\\[A-Za-z]+\*?|\\.")


def metadata(folder: Path) -> dict:
    return tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def papers() -> dict[str, Paper]:
    return {folder.name: load_paper(folder) for folder in FOLDERS}


def words(latex: str) -> list[str]:
    """The words of the prose, in lower case: without equations, listings, tables and commands."""
    return re.findall(r"[a-z0-9][\w'-]*", COMMAND.sub(" ", DISPLAYED.sub(" ", latex)).lower())


def body(paper: Paper) -> str:
    return "\n".join(section.text for section in paper.sections)


def test_counts_of_domains_splits_and_files():
    records = [metadata(folder) for folder in FOLDERS]
    assert Counter(record["domain"] for record in records) == {"cs": 18, "physics": 9, "econ": 9}
    assert Counter(record["split"] for record in records) == {"train": 24, "heldout": 12}
    assert Counter(record["domain"] for record in records if record["split"] == "heldout") == {"cs": 6, "physics": 3, "econ": 3}
    several_files = [folder for folder in FOLDERS if len(list(folder.rglob("*.tex"))) > 1]
    assert len(several_files) * 3 >= len(FOLDERS)


def test_demo_list_names_twelve_folders_of_both_splits():
    listed = (PAPERS / "demo.txt").read_text(encoding="utf-8").split()
    assert len(listed) == len(set(listed)) == 12
    assert set(listed) <= set(NAMES)
    assert Counter(metadata(PAPERS / name)["split"] for name in listed) == {"train": 8, "heldout": 4}


def test_readme_lists_each_paper_with_its_domain_and_split():
    rows = re.findall(r"^\| ([\w-]+) \| (\w+) \| (train|heldout) \|", (PAPERS / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == [(f.name, metadata(f)["domain"], metadata(f)["split"]) for f in FOLDERS]


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_marked_as_invented_and_free(folder):
    record = metadata(folder)
    assert set(record) == {"title", "domain", "date", "split", "licence", "invented"}
    assert record["licence"] == "CC0-1.0" and record["invented"] is True
    assert date.fromisoformat(record["date"]).year >= 2015
    for source in folder.rglob("*.tex"):
        first_line = source.read_text(encoding="utf-8").splitlines()[0].lower()
        assert first_line.startswith("%") and "invented sample paper" in first_line and "cc0" in first_line, source


@pytest.mark.parametrize("name", NAMES)
def test_loads_whole_and_without_warnings(papers, name):
    paper = papers[name]
    has_headings = any(section.title for section in paper.sections)
    assert all("no section headings" in warning and not has_headings for warning in paper.warnings)  # the letter's one note
    assert words(paper.title) == words(metadata(PAPERS / name)["title"])
    assert 25 <= len(words(paper.abstract)) <= 120
    assert 400 <= len(words(body(paper))) <= 900
    assert not re.search(r"\\(input|include|subfile)\b", body(paper))
    for source in (PAPERS / name).rglob("*.tex"):  # the longest line of every file's prose has arrived
        prose = [line.strip() for line in source.read_text(encoding="utf-8").splitlines() if "%" not in line and "\\" not in line]
        if prose:
            longest = " ".join(max(prose, key=len).split())
            assert longest in " ".join(f"{paper.abstract} {body(paper)}".split()), source


def test_most_papers_have_sections_and_one_is_a_letter_without_any(papers):
    headings = {name: [section.title for section in paper.sections if section.title] for name, paper in papers.items()}
    assert [name for name, titles in headings.items() if not titles] == ["rod-silo"]
    assert all(len(titles) >= 3 for name, titles in headings.items() if name != "rod-silo")
    appendices = {name for name, paper in papers.items() if any(section.appendix for section in paper.sections)}
    assert appendices >= {"bid-preparation", "chromatic-spots", "slip-by-ear"}


def test_no_two_papers_share_eight_words_in_a_row(papers):
    def eight_grams(paper: Paper) -> set[tuple[str, ...]]:
        sequence = words(f"{paper.abstract}\n{body(paper)}")
        return {tuple(sequence[i : i + 8]) for i in range(len(sequence) - 7)}

    grams = {name: eight_grams(paper) for name, paper in papers.items()}
    for first, second in combinations(NAMES, 2):
        assert not grams[first] & grams[second], (first, second)


def test_no_two_papers_state_the_same_problem(papers):
    """Problems are told apart by their content words: titles and abstracts of two papers overlap in few of them."""

    def content(paper: Paper) -> set[str]:
        return {word for word in words(f"{paper.title} {paper.abstract}") if len(word) > 5}

    for first, second in combinations(NAMES, 2):
        a, b = content(papers[first]), content(papers[second])
        assert len(a & b) / min(len(a), len(b)) < 0.25, (first, second, a & b)
