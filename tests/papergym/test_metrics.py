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
    assert [record["sample"] for record in reopen_steps(path, 1, several=True)] == [0, 1]
    assert steps(path) == [1, 1]
    append_jsonl(path, [{"sample": 0}])
    with pytest.raises(InputError, match=r"rollouts\.jsonl: a line without a step behind those of step 1; put back"):
        reopen_steps(path, 1, several=True)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([2, 3, 4, 5], "step 1 is missing, though the checkpoint is of step 4"),
        ([1, 4], "steps 2 to 3 are missing"),
        ([1, 2, 3], "step 4 is missing"),
        ([1, 6], "steps 2 to 4 are missing"),
        ([1, 2, 9, 3, 4], "steps 3 to 4 are missing"),
        ([1, 2, 1, 3, 4], "a line of step 1 behind those of step 2"),
        ([0, 1, 2, 3, 4], "a line of step 0 behind those of step 0"),
        ([1, 2, True], "a line without a step behind those of step 2"),
    ],
)
def test_what_was_cut_by_hand_is_named_and_stays_as_it_is(tmp_path, several, there, words):
    path = tmp_path / "metrics.jsonl"
    append_jsonl(path, [{"step": step} for step in there])
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"metrics.jsonl: {words}.*; put back what was removed, or remove .*checkpoints to train"):
        reopen_steps(path, 4, several)
    assert path.read_bytes() == before


def test_a_step_twice_and_a_file_that_is_empty(tmp_path):
    path = tmp_path / "some.jsonl"
    assert reopen_steps(path, 2, several=True) == [] and reopen_steps(path, 0) == []
    with pytest.raises(InputError, match="steps 1 to 2 are missing"):
        reopen_steps(path, 2)
    append_jsonl(path, [{"step": 1}, {"step": 2}, {"step": 2}, {"step": 4}])
    with pytest.raises(InputError, match="a line of step 2 behind those of step 2"):
        reopen_steps(path, 2)
    assert steps(path) == [1, 2, 2, 4] and len(reopen_steps(path, 2, several=True)) == 3 and steps(path) == [1, 2, 2]


@pytest.mark.parametrize("change", [{"time": None}, {"loss": "0.5"}, {"loss": True}, {"loss": [1]}])
def test_a_metric_that_is_no_number_is_named(tmp_path, change):
    append_jsonl(tmp_path / "metrics.jsonl", [{"step": 1, "time": 1.0, "loss": None} | change])
    with pytest.raises(InputError, match=f"metrics.jsonl: {next(iter(change))} of step 1 is .* where a number belongs"):
        MetricsWriter(tmp_path, last_step=1)


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
