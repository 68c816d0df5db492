"""A sheet to be labelled by a person, as one HTML page that needs nothing else and as CSV. No verdict of any judge is on it.

The page keeps what was answered in the browser, where it may, and saves a JSON file; papergym.data_pipeline.audits.labels reads both.
"""

import base64
import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import StrictUndefined
from markupsafe import Markup

from papergym.data_pipeline.audits.labels import Answer, label_key
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import atomic_write
from papergym.report.payload import encode


@dataclass(frozen=True)
class Item:
    """A rubric to be labelled: of a question (leakage: can a criterion be inferred from it?), or of a plan (verdict: is it met?)."""

    environment: Environment
    plan: str | None = None

    @property
    def kind(self) -> str:
        return "leakage" if self.plan is None else "verdict"

    @property
    def criteria(self) -> list[tuple[str, str]]:
        """(key of the label, text) of each criterion."""
        question = self.environment.question
        return [(label_key(question, criterion.text, self.plan), criterion.text) for criterion in self.environment.rubric]


def leakage_items(chosen: Mapping[str, Sequence[Environment]]) -> list[Item]:
    """One for each environment."""
    return [Item(environment) for environments in chosen.values() for environment in environments]


def verdict_items(rows: Mapping[str, Sequence[Answer]], count: int, seed: int) -> list[Item]:
    """`count` answers of each row, drawn by seed."""
    items = []
    for row, answers in rows.items():
        order = sorted(answers, key=lambda a: hashlib.sha256(f"{seed}:{row}:{a.environment.id}:{a.sample}".encode()).digest())
        items += [Item(answer.environment, answer.plan) for answer in order[:count]]
    return items


def write_sheet(out: Path, items: Sequence[Item]) -> str:
    """Writes OUT/sheet.html and OUT/sheet.csv and returns what to print. Raises InputError without items."""
    if not items:
        raise InputError("nothing to label: a sheet of at least one environment is needed")
    count = sum(len(item.criteria) for item in items)
    for path, content in ((out / "sheet.html", _page(items)), (out / "sheet.csv", _table(items))):
        with atomic_write(path) as file:
            file.write(content.encode())
    return (
        f"{count} criteria of {len(items)} rubrics to label, in {out / 'sheet.html'} (it saves a JSON file) or {out / 'sheet.csv'}; "
        "read them back with --labels FILE"
    )


def _page(items: Sequence[Item]) -> str:
    data = [
        {
            "kind": item.kind,
            "question": item.environment.question,
            "reference": item.environment.reference if item.plan is not None else None,
            "plan": item.plan,
            "criteria": item.criteria,
        }
        for item in items
    ]
    style, script, template = (_file(name) for name in ("sheet.css", "sheet.js", "sheet.html"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        Templates(autoescape=True, undefined=StrictUndefined)
        .from_string(template)
        .render(
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
            style=Markup(style),
            script=Markup(script),
            data=Markup(encode(data).decode()),
            sheet=hashlib.sha256("".join(key for item in items for key, _ in item.criteria).encode()).hexdigest()[:16],
        )
    )


def _table(items: Sequence[Item]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("key", "label", "asked", "criterion", "question", "plan"))
    asked = {"leakage": "1 if the question alone gives the criterion away, else 0", "verdict": "1 if the plan meets the criterion, else 0"}
    for item in items:
        for key, criterion in item.criteria:
            writer.writerow((key, "", asked[item.kind], *map(_harmless, (criterion, item.environment.question, item.plan or ""))))
    return "\ufeff" + text.getvalue()  # the mark tells a spreadsheet that it is UTF-8


def _harmless(text: str) -> str:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
