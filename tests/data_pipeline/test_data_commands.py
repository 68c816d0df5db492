"""import, split, benchmark, export and import again, as a user types them."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.environment import Criterion, Environment, read_environments, write_environments

pytest.importorskip("pyarrow")
pytest.importorskip("datasketch")

STAGES = {"goal": "g", "background": "b", "method": "weigh by age", "experiment": "replay traces"}
MADE = [
    Environment(
        f"{domain}{n}",
        domain,
        f"Question {n} of {domain}?",
        (Criterion("m", "method"), Criterion("e", "experiment")),
        reference="r",
        stages={name: f"{text} {domain} {n}" for name, text in STAGES.items()},
        provenance={"paper": f"{domain}{n}", "date": f"202{4 + n % 3}-02-03"},
    )
    for domain in ("cs", "econ")
    for n in range(6)
]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result.stderr if code else result.output


def test_from_a_data_set_to_benchmarks_and_back(tmp_path):
    write_environments(tmp_path / "made.jsonl", MADE)
    printed = run("import", "papergym", tmp_path / "made.jsonl", "--out", tmp_path / "all.jsonl")
    assert printed.startswith("12 environments in") and "0 records rejected" in printed
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    options = ["--after", "2026-01-01", "--per-domain", 1, "--similarity", 0.9, "--subset", 2, "--domain", "cs", "--domain", "econ"]
    printed = run("split", tmp_path / "all.jsonl", "--train", train, "--heldout", heldout, *options)
    assert [line.split(" ")[0] for line in printed.splitlines()] == ["8", "2", str(tmp_path / "train-2.jsonl"), "2"]
    assert {e.provenance["date"] for e in read_environments(train)} == {"2024-02-03", "2025-02-03"}
    assert [e.domain for e in read_environments(tmp_path / "train-2.jsonl")] == ["cs", "econ"]
    printed = run("benchmark", heldout, "--out", tmp_path / "bench")
    assert [line.split(" ")[0] for line in printed.splitlines()] == ["2", "2", "0"]
    run("export", train, heldout, "--out", tmp_path / "set")
    run("import", "papergym", tmp_path / "set", "--out", tmp_path / "back.jsonl")
    back = {e.id: e for e in read_environments(tmp_path / "back.jsonl")}
    assert len(back) == 10 and back["cs0"] == replace(MADE[0], split="train") and sum(e.split == "heldout" for e in back.values()) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["import", "arxiv", "all.jsonl", "--out", "o.jsonl"], "unknown format 'arxiv'"),
        (["import", "healthbench", "all.jsonl", "--out", "o.jsonl"], "no record can be read as healthbench"),
        (["split", "all.jsonl", "--train", "t.jsonl", "--heldout", "t.jsonl"], "need two files"),
        (["split", "all.jsonl", "--train", "t.jsonl", "--heldout", "h.jsonl", "--domain", "law"], "domain 'law': no environment has it"),
        (["split", "all.jsonl", "--train", "t.jsonl", "--heldout", "h.jsonl", "--after", "2030-01-01"], "0 held out"),
        (["split", "all.jsonl", "--train", "t.jsonl", "--heldout", "h.jsonl", "--similarity", "2"], "similarity 2.0: a number"),
        (["split", "all.jsonl", "--train", "t.jsonl", "--heldout", "h.jsonl", "--subset", "50"], "subset of 50"),
        (["export", "all.jsonl", "--out", "."], "is there already"),
        (["export", "all.jsonl", "all.jsonl", "--out", "o.parquet"], "id: used twice"),
        (["audit", "all.jsonl", "--out", "o", "--judge", "lexical"], "a judge of kind 'llm' is needed"),
        (["audit", "all.jsonl", "--out", "o", "--labels", "all.jsonl"], "the columns key and label are needed"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    write_environments(tmp_path / "all.jsonl", MADE)
    (line,) = run(*arguments, code=2).splitlines()
    assert line.startswith("papergym: ") and sentence in line
    left = {path.name for path in tmp_path.iterdir()} - {"all.jsonl", "o.rejects.jsonl"}
    assert left == set()


def test_what_is_named_is_what_is_asked_for(tmp_path):
    write_environments(tmp_path / "all.jsonl", MADE)
    run("split", tmp_path / "all.jsonl", "--train", tmp_path / "t.jsonl", "--heldout", tmp_path / "h.jsonl", "--seed", 3, "--share", 0.25)
    assert len(read_environments(tmp_path / "h.jsonl")) == 3
    run("audit", tmp_path / "t.jsonl", tmp_path / "h.jsonl", "--out", tmp_path / "audit")
    figures = json.loads((tmp_path / "audit/audit.json").read_text())
    assert figures["duplicates"]["across"] == {"t, h": 0} and figures["files"]["h"]["composition"]["environments"] == 3
