import json
import math
import subprocess
import sys

import pytest
import torch

from papergym.checkpoint import (
    Retention,
    best_checkpoint,
    differing_versions,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from papergym.errors import InputError

STATE = {"adapter": {"a": torch.arange(4.0)}, "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}}


def test_round_trip_keeps_the_newest(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, STATE, {"model": "m"}, Retention(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000002", "step_00000003"]
    path = latest_checkpoint(tmp_path)
    assert path is not None and path.name == "step_00000003"
    torch.testing.assert_close(load_checkpoint(path, {"model": "m"})["adapter"]["a"], torch.arange(4.0), rtol=0, atol=0)


def test_half_written_ones_are_not_seen(tmp_path):
    save_checkpoint(tmp_path, 1, STATE, {})
    (tmp_path / ".step_00000002.tmp").mkdir()
    (tmp_path / "step_00000003").mkdir()
    path = latest_checkpoint(tmp_path)
    assert path is not None and path.name == "step_00000001"
    assert latest_checkpoint(tmp_path / "absent") is None


def test_what_a_kill_left_is_cleared(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, STATE, {}, Retention(3))
    (tmp_path / "step_00000001").rename(tmp_path / ".step_00000001.old")  # killed while it was being removed
    (tmp_path / ".step_00000004.tmp").mkdir()
    prune_checkpoints(tmp_path, Retention(1))
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000003"]


def test_a_flipped_byte_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, 1, STATE, {})
    content = bytearray((path / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "state.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"state\.pt.*checksum"):
        load_checkpoint(path, {})


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, 1, STATE, {"optim.lr": 0.1})
    with pytest.raises(InputError, match=r"optim\.lr was 0\.1 .* is 0\.2"):
        load_checkpoint(path, {"optim.lr": 0.2})


def test_the_best_by_a_metric_stays(tmp_path):
    values = {1: 0.2, 2: 0.9, 3: math.nan, 4: 0.9, 5: 0.1}
    for best_by, kept in (("reward", 2), ("-reward", 5), ("other", None)):
        retention, place = Retention(1, best_by), tmp_path / best_by
        for step, value in values.items():
            save_checkpoint(place, step, STATE, {}, retention, {"reward": value})
        best = best_checkpoint(place, retention)
        assert (best and best.name) == (kept and f"step_{kept:08d}")
        assert {path.name for path in place.iterdir()} == {f"step_{step:08d}" for step in {kept or 5, 5}}


def test_a_full_disk_is_one_sentence_and_leaves_what_was_there(tmp_path):
    save_checkpoint(tmp_path, 1, STATE, {})
    code = f"""if True:
        import resource, signal, torch
        from papergym.checkpoint import save_checkpoint
        from papergym.errors import exit_on_input_error
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # beyond the limit a write fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))
        with exit_on_input_error():
            save_checkpoint({str(tmp_path)!r}, 2, {{"a": torch.zeros(100000)}}, {{}})
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "step_00000002: can't be written (File too large); make room" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000001"]
    assert load_checkpoint(tmp_path / "step_00000001", {})["adapter"]["a"].tolist() == [0, 1, 2, 3]


def test_another_version_is_told(tmp_path):
    path = save_checkpoint(tmp_path, 1, STATE, {})
    assert differing_versions(path) == ""
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["versions"]["torch"] == torch.__version__
    manifest["versions"]["torch"] = "1.0"
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert differing_versions(path) == "torch 1.0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": []}, "not a whole checkpoint"),
        ({"sha256": {}}, "not a whole checkpoint"),
        ({"metrics": None}, "not a whole checkpoint"),
        ({"versions": 1}, "not a whole checkpoint"),
        ({"metrics": {"reward": "high"}}, "the metric 'reward' is no number"),
        ({"metrics": {"reward": True}}, "the metric 'reward' is no number"),
    ],
)
def test_a_manifest_that_was_changed_by_hand_is_refused(tmp_path, change, words):
    path = save_checkpoint(tmp_path, 1, STATE, {}, metrics={"reward": 0.5, "kl": math.nan})
    manifest = json.loads((path / "manifest.json").read_text())
    assert load_checkpoint(path, {}) and manifest["metrics"] == {"reward": 0.5, "kl": None}
    (path / "manifest.json").write_text(json.dumps(manifest | change))
    for read in (
        lambda: load_checkpoint(path, {}),
        lambda: best_checkpoint(tmp_path, Retention(1, "reward")),
        lambda: differing_versions(path),
    ):
        with pytest.raises(InputError, match=f"step_00000001.*{words}.*delete"):
            read()
