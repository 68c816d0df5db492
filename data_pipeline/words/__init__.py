"""Word lists for the rules: one file a list, words parted by blanks, lines that begin with # are comments."""

from functools import cache
from importlib import resources


@cache
def load_words(name: str) -> frozenset[str]:
    """Returns the words of NAME.txt in this folder."""
    return words(" ".join(load_lines(name)))


def load_lines(name: str) -> list[str]:
    """Returns the lines of NAME.txt that are no comments."""
    lines = resources.files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def words(text: str) -> frozenset[str]:
    """The words of a text parted by blanks."""
    return frozenset(text.split())
