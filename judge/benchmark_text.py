"""The table of benchmarks as text, Markdown and LaTeX: sections by base, differences as subscripts, the best of a section in bold."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from papergym.files import atomic_write, write_json
from papergym.judge.tables import markdown_table, shown

Cell = Callable[[str, str, bool], str]  # value, signed difference or "", whether it is the best


def write_benchmark_table(table: Mapping[str, Any], path: Path) -> str:
    """Writes PATH.json, .txt, .md and .tex, and returns the text."""
    write_json(path.with_name(path.name + ".json"), table)
    text = as_text(table)
    for ending, content in ((".txt", text), (".md", as_markdown(table)), (".tex", as_latex(table))):
        with atomic_write(path.with_name(path.name + ending)) as file:
            file.write(content.encode())
    return text


def as_text(table: Mapping[str, Any]) -> str:
    """Padded columns; a star marks the best. What was counted apart, and the intervals of the averages, stand below."""
    rows = [list(_headings(table)), *_rows(table, lambda value, change, best: f"{value}{'*' if best else ''} {change}".rstrip())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_notes(table)]) + "\n"


def as_markdown(table: Mapping[str, Any]) -> str:
    """The table with <sub> for subscripts, and the notes below."""

    def cell(value: str, change: str, best: bool) -> str:
        return (f"**{value}**" if best else value) + (f"<sub>{change}</sub>" if change else "")

    return markdown_table(_headings(table), _rows(table, cell)) + "\n" + "".join(f"- {note}\n" for note in _notes(table))


def as_latex(table: Mapping[str, Any]) -> str:
    """A tabular of the package booktabs, sections apart by a rule."""

    def cell(value: str, change: str, best: bool) -> str:
        value = "--" if value == "–" else value
        return (rf"\textbf{{{value}}}" if best else value) + (f"$_{{{change}}}$" if change else "")

    headings = [_escaped(heading) for heading in _headings(table)]
    lines = [rf"\begin{{tabular}}{{l{'c' * (len(headings) - 1)}}}", r"\toprule", " & ".join(headings) + r" \\"]
    for _, section in groupby(table["rows"], key=lambda row: row["base"]):
        lines.append(r"\midrule")
        lines += [" & ".join([_escaped(name), *cells]) + r" \\" for name, *cells in _rows({**table, "rows": list(section)}, cell)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n" + "".join(f"% {note}\n" for note in _notes(table))


def _headings(table: Mapping[str, Any]) -> list[str]:
    return ["", *table["benchmarks"], "Avg"]


def _rows(table: Mapping[str, Any], cell: Cell) -> list[list[str]]:
    made = []
    for _, group in groupby(table["rows"], key=lambda row: row["base"]):
        section = list(group)
        columns = [[row["cells"][name] for row in section] for name in table["benchmarks"]] + [[row["average"] for row in section]]
        best = [max((_points(figures) for figures in column if figures is not None), default=-1.0) for column in columns]
        for number, row in enumerate(section):
            cells = []
            for column, most in zip(columns, best, strict=True):
                figures = column[number]
                change = figures and figures["difference"] and figures["difference"]["mean"]
                is_best = figures is not None and len(section) > 1 and _points(figures) == most
                cells.append(cell(_shown(figures), "" if change is None else f"{change:+.2f}", is_best))
            made.append([_name(row), *cells])
    return made


def _name(row: Mapping[str, Any]) -> str:
    if row["base"] in (None, row["row"]):
        return row["row"]
    return f"w/ {row['row'].removeprefix(row['base']).lstrip('-_. ')}"


def _points(figures: Mapping[str, Any]) -> float:
    """As the table shows them, so that equal ones are equally good."""
    mean = figures["coverage"]["mean"]
    return -1.0 if mean is None else round(mean, 2)


def _shown(figures: Mapping[str, Any] | None) -> str:
    return "–" if figures is None or figures["coverage"]["mean"] is None else f"{figures['coverage']['mean']:.2f}"


def _notes(table: Mapping[str, Any]) -> Sequence[str]:
    judge = table["judge"] or {}
    notes = [f"Rubric coverage in points of a hundred; judge {judge.get('kind')}, version {judge.get('version')}; 95 % intervals, paired."]
    for row in table["rows"]:
        average = row["average"]
        cells = [figures for figures in row["cells"].values() if figures is not None]
        said = [f"{name} {sum(figures[name] for figures in cells)}" for name in ("answers", "unscored", "empty", "refused")]
        if average is not None:
            said.insert(0, f"average {shown(average['coverage'], '{:.2f}')}")
            if average["difference"] is not None:
                said.insert(1, f"difference {shown(average['difference'], '{:+.2f}')}")
        notes.append(f"{row['row']}: {', '.join(said)}")
    return notes


def _escaped(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
