"""Results as Markdown tables, which read well on a terminal too."""

from collections.abc import Mapping, Sequence
from typing import Any


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table, its columns padded to the same width."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    padded.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(row)} |\n" for row in padded)


def shown(estimate: Mapping[str, float | None] | None, form: str = "{:.3f}") -> str:
    """ "0.412 [0.371, 0.455]", without the brackets where there is no interval, "–" without a value."""
    if estimate is None or estimate["mean"] is None:
        return "–"
    low, high = estimate["low"], estimate["high"]
    return form.format(estimate["mean"]) + ("" if low is None else f" [{form.format(low)}, {form.format(high)}]")
