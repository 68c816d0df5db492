"""The figures of an audit: tables in Markdown, and two pictures."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from matplotlib.figure import Figure

from papergym.data_pipeline.audits.words import LEAKED
from papergym.environment import DIMENSIONS
from papergym.files import atomic_write
from papergym.judge.agreement_figure import markdown as agreement_tables
from papergym.judge.tables import markdown_table, shown

_PERCENT = "{:.1%}"
_MOST_DOMAINS = 7  # that have a colour of their own


def markdown(figures: Mapping[str, Any]) -> str:
    """The tables: composition, lengths, types, leakage, faithfulness, duplicates, agreement; without those that have nothing in them."""
    files = figures["files"]
    made = {name: found["composition"] for name, found in files.items()}
    lengths = list(next(iter(made.values()))["lengths"])
    parts = [
        markdown_table(
            ("file", "environments", "criteria", "domains", "negative weights", "repeated criteria", "repeated questions"),
            [
                (
                    name,
                    found["environments"],
                    found["criteria"],
                    ", ".join(f"{domain} {count}" for domain, count in found["domains"].items()),
                    found["weights"]["negative"],
                    shown(found["repeated"], _PERCENT),
                    figures["duplicates"]["repeated"][name],
                )
                for name, found in made.items()
            ],
        ),
        markdown_table(
            ("words, 5 to 95 %", *lengths), [(name, *(_range(found["lengths"][what]) for what in lengths)) for name, found in made.items()]
        ),
        markdown_table(
            ("types by", *DIMENSIONS, "not told"),
            [
                (f"{name}, {by}", *(shown(shares[d], _PERCENT) for d in DIMENSIONS), shares["method"]["unscored"])
                for name, found in files.items()
                for by, shares in found["types"].items()
            ],
        ),
        markdown_table(
            ("leakage by", "group", "leaked", "criteria", "not scored"),
            [
                (f"{name}, {by}", group, shown(rate, _PERCENT), rate["count"], rate["unscored"])
                for name, found in files.items()
                for by, groups in found["leakage"].items()
                for group, rate in groups.items()
            ],
        ),
    ]
    if checked := {name: found["faithfulness"] for name, found in files.items() if "faithfulness" in found}:
        stages = [stage for stage in next(iter(checked.values())) if stage not in ("missing", "unchecked")]
        parts.append(
            markdown_table(
                ("in the source", *stages, "sentences", "not checked"),
                [
                    (name, *(shown(found[stage], _PERCENT) for stage in stages), found["all"]["count"], len(found["unchecked"]))
                    for name, found in checked.items()
                ],
            )
        )
    if across := figures["duplicates"]["across"]:
        parts.append(markdown_table(("files", "environments of the second that the first holds too"), list(across.items())))
    for what, agreement in figures["agreement"].items():
        if agreement:
            parts.append(f"Agreement on {what}\n\n{agreement_tables(agreement)}")
    return "\n".join(parts)


def _range(distribution: Mapping[str, float | None]) -> str:
    if distribution["p50"] is None:
        return "–"
    return "{p50:.0f} [{p5:.0f}, {p95:.0f}]".format_map(distribution)


def draw_composition(files: Mapping[str, Any], path: Path) -> None:
    """Shares of the domains, shares of the types of criteria, and lengths of each file, side by side (compare the paper's figure 2)."""
    figure = Figure(figsize=(13, 1.6 + 0.5 * len(files)), layout="constrained")
    domains, types, *lengths = figure.subplots(1, 5, sharey=True, width_ratios=(2, 2, 1, 1, 1))
    composition = {name: found["composition"] for name, found in files.items()}
    names, counts = _domain_shares(composition)
    _stack(domains, counts, names, "environments (%)")
    told = {
        name: [found["types"].get("model", found["types"]["labels"])[d]["mean"] or 0.0 for d in DIMENSIONS] for name, found in files.items()
    }
    _stack(types, told, DIMENSIONS, "criteria (%)")
    for axes, what in zip(lengths, ("question", "reference", "criterion")):
        boxes = [_box(found["lengths"][what], place) for place, found in enumerate(composition.values())]
        known = [(place, box) for place, box in enumerate(boxes) if box is not None]
        if known:
            places, boxes = zip(*known)
            options = {"orientation": "horizontal", "showfliers": False, "manage_ticks": False, "widths": 0.5}
            axes.bxp(boxes, positions=places, **options)
        axes.set(xlabel=f"words of a {what}")
        axes.set_xlim(left=0)
    domains.set_yticks(range(len(files)), list(files))
    domains.set_ylim(len(files) - 0.4, -0.6)
    _save(figure, path)


def draw_leakage(files: Mapping[str, Any], path: Path) -> None:
    """The share of leaked criteria of each file with its interval (compare the paper's table 3), and that share for other thresholds."""
    figure = Figure(figsize=(10, 2.4 + 0.5 * len(files)), layout="constrained")
    bars, curves = figure.subplots(1, 2)
    by = list(dict.fromkeys(way for found in files.values() for way in found["leakage"]))
    for number, way in enumerate(by):
        rates = [(place, found["leakage"][way]["all"]) for place, found in enumerate(files.values()) if way in found["leakage"]]
        rates = [(place, rate) for place, rate in rates if rate["mean"] is not None]
        means = [100 * rate["mean"] for _, rate in rates]
        low, high = ([100 * (rate["mean"] if rate[end] is None else rate[end]) for _, rate in rates] for end in ("low", "high"))
        places = [place + (number - (len(by) - 1) / 2) * 0.35 for place, _ in rates]
        errors = numpy.abs([numpy.subtract(means, low), numpy.subtract(high, means)])
        bars.barh(places, means, 0.32, xerr=errors, capsize=2, label=f"by the {way}")
    bars.set_yticks(range(len(files)), list(files))
    bars.invert_yaxis()
    bars.set(xlabel="criteria that the question gives away (%)")
    bars.set_xlim(left=0)
    bars.legend(frameon=False)
    for name, found in files.items():
        curves.plot(
            [float(threshold) for threshold in found["overlaps"]], [100 * share for share in found["overlaps"].values()], label=name
        )
    curves.axvline(LEAKED, color="0.6", linestyle=":")
    curves.set(xlabel="share of the criterion's words in the question, at least", ylabel="criteria (%)", xlim=(0, 1), ylim=(0, 100))
    curves.legend(frameon=False)
    _save(figure, path)


def _domain_shares(composition: Mapping[str, Any]) -> tuple[list[str], dict[str, list[float]]]:
    """Names of the largest domains, of all files together, with "others" behind them if there are any; and file -> their shares."""
    total: Counter[str] = Counter()
    for found in composition.values():
        total.update(found["domains"])
    names = sorted(domain for domain, _ in total.most_common(_MOST_DOMAINS))
    shares = {file: [found["domains"].get(name, 0) / found["environments"] for name in names] for file, found in composition.items()}
    if len(total) > len(names):
        names.append("others")
        shares = {file: [*row, 1 - sum(row)] for file, row in shares.items()}
    return names, shares


def _stack(axes: Any, shares: Mapping[str, Sequence[float]], names: Sequence[str], label: str) -> None:
    left = numpy.zeros(len(shares))
    for index, name in enumerate(names):
        widths = numpy.array([100 * found[index] for found in shares.values()])
        bars = axes.barh(range(len(shares)), widths, 0.6, left=left, label=name)
        axes.bar_label(bars, [f"{width:.0f}" if width >= 5 else "" for width in widths], label_type="center", color="white")
        left += widths
    axes.set(xlabel=label, xlim=(0, 100))
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(names)))


def _box(found: Mapping[str, float | None], place: int) -> dict[str, Any] | None:
    if found["p50"] is None:
        return None
    return {"med": found["p50"], "q1": found["p25"], "q3": found["p75"], "whislo": found["p5"], "whishi": found["p95"]}


def _save(figure: Figure, path: Path) -> None:
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix[1:], metadata={"Date": None})
