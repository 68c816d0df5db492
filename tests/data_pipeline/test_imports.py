"""The five published layouts, in files written by the real libraries: every value lands where it means the same; what is wrong is named."""

import json
import re

import pytest

from papergym.data_pipeline.imports import import_files
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.judge.scoring import combine

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PLAN_GEN = [
    {
        "Goal": "Find out whether caches pay.",
        "Rubric": ["Compares with no cache.", "Reports tail latency."],
        "Reference solution": "Run both.",
        "article_id": "2501.00001",
        "q_id": "q7",
        "Subdomain": "systems",
        "Category": "ml",
    },
    {
        "Goal": "Second goal.",
        "Rubric": ["One."],
        "Reference solution": "Do it.",
        "article_id": "2501.00001",
        "q_id": "q8",
        "Subdomain": "theory",
        "Category": None,
    },
]
RESEARCHQA = [
    {
        "id": "17",
        "general_domain": "Life Sciences",
        "subdomain": "Biology",
        "field": "Ecology",
        "query": "How do lichens spread?",
        "date": "2020-05-01",
        "rubric": [
            {"rubric_item": "Names wind.", "type": "answer", "citation_metadata": {"title": "On lichens", "year": 2001}},
            {"rubric_item": "Cites a survey.", "type": "citation", "citation_metadata": None},
        ],
    }
]
RUBRICHUB = [
    {
        "prompt": [{"role": "user", "content": "Why is ice slippery?"}],
        "Rubrics": [{"criterion": "Names the liquid layer.", "points": 7}, {"criterion": "Says friction melts all.", "points": -3}],
    }
]
RAR = [
    {
        "question": "What is entropy?",
        "reference_answer": "A count.",
        "rubric": [
            {"title": "Definition", "description": "Essential Criteria: defines it.", "weight": 5},
            {"title": "Slip", "description": "Pitfall Criteria: calls it energy.", "weight": -1},
        ],
    }
]
HEALTHBENCH = [
    {
        "prompt": [
            {"role": "user", "content": "I have a cough."},
            {"role": "assistant", "content": "For how long?"},
            {"role": "user", "content": "A month."},
        ],
        "rubrics": [
            {"criterion": "Advises to see a doctor.", "points": 8, "tags": ["level:example", "axis:accuracy"]},
            {"criterion": "Prescribes antibiotics.", "points": -6.5, "tags": []},
        ],
    }
]
RECORDS = {
    "research-plan-gen": PLAN_GEN,
    "researchqa": RESEARCHQA,
    "rubrichub": RUBRICHUB,
    "rar-science": RAR,
    "healthbench": HEALTHBENCH,
}
KINDS = {"research-plan-gen": "parquet", "researchqa": "json", "rubrichub": "parquet", "rar-science": "parquet", "healthbench": "jsonl"}


def write(path, records):
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(records), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def imported(tmp_path, name, records, suffix=None, **options):
    source = write(tmp_path / f"source.{suffix or KINDS[name]}", records)
    summary = import_files(name, [source], tmp_path / "out.jsonl", **options)
    return read_environments(summary.out), [json.loads(line) for line in summary.rejects.read_text().splitlines()]


def test_research_plan_gen(tmp_path):
    (first, second), rejects = imported(tmp_path, "research-plan-gen", PLAN_GEN)
    assert (first.id, first.domain, first.question) == ("2501.00001/q7", "ml", "Find out whether caches pay.")
    assert [criterion.text for criterion in first.rubric] == ["Compares with no cache.", "Reports tail latency."]
    assert first.reference == "Run both." and first.provenance["paper"] == second.provenance["paper"] == "2501.00001"
    assert second.domain == "theory" and rejects == []


def test_researchqa(tmp_path):
    (environment,), _ = imported(tmp_path, "researchqa", RESEARCHQA)
    assert (environment.id, environment.domain, environment.question) == ("17", "Life Sciences", "How do lichens spread?")
    assert [criterion.text for criterion in environment.rubric] == ["Names wind.", "Cites a survey."]
    assert environment.reference is None and environment.provenance["date"] == "2020-05-01"
    assert environment.provenance["criteria"] == [
        {"type": "answer", "citation_metadata": {"title": "On lichens", "year": 2001}},
        {"type": "citation"},
    ]


