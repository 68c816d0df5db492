"""The page in headless Chromium: every view draws, the keyboard reaches it, filters filter, hostile text does nothing."""

import importlib.util
import json
from pathlib import Path

import pytest

from papergym.report import comparison_table, write_report, write_table

pytestmark = pytest.mark.browser
VIEWS = ["overview", "curves", "changes", "answers", "rollouts", "environments"]


def load(name: str):
    """A neighbouring test file as a module."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(load("conftest").make_run(tmp_path_factory.mktemp("runs") / "demo", steps=24, train=4))


@pytest.fixture(autouse=True)
def quiet(chromium):
    """No test may leave a console error, a warning, a failed view or a request to anywhere."""
    chromium.messages.clear()
    chromium.requests.clear()
    yield
    assert chromium.messages == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:", "about:"))] == []
    assert chromium.evaluate("document.getElementById('failure').hidden")


@pytest.fixture(scope="module")
def long_page(tmp_path_factory) -> Path:
    return write_report(load("conftest").make_long_run(tmp_path_factory.mktemp("runs") / "long"))


def choose(chromium, name: str, value: str) -> None:
    """Sets the select or input with that label, as a user would."""
    field = f"document.querySelector('[aria-label={json.dumps(name)}]')"
    chromium.evaluate(f"{field}.value = {json.dumps(value)}; {field}.dispatchEvent(new Event('change'))")
    chromium.frame()


def texts(chromium, selector: str) -> list[str]:
    return chromium.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(node => node.textContent)")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_draws_and_fits(chromium, page, view, scheme, width):
    chromium.open(page, view, width, scheme=scheme)
    assert chromium.evaluate("document.querySelector('[aria-selected=true]').id") == f"tab-{view}"
    assert len(chromium.evaluate("document.getElementById('main').innerText")) > 300
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    dark = chromium.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(21, 24, 28)"
    assert dark == (scheme == "dark")


def test_the_theme_button_overrides_the_system(chromium, page):
    chromium.open(page, scheme="light")
    colours = []
    for _ in range(3):
        chromium.evaluate("document.getElementById('theme').click()")
        colours.append(chromium.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    assert colours == ["rgb(251, 251, 250)", "rgb(21, 24, 28)", "rgb(251, 251, 250)"]


def test_arrows_move_through_the_tabs(chromium, page):
    chromium.open(page)
    chromium.evaluate("document.querySelector('[role=tab][aria-selected=true]').focus()")
    seen = []
    for _ in range(len(VIEWS)):
        seen.append(chromium.evaluate("document.getElementById('main').dataset.view"))
        chromium.press("ArrowRight")
    assert seen == VIEWS
    assert chromium.evaluate("document.getElementById('main').dataset.view") == "overview"
    chromium.press("End")
    assert chromium.evaluate("document.activeElement.id") == "tab-environments"


def test_the_overview_shows_the_table(chromium, page):
    run = page.parent
    chromium.open(page)
    rows = texts(chromium, "table.cards tbody tr")
    for row, text in zip(comparison_table(run), rows[:3], strict=True):
        assert f"{row['reward']['mean']:.3f}" in text
        if row["difference"]:
            assert f"+{row['difference']['mean']:.3f} [" in text
    assert "With 5 environments" in chromium.evaluate("document.getElementById('main').innerText")


def test_curves_share_a_cursor_that_the_keyboard_moves(chromium, page):
    chromium.open(page, "curves")
    assert texts(chromium, ".curve-panel h3")[:4] == [
        "Reward0–1",
        "Divergence to the teachernats/token",
        "Entropynats/token at the stage's temperature",
        "Lengthtokens",
    ]
    entropy = [json.loads(line)["entropy"] for line in (page.parent / "grpo/metrics.jsonl").read_text().splitlines()]
    chromium.evaluate("document.querySelector('.curve-panel svg').focus()")
    for _ in range(3):  # reward begins with GRPO
        chromium.press("ArrowRight")
    readouts = texts(chromium, ".curve-panel .readout")
    assert readouts[0].startswith("GRPO step 3: ")
    assert readouts[1] == ""  # no divergence there
    assert readouts[2] == f"GRPO step 3: {entropy[2]:.2f}"
    choose(chromium, "Axis", "minutes")
    assert "training time in minutes" in chromium.evaluate("document.getElementById('main').innerText")
    # Both stages, one after the other: the entropy panel has a path for each.
    panel = "document.querySelectorAll('.curve-panel')[2]"
    ends = chromium.evaluate(f"[...{panel}.querySelectorAll('path.curve')].map(path => [path.getBBox().x, path.getBBox().width])")
    assert len(ends) == 2 and ends[1][0] > ends[0][0] + ends[0][1]


def test_answers_stand_side_by_side_and_filters_apply(chromium, page):
    answers = {
        row: [json.loads(line) for line in (page.parent / f"eval/{row}.jsonl").read_text().splitlines()] for row in ("base", "opsd", "grpo")
    }
    pairs = [(before, after) for before, after in zip(answers["base"], answers["grpo"]) if before["reward"] is not None]
    chromium.open(page, "answers")
    assert len(texts(chromium, "[role=option]")) == 20
    best = max(pairs, key=lambda pair: pair[1]["reward"] - pair[0]["reward"])
    shown = texts(chromium, ".columns .answer .prose")
    assert best[0]["plan"] in shown and best[1]["plan"] in shown

    choose(chromium, "Reward from", "0.5")
    high = sum(answer["reward"] >= 0.5 for answer in answers["grpo"])
    assert 0 < high == len(texts(chromium, "[role=option]")) < 20
    choose(chromium, "Reward from", "")
    middle = sorted(answer["tokens"] for answer in answers["grpo"])[9]
    choose(chromium, "Tokens to", str(middle))
    short = sum(answer["tokens"] <= middle for answer in answers["grpo"])
    assert 0 < short == len(texts(chromium, "[role=option]")) < 20
    choose(chromium, "Tokens to", "")
    choose(chromium, "Criterion", "general:0")
    choose(chromium, "Verdict", "gained")
    expected = sum(before["general"][0] is False and after["general"][0] is True for before, after in zip(answers["base"], answers["grpo"]))
    assert 0 < expected == len(texts(chromium, "[role=option]")) < 20
    choose(chromium, "Verdict", "any")
    choose(chromium, "Paper", "bus-fares")
    assert len(texts(chromium, "[role=option]")) == 4
    choose(chromium, "Criterion", "specialised:2")
    choose(chromium, "Verdict", "1")
    met = [answer["environment"] == "econ/bus-fares" and answer["specialised"][2] for answer in answers["grpo"]]
    assert len(texts(chromium, "[role=option]")) == sum(met)


def test_arrows_move_through_a_list_and_the_address_follows(chromium, page):
    chromium.open(page, "environments")
    chromium.evaluate("document.querySelector('[role=listbox]').focus()")
    first = texts(chromium, ".detail h2")
    chromium.press("ArrowDown")
    second = texts(chromium, ".detail h2")
    assert first != second
    address = chromium.evaluate("location.hash.slice(1)")
    chromium.open(page, address)
    assert texts(chromium, ".detail h2") == second


def test_training_rollouts_filter_by_stage_and_step(chromium, page):
    chromium.open(page, "rollouts")
    choose(chromium, "Stage", "grpo")
    choose(chromium, "Step from", "5")
    choose(chromium, "Step to", "6")
    assert len(texts(chromium, "[role=option]")) == 8
    assert texts(chromium, ".detail h2")[0].startswith("GRPO step 5")
    assert len(texts(chromium, ".detail .mark")) == 17


def test_the_largest_change_comes_first(chromium, page):
    chromium.open(page, "changes")
    changes = [float(text.replace("−", "-")) for text in texts(chromium, "section:first-of-type td.strong")]
    assert len(changes) == 5 and changes == sorted(changes, reverse=True)
    choose(chromium, "Before", "grpo")
    choose(chromium, "After", "base")
    turned = [float(text.replace("−", "-")) for text in texts(chromium, "section:first-of-type td.strong")]
    assert turned == sorted((-change for change in changes), reverse=True)


def test_views_without_data_are_not_offered(chromium, fake_run):
    folder = fake_run(steps=3)
    for name in ("eval", "environments", "opsd"):
        (folder / name).rename(folder.parent / name)
    (folder / "grpo/metrics.jsonl").unlink()
    chromium.open(write_report(folder), "changes")
    assert texts(chromium, "[role=tab]") == ["Overview", "Training rollouts"]
    assert chromium.evaluate("document.getElementById('main').dataset.view") == "overview"
    chromium.open(folder / "report.html", "rollouts")
    assert "This environment is not kept in the file." in texts(chromium, ".detail p")


@pytest.mark.parametrize("present", ["run.json", "environments", "grpo", "eval", "table.json"])
def test_any_part_alone_draws(chromium, fake_run, present):
    folder = fake_run(steps=3)
    write_table(folder)
    for path in [path for path in folder.iterdir() if path.name != present]:
        path.rename(folder.parent / path.name)
    report = write_report(folder)
    chromium.open(report)
    views = chromium.evaluate("[...document.querySelectorAll('[role=tab]')].map(tab => tab.id.slice(4))")
    expected = {"environments": ["environments"], "grpo": ["curves", "rollouts"], "eval": ["changes", "answers"]}
    assert views == ["overview", *expected.get(present, [])]
    for view in views:
        chromium.open(report, view)
        assert len(chromium.evaluate("document.getElementById('main').innerText")) > 10


def test_hostile_text_does_nothing_in_any_view(chromium, fake_run):
    folder, hostile = fake_run(steps=3), load("test_page")
    hostile.make_hostile(folder)
    path = write_report(folder)
    for view in VIEWS:
        chromium.open(path, view)
        assert chromium.evaluate("typeof window.hostile") == "undefined"
        assert chromium.evaluate("document.querySelectorAll('img').length") == 0
    chromium.open(path, "environments")
    assert hostile.HOSTILE in texts(chromium, ".detail .prose")[0]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("view", VIEWS)
def test_five_rows_of_three_seeds_fit(chromium, long_page, view, width):
    chromium.open(long_page, view, width)
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    # Nothing on the overview has to be scrolled sideways to be seen.
    if view == "overview":
        assert chromium.evaluate("[...document.querySelectorAll('.scroll')].every(node => node.scrollWidth <= node.clientWidth)")


def test_seeds_are_drawn_and_named(chromium, long_page):
    chromium.open(long_page)
    assert texts(chromium, "table.cards tbody th")[:5] == ["base", "SFT", "OPSD", "GRPO", "OPSD → GRPO"]
    assert chromium.evaluate("document.querySelectorAll('table.cards .seed').length") == 3 * (5 + 4)  # rewards and differences
    text = chromium.evaluate("document.getElementById('main').innerText")
    assert "6 answers to 4 environments" not in text and "24 answers to 4 environments in each row" in text
    assert "means of the 3 training runs" in text
    chromium.open(long_page, "answers")
    assert all(", sample " in text and "seed" in text for text in texts(chromium, "[role=option] b"))
    chromium.open(long_page, "rollouts")
    keys = chromium.evaluate("document.querySelectorAll('[role=option]').length")
    assert keys == 3 * (3 * 12 + 2 * 6)


def test_alternatives_begin_at_the_same_step_and_what_goes_on_where_the_other_ended(chromium, long_page):
    chromium.open(long_page, "curves")
    entropy = [title.startswith("Entropy") for title in texts(chromium, ".curve-panel h3")].index(True)
    panel = f"document.querySelectorAll('.curve-panel')[{entropy}]"
    boxes = chromium.evaluate(f"[...{panel}.querySelectorAll('path.curve')].map(path => [path.getBBox().x, path.getBBox().width])")
    sft, opsd, grpo, first, second = boxes
    assert sft == opsd == grpo and first[0] == sft[0]
    assert second[0] > first[0] + first[1] and second[0] + second[1] == pytest.approx(sft[0] + sft[1], abs=0.2)
    assert chromium.evaluate(f"{panel}.querySelectorAll('path.raw').length") == 5 * 3
    chromium.evaluate(f"{panel}.querySelector('svg').focus()")
    chromium.press("ArrowRight")
    assert len(texts(chromium, f".curve-panel:nth-of-type({entropy + 1}) .readout b")) == 4  # all but the second of two
    steps = texts(chromium, ".curve-panel:first-of-type text.tick.middle")
    assert all(step.isdecimal() for step in steps)


def test_a_share_ends_at_one_and_steps_are_whole(chromium, fake_run):
    folder = fake_run(steps=3)
    path = folder / "grpo/metrics.jsonl"
    path.write_text("".join(json.dumps(json.loads(line) | {"truncated": 1.0}) + "\n" for line in path.read_text().splitlines()))
    (folder / "opsd").rename(folder.parent / "opsd")
    chromium.open(write_report(folder), "curves")
    panel = [title.startswith("Cut") for title in texts(chromium, ".curve-panel h3")].index(True) + 1
    ticks = texts(chromium, f".curve-panel:nth-of-type({panel}) text.tick")
    assert max(float(tick) for tick in ticks if "." in tick) == 1.0
    assert [tick for tick in ticks if "." not in tick][-4:] == ["0", "1", "2", "3"]


def test_no_change_is_neither_signed_nor_bold(chromium, fake_run):
    folder = fake_run(steps=3)
    (folder / "eval/grpo.jsonl").write_bytes((folder / "eval/base.jsonl").read_bytes())
    (folder / "eval/opsd.jsonl").unlink()
    chromium.open(write_report(folder), "changes")
    assert texts(chromium, "section:first-of-type td:nth-child(5)") == ["0.000"] * 5
    assert texts(chromium, "td.strong") == []
    chromium.open(folder / "report.html", "answers")
    assert set(texts(chromium, ".delta")) == {"0.00", "–"} and texts(chromium, ".delta.up, .delta.down") == []


def test_three_answers_stand_beside_each_other(chromium, page):
    chromium.open(page, "answers")
    assert chromium.evaluate("document.querySelectorAll('.columns > .answer').length") == 3
    assert chromium.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.columns'))")


def test_an_environment_says_where_its_stages_come_from(chromium, page):
    chromium.open(page, "environments")
    origins = texts(chromium, ".stages .origin")
    assert origins == ["from “Design <i>”", "from the text before the first heading"]
    parts = texts(chromium, ".stages > div:nth-child(3) .prose")
    assert len(parts) == 2 and len(parts[0]) == 30


def test_the_overview_says_how_far_to_trust_the_judge(chromium, page):
    chromium.open(page)
    exam = json.loads((Path(__file__).parents[2] / "papergym/report/lexical_judge.json").read_text())
    assert "How far to trust the judge" in texts(chromium, "h2")
    rows = texts(chromium, "[aria-label='What the judge pays for'] tbody tr")
    assert len(rows) == len(exam["pays"])
    for (name, paid), row in zip(exam["pays"].items(), rows):
        assert row.startswith(f"{name}{paid['reward']:.3f}")
    first = texts(chromium, "[aria-label='Agreement of the judge with a reader'] tbody tr")[0]
    assert f"{exam['agreement']['answers of a model']['agreement']['value']:.2f} [" in first
