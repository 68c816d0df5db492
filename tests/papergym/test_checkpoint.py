import pytest
import torch

from papergym.checkpoint import latest_checkpoint, load_checkpoint, prune_checkpoints, save_checkpoint
from papergym.errors import InputError

STATE = {"adapter": {"a": torch.arange(4.0)}, "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}}


def test_round_trip_keeps_the_newest(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, STATE, {"model": "m"}, keep=2)
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
        save_checkpoint(tmp_path, step, STATE, {}, keep=3)
    (tmp_path / "step_00000001").rename(tmp_path / ".step_00000001.old")  # killed while it was being removed
    (tmp_path / ".step_00000004.tmp").mkdir()
    prune_checkpoints(tmp_path, keep=1)
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