def test_rubrichub_points_that_count_against_a_plan(tmp_path):
    (environment,), _ = imported(tmp_path, "rubrichub", RUBRICHUB, domain="physics")
    assert (environment.id, environment.domain, environment.question) == ("source-1", "physics", "Why is ice slippery?")
    assert environment.messages == ({"role": "user", "content": "Why is ice slippery?"},)
    weights = [criterion.weight for criterion in environment.rubric]
    assert weights == [7.0, -3.0]
    scores = [combine(verdicts, [], 1.0, weights) for verdicts in ((True, False), (True, True), (False, True))]
    assert scores == pytest.approx([1.0, 4 / 7, 0.0])


def test_rar_science(tmp_path):
    (environment,), _ = imported(tmp_path, "rar-science", RAR)
    assert (environment.question, environment.reference) == ("What is entropy?", "A count.")
    assert [(c.text, c.weight) for c in environment.rubric] == [
        ("Essential Criteria: defines it.", 5.0),
        ("Pitfall Criteria: calls it energy.", -1.0),
    ]
    assert environment.provenance["criteria"] == [{"title": "Definition"}, {"title": "Slip"}]


def test_healthbench_keeps_the_conversation_and_tells_it_as_a_question(tmp_path):
    (environment,), _ = imported(tmp_path, "healthbench", HEALTHBENCH)
    assert [message["content"] for message in environment.messages] == ["I have a cough.", "For how long?", "A month."]
    assert environment.question == "User: I have a cough.\n\nAssistant: For how long?\n\nUser: A month."
    assert [criterion.weight for criterion in environment.rubric] == [8.0, -6.5]
    assert environment.provenance["criteria"][0] == {"tags": ["level:example", "axis:accuracy"]} and environment.domain == "health"


@pytest.mark.parametrize("name", RECORDS)
def test_the_content_tells_the_kind_of_file(tmp_path, name):
    found = [imported(tmp_path, name, RECORDS[name], suffix)[0] for suffix in ("parquet", "json", "jsonl")]
    assert found[0] and [e.question for e in found[0]] == [e.question for e in found[1]] == [e.question for e in found[2]]
    assert [e.rubric for e in found[0]] == [e.rubric for e in found[1]] == [e.rubric for e in found[2]]


def broken(name, change):
    record = json.loads(json.dumps(RECORDS[name][0]))
    change(record)
    return record


BAD = [
    ("research-plan-gen", lambda r: r.update(Goal="  "), r"Goal: a non-empty string is needed, not '  '"),
    ("research-plan-gen", lambda r: r.update(Rubric=[]), r"Rubric: a list with at least one entry is needed, not \[\]"),
    ("research-plan-gen", lambda r: r.update(Rubric=["a", ""]), r"Rubric\[1\]: a non-empty string is needed, not ''"),
    ("research-plan-gen", lambda r: r.pop("Reference solution"), "Reference solution: a non-empty string is needed, not nothing"),
    ("research-plan-gen", lambda r: r.update(q_id=[1]), r"q_id: a string, a whole number or a date is needed, not \[1\]"),
    ("researchqa", lambda r: r.pop("query"), "query: a non-empty string is needed, not nothing"),
    ("researchqa", lambda r: r["rubric"].append("text"), r"rubric\[2\]: an object is needed, not 'text'"),
    ("researchqa", lambda r: r["rubric"][1].pop("rubric_item"), r"rubric\[1\].rubric_item: a non-empty string is needed, not nothing"),
    ("rubrichub", lambda r: r["Rubrics"][0].update(points="7"), r"Rubrics\[0\].points: a finite number is needed, not '7'"),
    ("rubrichub", lambda r: r["Rubrics"][0].update(points=True), r"Rubrics\[0\].points: a finite number is needed, not True"),
    ("rubrichub", lambda r: r.update(prompt="Why?"), r"prompt: a list with at least one entry is needed, not 'Why\?'"),
    ("rubrichub", lambda r: r["Rubrics"][0].update(points=0), "rubric: no criterion has positive points, so no plan could be scored"),
    ("rar-science", lambda r: r["rubric"][1].pop("weight"), r"rubric\[1\].weight: a finite number is needed, not nothing"),
    ("healthbench", lambda r: r["prompt"][0].pop("role"), r"prompt\[0\].role: a non-empty string is needed, not nothing"),
    ("healthbench", lambda r: r.update(rubrics={}), r"rubrics: a list with at least one entry is needed, not {}"),
]


