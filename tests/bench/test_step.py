"""The bench of a whole step, in small: both contenders compute the same, and a difference is told."""

import dataclasses
import json

import pytest

from papergym.bench import step
from papergym.errors import InputError

SHAPE = step.Shape(hidden=128, layers=2, vocabulary=1000, sequences=2, tokens=16, samples=2, prompt=4, sampled=4, rank=4)


@pytest.mark.slow
def test_figures_of_a_small_run(tmp_path, capsys):
    step.report(SHAPE, "cpu", "float32", 2, tmp_path / "step.jsonl")
    ours, theirs = (json.loads(line) for line in (tmp_path / "step.jsonl").read_text().splitlines())
    assert (ours["implementation"], theirs["implementation"]) == ("papergym", "Hugging Face, PEFT")
    for record in (ours, theirs):
        assert record["step"]["tokens_per_second"] == pytest.approx(2 * 16 / record["step"]["seconds"])
        assert record["sampling"]["tokens_per_second"] == pytest.approx(2 * 4 / record["sampling"]["seconds"])
        assert record["utilisation"] == pytest.approx(SHAPE.flop() / record["step"]["seconds"] / record["product_flop_per_second"])
        assert record["step"]["seconds"] >= max(record[name]["shortest"] for name in step.PHASES)
    printed = capsys.readouterr().out
    assert "sampling, tokens/s" in printed and "utilisation" in printed


def test_arithmetic_of_a_step_by_hand():
    layer = 2 * 128 * 3 * 64 + 3 * 128 * 384
    adapters = 4 * (2 * (128 + 128) + 2 * (128 + 64) + 3 * (128 + 384))
    scores = 4 * 2 * 64 * (16 + 1) / 2
    assert SHAPE.flop() == 2 * 16 * (2 * (2 * 2 * layer + 2 * scores + 2 * 1000 * 128) + 6 * 2 * adapters)


@pytest.mark.slow
def test_a_contender_that_computes_something_else_is_refused(monkeypatch):
    def scaled(*arguments):
        contender = ours(*arguments)
        return dataclasses.replace(contender, loss=lambda: 1.01 * contender.loss())

    ours = step._ours
    monkeypatch.setattr(step, "_ours", scaled)
    with pytest.raises(InputError, match=r"the two disagree: loss .*, gradients 1\.0e-02 apart"):
        step.report(SHAPE, "cpu", "float32", 1, None)
