"""The sheet for labels in headless Chromium: by keys and by buttons, saved as a file, gone on from one, and read back by the audit."""

import json
import time
from pathlib import Path

import pytest

from papergym.data_pipeline.audits.labels import Answer, label_key, read_labels
from papergym.data_pipeline.audits.sheet import Item, write_sheet
from papergym.environment import Criterion, Environment

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.hostile = 1</script><img src=x onerror='window.hostile = 2'>"
FIRST = Environment("a", "cs", "Why lossy caches?", (Criterion("Names eviction."), Criterion(HOSTILE)), reference="Because.")
SECOND = Environment("b", "cs", HOSTILE, (Criterion("Names lakes."), Criterion("Names hills."), Criterion("Names roads.")))
PLAN = "A plan of two lines\nand " + "one long word" * 30


@pytest.fixture
def sheet(tmp_path) -> Path:
    write_sheet(tmp_path, [Item(FIRST), Item(SECOND), Item(FIRST, PLAN)])
    return tmp_path / "sheet.html"


@pytest.fixture
def opened(chromium, sheet):
    chromium.messages.clear()
    chromium.requests.clear()
    chromium.open(sheet)
    chromium.evaluate("localStorage.clear()")
    chromium.open(sheet)
    yield chromium
    assert chromium.messages == [] and chromium.evaluate("typeof window.hostile") == "undefined"
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:", "about:", "blob:"))] == []


def key(chromium, *names):
    for name in names:
        chromium.evaluate(f"dispatchEvent(new KeyboardEvent('keydown', {{key: {json.dumps(name)}}}))")


def texts(chromium, selector):
    return chromium.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(node => node.textContent)")


def saved(chromium, folder: Path) -> dict:
    chromium.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    chromium.evaluate("document.getElementById('save').click()")
    until = time.monotonic() + 20
    while not (folder / "labels.json").exists() and time.monotonic() < until:
        chromium.frame()
    return json.loads((folder / "labels.json").read_text())


def test_labels_by_keys_and_buttons_are_saved_and_read_back(opened, tmp_path):
    assert texts(opened, "#progress") == ["rubric 1 of 3, 0 of 7 criteria labelled"] and len(texts(opened, "li")) == 2
    key(opened, "1", "0", "ArrowRight", "0", "s", "1", "ArrowUp", "1")
    assert texts(opened, "#progress") == ["rubric 2 of 3, 5 of 7 criteria labelled"]
    key(opened, "0", "ArrowLeft", "ArrowRight", "ArrowRight")
    assert texts(opened, "main h2") == [
        "Question",
        "Reference plan",
        "Plan",
        "Does the plan meet this criterion, as well as the reference does?",
    ]
    assert texts(opened, ".text")[2] == PLAN
    opened.evaluate("document.querySelectorAll('li')[1].querySelectorAll('button')[0].click()")
    assert opened.evaluate("document.querySelectorAll('[aria-pressed=true]').length") == 1
    record = saved(opened, tmp_path)
    (leakage, verdicts), *_ = read_labels(
        [tmp_path / "labels.json"], {"set": [FIRST, SECOND]}, {"base": [Answer(FIRST, 0, PLAN, (True, True))]}
    ).values()
    assert leakage == {("set", "a"): [True, False], ("set", "b"): [False, True, False]}
    assert verdicts == {("base", "a", 0): [None, True]} and len(record["labels"]) == 6


def test_what_was_answered_is_still_there_and_a_saved_file_goes_on(opened, sheet):
    key(opened, "1", "ArrowRight", "ArrowDown", "0")
    opened.open(sheet)
    assert texts(opened, "#progress") == ["rubric 1 of 3, 2 of 7 criteria labelled"]
    opened.evaluate("document.getElementById('open').click()")
    assert texts(opened, "li.current p") == [f"2. {HOSTILE}"]
    load = """(async () => {
        const file = new File([%s], "ann.json"), list = new DataTransfer(), input = document.getElementById("load");
        list.items.add(file);
        input.files = list.files;
        input.dispatchEvent(new Event("change"));
        await new Promise(done => setTimeout(done, 200));
    })()"""
    given = {label_key(FIRST.question, HOSTILE): True, label_key(SECOND.question, "Names lakes."): True}
    opened.evaluate(load % json.dumps(json.dumps({"labels": given})))
    assert texts(opened, "#progress") == ["rubric 2 of 3, 4 of 7 criteria labelled"]
    assert texts(opened, "li.current p") == ["3. Names roads."] and opened.evaluate("document.getElementById('failure').hidden")
    for wrong in ("{}", "no JSON", json.dumps({"labels": {"other": True}})):
        opened.evaluate(load % json.dumps(wrong))
        assert "ann.json can't be read as labels of this sheet" in texts(opened, "#failure")[0]
    assert texts(opened, "#progress") == ["rubric 2 of 3, 4 of 7 criteria labelled"]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(opened, sheet, width, scheme):
    opened.open(sheet, width=width, scheme=scheme)
    for _ in range(3):
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        key(opened, "ArrowRight")
    assert (opened.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(21, 24, 28)") == (scheme == "dark")


def test_without_a_store_the_page_still_works(opened, sheet, tmp_path):
    script = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('closed'); }})"
    identifier = opened.call("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
    opened.open(sheet)
    key(opened, "1")
    opened.call("Page.removeScriptToEvaluateOnNewDocument", identifier=identifier)
    assert saved(opened, tmp_path)["labels"] == {label_key(FIRST.question, "Names eviction."): True}
