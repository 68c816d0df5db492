from papergym.files import read_jsonl
from papergym.metrics import JsonLines, MetricsWriter


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
    lines = JsonLines(tmp_path / "rollouts.jsonl")
    lines.write([{"step": 1, "sample": 0}, {"step": 1, "sample": 1}])
    lines.write([{"step": 2, "sample": 0}])
    lines.close()
    JsonLines(tmp_path / "rollouts.jsonl", last_step=1).close()
    assert steps(tmp_path / "rollouts.jsonl") == [1, 1]
