"""The bench that kills the demo, for two kills: its records, and that it notices a file that differs."""

import pytest
from click.testing import CliRunner

from papergym.bench import kill_nine
from papergym.files import read_jsonl


@pytest.mark.slow
def test_a_killed_demo_ends_as_an_undisturbed_one(tmp_path):
    result = CliRunner().invoke(kill_nine.main, ["--kills", "2", "--seed", "1", "--out", str(tmp_path / "out.jsonl")])
    assert result.exit_code == 0, (result.output, result.exception)
    header, *kills = [record for _, record in read_jsonl(tmp_path / "out.jsonl")]
    assert header["undisturbed"]["cpu_seconds"] > 0 and header["versions"]["torch"]
    assert [kill["equal"] for kill in kills] == [True, True] and all(kill["files"] > 30 for kill in kills)


def test_a_run_that_ends_otherwise_is_counted(tmp_path, monkeypatch):
    """Commands of a shell stand in for the demo: the second call writes what the first didn't."""
    script = f"mkdir -p {tmp_path}/kept/run; date +%N >> {tmp_path}/kept/run/a; for i in $(seq 20000); do :; done"
    monkeypatch.setattr(kill_nine, "prepare", lambda work, papers: ["sh", "-c", script])
    monkeypatch.setattr(kill_nine.tempfile, "TemporaryDirectory", lambda: _Kept(tmp_path / "kept"))
    result = CliRunner().invoke(kill_nine.main, ["--kills", "2", "--out", str(tmp_path / "out.jsonl")])
    assert "2 of 2 runs ended with other files" in result.output or "2 of 2" in str(result.exception)
    assert [record["differing"] for _, record in list(read_jsonl(tmp_path / "out.jsonl"))[1:]] == [["a"], ["a"]]


def test_stages_are_named_by_the_file_written_last():
    stages = {
        None: "start",
        "run.json": "environments",
        "environments/all.jsonl": "environments",
        "eval/base.partial.jsonl": "eval/base",
        "opsd/checkpoints/step_00000001/state.pt": "opsd",
        "table.json": "report",
        "report.html": "report",
    }
    assert {file: kill_nine.stage_of(file) for file in stages} == stages


class _Kept:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.path.mkdir(exist_ok=True)
        return str(self.path)

    def __exit__(self, *error):
        return False
