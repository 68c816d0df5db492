"""The bench of a whole step, in small: both contenders compute the same, and a difference is told."""

import gzip
import json

import pytest

from papergym.bench import step, step_peers
from papergym.errors import InputError

SHAPE = step.Shape(hidden=128, layers=2, vocabulary=1000, sequences=2, tokens=16, groups=(1, 2), samples=2, prompt=4, sampled=4, rank=4)


@pytest.mark.slow
def test_figures_of_a_small_run(tmp_path, capsys):
    step.report(SHAPE, "cpu", "float32", step.PHASES, 2, "", None, tmp_path / "step.jsonl")
    records = [json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines()]
    ours, theirs, sft, grpo = records
    assert [record["implementation"] for record in records] == ["papergym", "Hugging Face, PEFT", "TRL SFT", "TRL GRPO"]
    for record in (ours, theirs, sft):
        assert record["step"]["tokens_per_second"] == pytest.approx(2 * 16 / record["step"]["seconds"])
        assert record["utilisation"] == pytest.approx(SHAPE.flop() / record["step"]["seconds"] / record["product_flop_per_second"])
    for record in (ours, theirs):
        assert record["sampling 4"]["tokens_per_second"] == pytest.approx(2 * 2 * 4 / record["sampling 4"]["seconds"])
        assert record["step"]["seconds"] >= max(record[name]["shortest"] for name in ("forward", "backward", "optimizer"))
    for record in (ours, grpo):
        assert record["GRPO"]["tokens_per_second"] == pytest.approx(2 * 4 / record["GRPO"]["seconds"])
    printed = capsys.readouterr().out
    assert "sampling 2, tokens/s" in printed and "utilisation" in printed


def test_arithmetic_of_a_step_by_hand():
    layer = 2 * 128 * 3 * 64 + 3 * 128 * 384
    adapters = 4 * (2 * (128 + 128) + 2 * (128 + 64) + 3 * (128 + 384))
    scores = 4 * 2 * 64 * (16 + 1) / 2
    assert SHAPE.flop() == 2 * 16 * (2 * (2 * 2 * layer + 2 * scores + 2 * 1000 * 128) + 6 * 2 * adapters)


@pytest.mark.slow
def test_a_contender_that_computes_something_else_is_refused(monkeypatch):
    def scaled(*arguments):
        figures = step_peers.papergym_training(*arguments)
        loss, gradient = figures["check"]
        return figures | {"check": (1.01 * loss, 1.01 * gradient)}

    monkeypatch.setattr(
        step,
        "_contenders",
        lambda _: {"papergym": {"training": scaled}, "Hugging Face, PEFT": {"training": step_peers.hugging_face_training}},
    )
    monkeypatch.setattr(step, "_in_new_process", lambda measure, *arguments: measure(*arguments))
    with pytest.raises(InputError, match=r"the two disagree: loss .*, gradients 1\.0e-02 apart"):
        step.report(SHAPE, "cpu", "float32", ["training"], 1, "Hugging", None, None)


@pytest.mark.slow
def test_a_phase_alone(tmp_path):
    step.report(SHAPE, "cpu", "bfloat16", ["sampling"], 1, "", None, tmp_path / "step.jsonl")
    records = [json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines()]
    assert [record["implementation"] for record in records] == ["papergym", "Hugging Face, PEFT"]
    assert all("sampling 4" in record and not {"step", "utilisation", "GRPO"} & record.keys() for record in records)


@pytest.mark.slow
def test_traces_of_time_and_of_memory(tmp_path, capsys):
    step.trace(SHAPE, "cpu", "float32", tmp_path / "time", tmp_path / "memory")
    assert "Self CPU Mem" in (tmp_path / "memory" / "operators.txt").read_text() and "aten::mm" in capsys.readouterr().out
    for name in ("time", "memory"):
        with gzip.open(tmp_path / name / "trace.json.gz") as file:
            events = json.load(file)["traceEvents"]
        assert any(event["name"] == "aten::mm" for event in events)
        assert any(event["name"] == "[memory]" for event in events) == (name == "memory")


def test_nothing_that_is_there_is_replaced(tmp_path):
    (tmp_path / "thesis.txt").write_text("dear to somebody")
    for taken in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(InputError, match="exists already; name a new folder"):
            step.trace(SHAPE, "cpu", "float32", None, taken)
    assert (tmp_path / "thesis.txt").read_text() == "dear to somebody"
