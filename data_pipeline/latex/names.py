"""LaTeX's own names that several readers need."""


def names(text: str) -> frozenset[str]:
    """The words of a string, so that long tables of names stay readable."""
    return frozenset(text.split())


def by_count(table: dict[int, str]) -> dict[str, int]:
    """{name: number of arguments} from {number: names}."""
    return {name: count for count, text in table.items() for name in text.split()}


HEADINGS = {
    "part": -1, "addpart": -1, "chapter": 0, "addchap": 0, "section": 1, "addsec": 1, "specialsection": 1, "subsection": 2,
    "subsubsection": 3, "subsubsubsection": 4, "minisec": 4, "paragraph": 4, "subparagraph": 5,
}  # fmt: skip
INPUTS = names("input include subfile subfileinclude @input @@input")
IMPORTS = names("import inputfrom includefrom subimport subinputfrom subincludefrom")
ABSTRACTS = names("abstract abstract* Abstract onecolabstract englishabstract")
APPENDICES = names("appendix appendices")
