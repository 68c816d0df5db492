"""The agreement of judges as a table in Markdown, and as a figure: how steady each judge is, and how far two of them agree."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from papergym.files import atomic_write
from papergym.judge.tables import markdown_table, shown

_PERCENT = "{:.1%}"


def markdown(figures: Mapping[str, Any]) -> str:
    """Three tables of papergym.judge.agreement.agreement: how steady each judge is, how strict in each group, and each pair in each."""
    judges, pairs = figures["judges"], figures["pairs"]
    steady = [
        (judge, len(values["run_means"]), _points(values), shown(values["same"], _PERCENT), values["unscored"])
        for judge, values in judges.items()
    ]
    groups = list(next(iter(judges.values()))["strictness"])
    strict = [(group, *(shown(values["strictness"][group], _PERCENT) for values in judges.values())) for group in groups]
    together = [
        (
            " and ".join(pair["judges"]),
            group,
            shown(pair[group]["agreement"], _PERCENT),
            shown(pair[group]["kappa"], "{:.2f}"),
            pair[group]["verdicts"],
        )
        for pair in pairs
        for group in groups
    ]
    tables = [
        markdown_table(("judge", "runs", "range of the runs' means", "same verdict in all runs", "not scored"), steady),
        markdown_table(("criteria met", *judges), strict),
    ]
    if together:
        tables.append(markdown_table(("judges", "group", "equal verdicts", "Cohen's κ", "verdicts"), together))
    return "\n".join(tables)


def _points(values: Mapping[str, Any]) -> str:
    return "–" if values["range"] is None or len(values["run_means"]) < 2 else f"{100 * values['range']:.1f} points"


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Writes the figure; the ending of the path (.svg, .png, .pdf) is its format."""
    judges = list(figures["judges"])
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    steadiness, heat = figure.subplots(1, 2)
    for judge, values in figures["judges"].items():
        known = [mean for mean in values["run_means"] if mean is not None]
        if known:
            steadiness.plot(100 * np.mean(known), 100 * values["range"], "o", label=judge)
    steadiness.set(
        xlabel="criteria met, mean of the runs (%)", ylabel="range of the runs' means (points)", title="One judge over repeated runs"
    )
    steadiness.set_ylim(bottom=0)
    steadiness.legend(frameon=False)
    _heat_map(heat, judges, figures["pairs"])
    figure.colorbar(heat.images[0], ax=heat, label="equal verdicts (%)")
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)


def _heat_map(axes: Any, judges: Sequence[str], pairs: Sequence[Mapping[str, Any]]) -> None:
    equal = np.full((len(judges), len(judges)), np.nan)
    np.fill_diagonal(equal, 100.0)
    axes.set_title("Two judges on the same verdicts")
    axes.set_xticks(range(len(judges)), judges, rotation=30, ha="right")
    axes.set_yticks(range(len(judges)), judges)
    for pair in pairs:
        row, column = (judges.index(judge) for judge in pair["judges"])
        values = pair["all"]
        if values["agreement"]["mean"] is None:
            continue
        equal[row, column] = equal[column, row] = 100 * values["agreement"]["mean"]
        text = f"{equal[row, column]:.1f}\nκ {shown(values['kappa'] | {'low': None}, '{:.2f}')}"
        for x, y in ((column, row), (row, column)):
            axes.text(x, y, text, ha="center", va="center", color="white" if equal[row, column] > 75 else "black")
    axes.imshow(equal, cmap="Blues", vmin=50, vmax=100)
