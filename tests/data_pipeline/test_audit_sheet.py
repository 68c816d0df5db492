"""Sheets: what is written is what is read back, in both forms, and agreement with the judge comes out as by hand."""

import csv
import html
import json
import re

import pytest

from papergym.data_pipeline.audits.command import run_audit
from papergym.data_pipeline.audits.labels import label_key, read_labels
from papergym.environment import Criterion, Environment, write_environments
from papergym.errors import InputError
from papergym.files import write_jsonl

pytest.importorskip("datasketch")

# By words the first and the third criterion of each are leaked, the second and the fourth are not.
ENVIRONMENTS = [
    Environment(
        f"e{n}",
        "cs" if n % 2 else "econ",
        f"Do lossy {name} evict popular entries?",
        tuple(
            Criterion(text)
            for text in (f"Evicts lossy {name}.", "=Frozen lakes, “thaw”;\nslowly.", "Popular entries evict.", "Walk on foot.")
        ),
        reference="Let them.",
    )
    for n, name in enumerate(("caches", "ledgers", "gardens"))
]
ANSWERS = [
    {"environment": f"e{n}", "sample": 0, "plan": f"@plan {n}", "specialised": [True, False, None, True], "general": []} for n in range(3)
] + [{"environment": "e0", "sample": 1, "plan": None, "specialised": [False] * 4, "general": []}]


@pytest.fixture
def files(tmp_path):
    write_environments(tmp_path / "set.jsonl", ENVIRONMENTS)
    write_jsonl(tmp_path / "base.jsonl", ANSWERS)
    return tmp_path


def audit(files, answers=False, **options):
    return run_audit([files / "set.jsonl"], files / "out", answers=[files / "base.jsonl"] if answers else (), **options)


def keys(environment, plan=None):
    return [label_key(environment.question, criterion.text, plan) for criterion in environment.rubric]


