"""The written file: one self-contained document whose data stay data, small enough, legible in both themes."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from papergym.errors import InputError
from papergym.report import comparison_table, write_report

HOSTILE = "</script><script>window.hostile = 1</script><img src=https://example.org/x onerror='window.hostile = 2'><!-- {{ 7 }} & \u2028"


class Document(HTMLParser):
    """Tags with attributes, and the text of each script and style element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def scripts(self) -> list[str]:
        return [text for tag, text in self.texts if tag == "script"]


def make_hostile(folder: Path) -> None:
    """Puts HOSTILE into every free text of a run directory."""
    for path in [*folder.glob("environments/*.jsonl"), *folder.glob("*/rollouts.jsonl"), *folder.glob("eval/*.jsonl")]:
        lines = []
        for line in path.read_text().splitlines():
            record = json.loads(line)
            for name in ("question", "reference", "response", "plan", "reason"):
                if name in record:
                    record[name] = HOSTILE + record[name]
            for criterion in record.get("rubric", []):
                criterion["text"] += HOSTILE
            lines.append(json.dumps(record))
        path.write_text("\n".join(lines) + "\n")
    info = json.loads((folder / "run.json").read_text())
    info |= {"command": HOSTILE, "model": HOSTILE, "judge": HOSTILE, "general_criteria": [HOSTILE] * 7, "config": {HOSTILE: HOSTILE}}
    (folder / "run.json").write_text(json.dumps(info))


def test_the_page_is_self_contained(fake_run):
    folder = fake_run(steps=5)
    path = write_report(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    document = Document(text)
    assert not re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text.replace("http://www.w3.org/2000/svg", ""))
    assert not [attrs for _, attrs in document.tags if "src" in attrs]
    assert [attrs["href"] for tag, attrs in document.tags if tag == "link"] == ["data:,"]
    assert "@import" not in text and "url(" not in text


def test_the_policy_admits_exactly_the_script(fake_run):
    document = Document(write_report(fake_run(steps=3)).read_text(encoding="utf-8"))
    policy = next(attrs["content"] for tag, attrs in document.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    data, script = document.scripts()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy
    assert "<" in script and json.loads(data)


def test_hostile_text_stays_data(fake_run):
    folder = fake_run(steps=3)
    plain = Document(write_report(folder).read_text(encoding="utf-8"))
    make_hostile(folder)
    hostile = Document(write_report(folder).read_text(encoding="utf-8"))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.scripts()[1] == plain.scripts()[1]
    data = json.loads(hostile.scripts()[0])
    assert data["info"]["command"] == HOSTILE
    assert data["environments"][0]["question"].startswith(HOSTILE)
    assert data["answers"][0]["plan"].startswith(HOSTILE)


def test_the_folder_name_is_escaped(fake_run, tmp_path):
    folder = fake_run(steps=2).rename(tmp_path / "a<b>&c")
    text = write_report(folder).read_text(encoding="utf-8")
    assert "<title>a&lt;b&gt;&amp;c · papergym</title>" in text


def test_the_table_is_there_without_javascript(fake_run):
    folder = fake_run(steps=2)
    text = write_report(folder).read_text(encoding="utf-8")
    fallback = text[text.index("<noscript>") : text.index("</noscript>")]
    for row in comparison_table(folder):
        assert f"<td>{row['row']}</td>" in fallback
        assert f"{row['reward']['mean']:.3f} [{row['reward']['low']:.3f}, {row['reward']['high']:.3f}]" in fallback


def test_a_200_step_run_stays_below_5_mb(fake_run):
    folder = fake_run(steps=200, rollouts=16, heldout=12, train=24, samples=8, words=400)
    assert sum(path.stat().st_size for path in folder.rglob("*.jsonl")) > 20e6
    path = write_report(folder)
    assert 4.5e6 < path.stat().st_size <= 5e6  # the room is used
    kept = json.loads(Document(path.read_text(encoding="utf-8")).scripts()[0])["kept"]
    assert kept["environments"] == [36, 36]
    assert kept["answers"] == [288, 288]
    assert 100 < kept["rollouts"][0] < kept["rollouts"][1] == 6400


def test_the_same_run_gives_the_same_bytes_and_a_failure_keeps_the_old_file(fake_run):
    folder = fake_run(steps=3)
    before = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == before
    (folder / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not valid JSON"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_contrast(mode):
    """WCAG AA: 4.5 for text, 3 for the edges of controls and marks."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    style = (files("papergym.report") / "style.css").read_text(encoding="utf-8")
    colours = {name: pair.split(", ")[mode] for name, pair in re.findall(r"--([\w-]+): light-dark\(([^)]+)\)", style)}
    names = [name for name in colours if name not in ("page", "panel", "shade", "line", "edge", "warn-back")]
    ratios = {(name, back): contrast(colours[name], colours[back]) for name in names for back in ("page", "panel", "shade")}
    ratios |= {(name, "warn-back"): contrast(colours[name], colours["warn-back"]) for name in ("ink", "warn")}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < 4.5} == {}
    assert {back: ratio for back in ("page", "panel", "shade") if (ratio := contrast(colours["edge"], colours[back])) < 3} == {}
