"""The bench that kills the trainers, for two kills, in a process of its own: it forks, which one that has trained can't."""

import subprocess
import sys

import pytest

from papergym.files import read_jsonl


@pytest.mark.slow
def test_killed_runs_end_as_an_undisturbed_one(tmp_path):
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "papergym.bench.kill_training", "--kills", "2", "--steps", "2", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    header, *kills = [record for _, record in read_jsonl(out)]
    assert header["undisturbed"]["cpu_seconds"] > 0 and header["versions"]["torch"]
    assert [kill["equal"] for kill in kills] == [True, True] and all(kill["files"] > 30 for kill in kills)