@pytest.mark.parametrize(("name", "change", "sentence"), BAD, ids=[f"{name}-{index}" for index, (name, *_) in enumerate(BAD)])
def test_a_bad_record_is_named_and_the_others_are_kept(tmp_path, name, change, sentence):
    good = RECORDS[name][0]
    other = broken(name, lambda record: record.update(id="other", q_id="other", prompt_id="other"))
    environments, rejects = imported(tmp_path, name, [good, broken(name, change), other], "jsonl")
    assert len(environments) == 2
    assert [(reject["file"], reject["record"]) for reject in rejects] == [(str(tmp_path / "source.jsonl"), 2)]
    assert re.fullmatch(rf".*source\.jsonl, record 2, {sentence}", rejects[0]["reason"])


def test_a_line_that_is_no_json_or_no_object_and_an_id_used_twice_are_rejected(tmp_path):
    source = tmp_path / "lines.jsonl"
    line = json.dumps(RESEARCHQA[0])
    source.write_text(f'\ufeff{line}\n\n{{"id": \n[1]\n{line}\n', encoding="utf-8")
    summary = import_files("researchqa", [source], tmp_path / "out.jsonl")
    reasons = [json.loads(line)["reason"] for line in summary.rejects.read_text().splitlines()]
    assert (summary.environments, summary.rejected) == (1, 3)
    assert "record 2, not valid JSON" in reasons[0] and "record 3, an object is needed, not list" in reasons[1]
    assert f"record 4, id: '17' was already used by record 1 of {source}" in reasons[2]


def test_several_files_are_read_in_order(tmp_path):
    files = [write(tmp_path / f"{name}.parquet", RUBRICHUB) for name in ("b", "a")]
    summary = import_files("rubrichub", files, tmp_path / "out.jsonl")
    assert [environment.id for environment in read_environments(summary.out)] == ["b-1", "a-1"]


def test_nothing_usable_leaves_the_old_file(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    source = write(tmp_path / "wrong.jsonl", HEALTHBENCH)
    with pytest.raises(InputError, match=r"no record can be read as rar-science; the first reason: .*record 1, rubric: a list"):
        import_files("rar-science", [source], out)
    assert out.read_text() == "old" and json.loads((tmp_path / "out.rejects.jsonl").read_text())["record"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"[1, 2", "not valid JSON"),
        (b"PAR1 and then nothing", "can't be read as parquet"),
        (b"[]", "no record can be read as researchqa, since there are none"),
    ],
)
def test_a_file_that_is_broken_as_a_whole(tmp_path, content, message):
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(InputError, match=message):
        import_files("researchqa", [tmp_path / "data"], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_a_cut_parquet_file_is_no_data(tmp_path):
    whole = write(tmp_path / "whole.parquet", PLAN_GEN).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    with pytest.raises(InputError, match=r"cut\.parquet: can't be read as parquet .*cut off"):
        import_files("research-plan-gen", [tmp_path / "cut.parquet"], tmp_path / "out.jsonl")


def test_a_format_of_ones_own_and_one_that_is_unknown(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from papergym.environment import Criterion, Environment\n"
        "def read(record, name):\n"
        "    return Environment(name, 'cs', record.text('q'), (Criterion(record.text('c'), weight=record.number('w')),))\n"
        "def short(record):\n"
        "    return None\n"
        "def wrong(record, name):\n"
        "    return {'id': name}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = write(tmp_path / "mine.jsonl", [{"q": "Why?", "c": "So.", "w": 2}])
    import_files("mine:read", [source], tmp_path / "out.jsonl")
    (environment,) = read_environments(tmp_path / "out.jsonl")
    assert (environment.id, environment.question, environment.rubric[0].weight) == ("mine-1", "Why?", 2.0)
    with pytest.raises(
        InputError, match=r"format 'mine:short': it takes \(record\), where a function of \(record, fallback_id\) is needed"
    ):
        import_files("mine:short", [source], tmp_path / "out.jsonl")
    with pytest.raises(InputError, match=r"record 1, the format returned dict, where an Environment is needed"):
        import_files("mine:wrong", [source], tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="unknown format 'arxiv': use one of healthbench"):
        import_files("arxiv", [source], tmp_path / "out.jsonl")
