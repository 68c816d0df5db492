import pytest

from papergym.errors import InputError
from papergym.files import append_jsonl, read_jsonl
from papergym.metrics import MetricsWriter, reopen_steps


def steps(path):
    return [record["step"] for _, record in read_jsonl(path)]


def test_reopening_drops_steps_after_the_checkpoint_and_a_cut_line(tmp_path):
    writer = MetricsWriter(tmp_path)
    for step in range(1, 6):
        writer.write(step, float(step), {"loss": step / 2})
    writer.close()
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 6, "lo')
    writer = MetricsWriter(tmp_path, last_step=3)
    writer.write(4, 4.0, {"loss": 9.0})
    writer.close()
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 3, 4]
    assert [record["loss"] for _, record in read_jsonl(tmp_path / "metrics.jsonl")] == [0.5, 1.0, 1.5, 9.0]


def test_several_records_a_step(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    append_jsonl(path, [{"step": 1, "sample": 0}, {"step": 1, "sample": 1}])
    append_jsonl(path, [{"step": 2, "sample": 0}])
    assert [record["sample"] for record in reopen_steps(path, 1)] == [0, 1]
    assert steps(path) == [1, 1]
    append_jsonl(path, [{"sample": 0}])
    with pytest.raises(InputError, match=r"rollouts\.jsonl: a line without a step"):
        reopen_steps(path, 1)


def events(directory):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.wall_time, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_shows_what_metrics_hold_once_a_step_in_one_file(tmp_path):
    """Its own reader is the judge; a resumed run and one in a single go leave the same bytes."""
    values = {1: {"loss": 0.5, "kl": float("nan")}, 2: {"loss": 0.25, "kl": 0.125}, 3: {"loss": -1.0, "kl": 2.0}}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for directory in (whole, stopped):
        writer = MetricsWriter(directory)
        for step in values:
            writer.write(step, 1e9 + step, values[step] if directory == whole or step == 1 else {"loss": 7.0, "kl": 7.0})
    resumed = MetricsWriter(stopped, last_step=1)
    for step in (2, 3):
        resumed.write(step, 1e9 + step, values[step])
    assert events(whole) == {
        "loss": [(1, 1e9 + 1, 0.5), (2, 1e9 + 2, 0.25), (3, 1e9 + 3, -1.0)],
        "kl": [(2, 1e9 + 2, 0.125), (3, 1e9 + 3, 2.0)],
    }
    [a], [b] = ((directory / "tensorboard").iterdir() for directory in (whole, stopped))
    assert (a.name, a.read_bytes()) == (b.name, b.read_bytes())