def save(path, labels):
    """As the page does it, or as a spreadsheet does with the table."""
    if path.suffix == ".json":
        path.write_text(json.dumps({"sheet": "x", "labels": labels}))
        return path
    with open(path.parent / "out/sheet.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    written = [[row[0], {True: "Yes", False: "0", None: " "}[labels.get(row[0])], *row[2:]] for row in rows[1:]]
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows([rows[0], *written])
    return path


def figures(files):
    return json.loads((files / "out/audit.json").read_text())["agreement"]


def test_a_sheet_holds_the_texts_and_no_verdict(files):
    text = audit(files, answers=True, sheet=3)
    assert text.startswith("24 criteria of 6 rubrics to label")
    page = (files / "out/sheet.html").read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data" data-sheet="\w+">(.*?)</script>', page, re.DOTALL)[1])
    assert sorted(item["kind"] for item in data) == ["leakage"] * 3 + ["verdict"] * 3
    assert {item["plan"] for item in data} == {None, "@plan 0", "@plan 1", "@plan 2"}
    assert {item["question"] for item in data} == {environment.question for environment in ENVIRONMENTS}
    assert all(set(item) == {"kind", "question", "reference", "plan", "criteria"} for item in data)
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", page) and "default-src 'none'" in html.unescape(page)
    with open(files / "out/sheet.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["key"] for row in rows} == {key for item in data for key, _ in item["criteria"]} and len(rows) == 24
    assert {row["label"] for row in rows} == {""}
    assert {row["criterion"][:2] for row in rows} & {"'=", "=F"} == {"'="} and {row["plan"][:2] for row in rows} == {"", "'@"}
    assert not (files / "out/audit.json").exists()


def test_the_sample_is_drawn_by_seed(files):
    drawn = set()
    for seed in range(8):
        audit(files, sheet=1, seed=seed)
        drawn.add((files / "out/sheet.csv").read_text(encoding="utf-8-sig").count("gardens"))
    assert drawn == {0, 5}  # four questions and one criterion name them, if it is drawn


@pytest.mark.parametrize("name", ["labels.json", "labels.csv"])
def test_agreement_on_leakage_by_hand(files, name):
    # Words: + - + -. The person agrees on seven of eight and skips the last environment.
    labels = dict(zip(keys(ENVIRONMENTS[0]) + keys(ENVIRONMENTS[1]), [True, False, True, False, True, False, False, False]))
    audit(files, sheet=3)
    text = audit(files, labels=[save(files / name, labels)])
    found = figures(files)["leakage"]
    (pair,) = found["pairs"]
    assert pair["judges"] == ["words", "person labels"] and pair["all"]["verdicts"] == 8
    assert pair["all"]["agreement"]["mean"] == pytest.approx(7 / 8)
    assert pair["all"]["kappa"]["mean"] == pytest.approx((7 / 8 - 1 / 2) / (1 - 1 / 2))
    assert pair["all"]["kappa"]["low"] == pytest.approx(0.5) and pair["all"]["kappa"]["high"] == pytest.approx(1.0)
    assert found["judges"]["person labels"]["strictness"]["all"]["mean"] == pytest.approx(3 / 8)
    assert "Agreement on leakage" in text and "0.75 [0.50, 1.00]" in text and figures(files)["verdicts"] is None


@pytest.mark.parametrize("name", ["labels.json", "labels.csv"])
def test_agreement_on_verdicts_by_hand(files, name):
    # The judge says + - ? + three times. The person: ++ +, --, and one skipped; what the judge did not score is left out.
    given = [[True, False, True, True], [True, False, False, False], [None, True, None, True]]
    labels = {
        key: value for n, row in enumerate(given) for key, value in zip(keys(ENVIRONMENTS[n], f"@plan {n}"), row) if value is not None
    }
    audit(files, answers=True, sheet=3)
    audit(files, answers=True, labels=[save(files / name, labels)])
    (pair,) = figures(files)["verdicts"]["pairs"]
    # Both met 4, only the judge 1, only the person 1, neither 2: expected (5·5 + 3·3) / 64.
    assert pair["all"]["verdicts"] == 8 and pair["all"]["agreement"]["mean"] == pytest.approx(6 / 8)
    assert pair["all"]["kappa"]["mean"] == pytest.approx((6 / 8 - 34 / 64) / (1 - 34 / 64))
    assert figures(files)["leakage"] is None


def test_two_people_are_compared_with_each_other(files):
    first = dict(zip(keys(ENVIRONMENTS[0]), [True, False, True, False]))
    second = dict(zip(keys(ENVIRONMENTS[0]) + keys(ENVIRONMENTS[1]), [True, True, True, False] * 2))
    audit(files, labels=[save(files / "ann.json", first), save(files / "ben.json", second)])
    pairs = {tuple(pair["judges"]): pair["all"] for pair in figures(files)["leakage"]["pairs"]}
    assert pairs["person ann", "person ben"]["verdicts"] == 4 and pairs["person ann", "person ben"]["agreement"]["mean"] == 3 / 4
    assert pairs["words", "person ann"]["agreement"]["mean"] == 1 and pairs["words", "person ben"]["verdicts"] == 8


def test_labels_belong_to_texts_and_not_to_places(files):
    labels = dict(zip(keys(ENVIRONMENTS[1]), [True, False, True, False]))
    write_environments(files / "set.jsonl", [ENVIRONMENTS[2], ENVIRONMENTS[1]])
    audit(files, labels=[save(files / "ann.json", labels)])
    assert figures(files)["leakage"]["pairs"][0]["all"]["agreement"]["mean"] == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"labels": {"leakage-0": true}}', "a.json, leakage-0: a label of nothing in the files"),
        ("a.json", '{"labels": {"leakage-0": 1}}', "a.json, leakage-0: true or false is needed, not 1"),
        ("a.json", "[]", "a.json, labels: an object is needed"),
        ("a.json", '{"labels"', "a.json: not valid JSON"),
        ("a.csv", "key,label\nleakage-0,maybe\n", "a.csv, line 2, label: 1 or 0 is needed, not 'maybe'"),
        ("a.csv", "name,label\nx,1\n", "a.csv, line 2: the columns key and label are needed"),
        ("a.csv", b"key,label\n\xff,1\n", "a.csv: not UTF-8"),
        ("a.csv", "key,label\nleakage-0," + "1" * 200_000, "a.csv, after line 1: not CSV"),
    ],
)
def test_labels_that_can_not_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=re.escape(message)):
        read_labels([tmp_path / name], {"set": ENVIRONMENTS}, {})


def test_two_files_of_one_person_or_row_are_refused(files):
    with pytest.raises(InputError, match=r"ann\.csv: another file is named ann too"):
        read_labels([save(files / "ann.json", {}), files / "ann.csv"], {"set": ENVIRONMENTS}, {})
    with pytest.raises(InputError, match=r"base\.jsonl: another file is named base too"):
        run_audit([files / "set.jsonl"], files / "out", answers=[files / "base.jsonl"] * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"environment": "none"}, "line 1, environment: 'none' is not in the files"),
        ({"specialised": [True]}, "line 1, specialised: a verdict for each of 4 criteria"),
        ({"specialised": [True, False, "yes", None]}, "line 1, specialised"),
        ({"plan": None}, "no answers with a plan"),
    ],
)
def test_answers_that_can_not_be_read(files, change, message):
    write_jsonl(files / "base.jsonl", [ANSWERS[0] | change])
    with pytest.raises(InputError, match=re.escape(message)):
        audit(files, answers=True, sheet=1)
