"""The comparison table against values by hand, and the bootstrap against full enumeration."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from papergym.errors import InputError
from papergym.report import comparison_table, print_table, write_table
from papergym.report.table import format_estimate


def write_answers(
    run: Path, row: str, rewards: dict[str, list[float | None]], tokens: int = 10, cut: int = 0, entropy: float = 2.0
) -> None:
    lines = [
        {
            "environment": environment,
            "sample": sample,
            "response": "r",
            "plan": "r",
            "tokens": tokens + sample,
            "finish_reason": "length" if sample < cut else "stop",
            "specialised": [],
            "general": [],
            "reward": reward,
            "entropy": entropy + sample,
        }
        for environment, values in rewards.items()
        for sample, reward in enumerate(values)
    ]
    path = run / "eval" / f"{row}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_values_by_hand(tmp_path):
    write_answers(tmp_path, "grpo", {"a": [0.6, 0.8], "b": [0.5, 0.5], "c": [1.0, None]}, tokens=20, cut=1)
    write_answers(tmp_path, "base", {"a": [0.2, 0.4], "b": [0.6, None], "d": [None, None]})
    base, grpo = comparison_table(tmp_path)
    assert (base["row"], grpo["row"]) == ("base", "grpo")
    assert (base["environments"], base["samples"], base["unscored"], base["truncated"]) == (3, 6, 3, 0.0)
    assert base["reward"]["mean"] == pytest.approx((0.3 + 0.6) / 2)  # d has no scored answer, and is not a 0
    assert base["difference"] is None
    assert grpo["reward"]["mean"] == pytest.approx((0.7 + 0.5 + 1.0) / 3)
    assert grpo["truncated"] == pytest.approx(0.5)
    assert grpo["tokens"]["mean"] == pytest.approx(20.5)
    assert grpo["entropy"]["mean"] == pytest.approx(2.5)
    # Only a and b are scored in both: +0.4 and -0.1.
    assert grpo["difference"]["environments"] == 2
    assert grpo["difference"]["mean"] == pytest.approx(0.15)
    assert (grpo["difference"]["low"], grpo["difference"]["high"]) == (pytest.approx(-0.1), pytest.approx(0.4))


def test_pairing_removes_the_spread_between_questions(tmp_path):
    levels = dict(zip("abcdefgh", np.linspace(0.1, 0.8, 8)))
    write_answers(tmp_path, "base", {name: [level] for name, level in levels.items()})
    write_answers(tmp_path, "opsd", {name: [level + 0.1] for name, level in levels.items()})
    base, opsd = comparison_table(tmp_path)
    assert base["reward"]["high"] > opsd["reward"]["low"]  # the rows' own intervals overlap widely
    assert opsd["difference"]["low"] == pytest.approx(0.1)
    assert opsd["difference"]["high"] == pytest.approx(0.1)


def test_one_environment_has_no_interval(tmp_path):
    write_answers(tmp_path, "base", {"a": [0.2, 0.4]})
    (base,) = comparison_table(tmp_path)
    assert base["reward"] == {"mean": pytest.approx(0.3), "low": None, "high": None}
    assert format_estimate(base["reward"]) == "0.300"


def test_an_evaluation_under_way_is_not_a_row(tmp_path):
    write_answers(tmp_path, "base", {"a": [0.2]})
    (tmp_path / "eval/opsd.partial.jsonl").write_text('{"arguments": {}}\n{"fir')
    assert [row["row"] for row in comparison_table(tmp_path)] == ["base"]


def test_table_file_and_text(tmp_path):
    write_answers(tmp_path, "base", {"a": [0.2], "b": [0.4]})
    write_answers(tmp_path, "sft", {"a": [0.5], "b": [0.4]})
    table = write_table(tmp_path)
    assert json.loads((tmp_path / "table.json").read_text()) == table
    out = io.StringIO()
    print_table(table, Console(file=out, width=140))
    assert "0.450 [0.400, 0.500]" in out.getvalue()
    assert "+0.150 [+0.000, +0.300]" in out.getvalue()


def test_eighty_columns_hold_the_widest_values(tmp_path):
    write_answers(tmp_path, "base", {"a": [0.2], "b": [0.4]})
    write_answers(tmp_path, "opsd_grpo", {"a": [0.5], "b": [0.4]})
    base, row = comparison_table(tmp_path)
    table = [base | {"truncated": 1.0}, row | {"truncated": 1.0, "entropy": {"mean": 11.25, "low": None, "high": None}}]
    out = io.StringIO()
    print_table(table, Console(file=out, width=80))
    assert "100%" in out.getvalue() and "11.25" in out.getvalue() and "…" not in out.getvalue()


def test_nothing_to_compare(tmp_path):
    with pytest.raises(InputError, match=r"no answers in eval/\*\.jsonl"):
        comparison_table(tmp_path)


def test_means_of_each_seed_by_hand(tmp_path):
    write_answers(tmp_path, "base", {"a": [0.1, 0.3], "b": [0.2, 0.2]})
    write_answers(tmp_path, "grpo", {"a": [0.5, 0.9], "b": [0.3, None]})
    assert "seeds" not in comparison_table(tmp_path)[0]
    for path in (tmp_path / "eval").glob("*.jsonl"):  # one sample of each seed
        records = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(record | {"seed": f"seed{record['sample']}"}) + "\n" for record in records))
    base, grpo = comparison_table(tmp_path)
    assert base["seeds"]["seed1"] == {"reward": pytest.approx(0.25), "difference": pytest.approx(0.0)}
    assert grpo["seeds"]["seed0"] == {"reward": pytest.approx(0.4), "difference": pytest.approx(0.25)}
    assert grpo["seeds"]["seed1"] == {"reward": pytest.approx(0.9), "difference": pytest.approx(0.6)}  # b is not scored
    assert grpo["reward"]["mean"] == pytest.approx((0.7 + 0.3) / 2)
