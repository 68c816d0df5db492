"""Papers whose every sentence says its stage, and a scripted model that makes environments of them as it is told to."""

import json
import re
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build

MARKS = {"goal": "gorse", "background": "bramble", "method": "maple", "experiment": "elder"}  # words that only sentences of a stage hold
NOUNS = ["voice-coil", "pulse", "humidity", "rod", "hopper", "outlet", "grain", "camera", "torque", "friction", "lattice", "ballast"]
NOUNS += ["gasket", "nozzle", "sieve", "magnet", "spring", "valve"]
VERBS = ["vibrates", "tilts", "heats", "wets", "photographs", "weighs", "magnetises", "lubricates", "sieves", "shakes", "rotates", "cools"]
VERBS += ["inverts", "seals", "pulses"]
PLACES = ["before every discharge", "after each clog", "during the slow fill", "between two lifts", "at the outlet", "under a sealed lid"]


def sentences(stage, name):
    """Three sentences of a stage, about the subject `name`."""
    mark = MARKS[stage]
    return {
        "goal": [f"What is wanted is whether {mark} rods of kind {name} clog a silo under slow shaking."],
        "background": [
            f"It is known that {mark} grains of kind {name} arch over small outlets.",
            f"Earlier tests of {name} never shook the {mark} silo itself.",
        ],
        "method": [
            f"We shake the {mark} hopper of {name} by $\\frac{{1}}{{2}}\\theta$ before each discharge.",
            f"A {mark} camera follows every rod of {name}, with weights $\\nabla_{{\\rho}} f$.",
            f"The {mark} model of {name} treats an arch as a chain of hinges.",
        ],
        "experiment": [
            f"We compare {mark} discharges of {name} with and without shaking in random order.",
            f"A still {mark} silo of {name} serves as the control throughout.",
            f"We time {mark} clogs of {name} over 200 runs with a learning rate of 0.001.",
        ],
    }[stage]


def paper_text(name):
    body = {stage: " ".join(sentences(stage, name)) for stage in MARKS}
    return (
        f"\\documentclass{{article}}\\title{{Rods of {name}}}\\begin{{document}}\\begin{{abstract}}{body['goal']}\\end{{abstract}}"
        f"\\section{{Introduction}} {body['background']} {body['goal']}\n\n\\section{{Method}} {body['method']}\n\n"
        f"\\section{{Experiments}} {body['experiment']} Shaking of {name} reaches an accuracy of 93.2\\% with elder rods.\n\n"
        f"\\section{{Acknowledgements}} Thanks to nobody.\n\\end{{document}}\n"
    )


@pytest.fixture
def write_papers(tmp_path):
    """write_papers(n): the paths of n papers."""

    def write(count: int) -> list[Path]:
        paths = []
        for number in range(count):
            name = "k" + "".join("abcdefghij"[int(digit)] for digit in f"{number:03d}")
            path = tmp_path / "papers" / name
            path.mkdir(parents=True, exist_ok=True)
            (path / "main.tex").write_text(paper_text(name))
            paths.append(path)
        return paths

    return write


def fenced_texts(prompt):
    """What stands between the two lines of each fence of a prompt."""
    return re.findall(r"(====== [0-9a-f]{16} ======)\n(.*?)\n\1", prompt, re.DOTALL)


def kind_of(body):
    """What a request asks for."""
    prompt = body["messages"][1]["content"]
    forms = {
        '{"goal": "…"': "map",
        '{"order":': "reduce",
        '{"question": "…"}': "question",
        '{"reference": "…"}': "reference",
        '{"ranking":': "merge",
    }
    kind = next((kind for form, kind in forms.items() if form in prompt), "criteria")
    return ("answer" if "# Reference plan" in prompt else "question") + " criteria" if kind == "criteria" else kind


def criterion(number):
    verb, noun = VERBS[number % len(VERBS)], NOUNS[number % len(NOUNS)]
    return f"The plan {verb} the {noun} with a second {NOUNS[(number * 7 + 3) % len(NOUNS)]} {PLACES[number % len(PLACES)]}."


def scripted(body):
    """The record that a good model answers with."""
    prompt, kind = body["messages"][1]["content"], kind_of(body)
    texts = [text for _, text in fenced_texts(prompt)]
    if kind == "map":
        parts = re.split(r"(?<=[.?])\s+", " ".join(texts[0].split()))
        return {stage: " ".join(part for part in parts if mark in part) for stage, mark in MARKS.items()}
    if kind == "reduce":
        return {"order": list(range(1, len(texts[0].splitlines()) + 1))}
    if kind == "question":
        open_words = "Little is settled about how rods in a silo behave when the silo itself is shaken slowly while it drains. "
        return {"question": f"{texts[1]} {open_words}{texts[0]} Propose a method and an experimental design that would settle it."}
    if kind == "reference":
        filler = "The hopper would be shaken slowly, and each clog would be timed against a still control of the same make. " * 4
        return {"reference": " ".join((*texts, filler))}
    if kind == "merge":
        lines = texts[2].splitlines()
        said = [re.sub(r"^\d+\. \(\w+\) ", "", line) for line in lines]
        ranking = [
            {"criterion": index + 1, "doubles": [other + 1 for other in range(index + 1, len(said)) if said[other] == text]}
            for index, text in enumerate(said)
            if text not in said[:index]
        ]
        return {"ranking": ranking}
    first = 8 if kind.startswith("answer") else 0
    dimensions = re.findall(r'^dimension "(\w+)"', prompt, re.MULTILINE)
    count = int(re.search(r"Write (\d+) criteria", prompt)[1])
    entries = [{"dimension": dimensions[number % len(dimensions)], "text": criterion(number)} for number in range(first, first + count)]
    return {"criteria": entries}


def reply(body):
    """The same, as a model writes it: LaTeX with single backslashes."""
    return json.dumps(scripted(body), ensure_ascii=False).replace("\\\\", "\\")


@pytest.fixture
def script():
    """The scripted model's parts, under their names."""
    return {name: value for name, value in globals().items() if not name.startswith("_")}


@pytest.fixture
def write_recipe(scripted_server, tmp_path):
    """write_recipe(text="", **extractor) -> the path of a recipe at the scripted server, which then answers as the scripted model does."""
    scripted_server.answer = reply

    def write(text: str = "", name: str = "recipe.toml", **model) -> Path:
        options = {"kind": "http", "url": scripted_server.url, "model": "big", "backoff": 0.01, "attempts": 4, "timeout": 30.0} | model
        path = tmp_path / name
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
        path.write_text(f"{text}\n[extractor.model]\n{lines}\n")
        return path

    return write


@pytest.fixture
def run(tmp_path, write_recipe):
    """run(papers, name="out", recipe=None, **options): builds into NAME.jsonl."""

    def build_it(papers, name="out", recipe=None, **options):
        return build(papers, tmp_path / f"{name}.jsonl", extractor=recipe or write_recipe(), created="2026-12-01", **options)

    return build_it
