"""Puts data, style and script into the template. The page carries a content security policy that lets only its own script run."""

import base64
import hashlib
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import StrictUndefined
from markupsafe import Markup

from papergym.files import atomic_write
from papergym.report.payload import build_payload, encode
from papergym.report.read import read_run
from papergym.report.table import format_estimate

LIMIT_BYTES = 5_000_000
PARTS = (
    "dom",
    "charts",
    "overview",
    "judge",
    "curves",
    "changes",
    "verdicts",
    "answers",
    "rollouts",
    "environments",
    "script",
)  # of the script


def write_report(run_dir: str | Path, *, limit_bytes: int = LIMIT_BYTES) -> Path:
    """Writes report.html into the run directory, atomically, and returns its path.

    limit_bytes: what the file may take; texts that don't fit are left out and counted on the page. Shows whatever the directory
    holds. Raises InputError naming the directory that holds nothing readable, or the file, line and field that is wrong.
    """
    run = read_run(run_dir)
    style, script = _data("style.css"), "\n".join(_data(f"{name}.js") for name in PARTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
    template = _data("template.html")
    payload = build_payload(run, limit_bytes - len((style + script + template).encode()) - 20_000)
    html = (
        Templates(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        .from_string(template)
        .render(
            title=f"{run.directory.resolve().name} · papergym",
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{_digest(script)}'",
            style=Markup(style),
            script=Markup(script),
            data=Markup(encode(payload).decode()),
            table=payload["table"],
            estimate=format_estimate,
        )
    )
    path = run.directory / "report.html"
    with atomic_write(path) as file:
        file.write(html.encode())
    return path


def _data(name: str) -> str:
    return (files("papergym.report") / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
