"""The bench of builds, for few papers: what it counts is what the build did."""

import json

import pytest
from click.testing import CliRunner

from papergym.bench.build_scale import CALL_PAPERS
from papergym.cli import main

CALLS = 11  # that a paper of the scripted model takes
AT_ONCE = 32  # requests under way, by default


@pytest.mark.slow
def test_memory_and_calls_of_small_builds(tmp_path):
    arguments = ["bench", "build", "--size", "3", "--asked", "4", "--out", str(tmp_path / "out.jsonl")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    grown, calls = [r for r in records if "peak_mib" in r], [r for r in records if "build" in r]
    assert [(r["extractor"], r["papers"], r["environments"]) for r in grown] == [("rules", 3, 3), ("recipe", 4, 4)]
    assert all(20 < r["peak_mib"] < 200 and r["cpu_seconds"] > 0 and r["papers_per_second"] > 0 for r in grown)
    first, again, changed, killed, rest = (record["requests"] for record in calls)
    assert first == CALL_PAPERS * CALLS and again == 0 and 0 < changed < CALLS
    assert first / 2 <= killed < first and first <= killed + rest <= first + AT_ONCE
