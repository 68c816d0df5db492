import dataclasses

import orjson
import pytest

from papergym.environment import Criterion, Environment, read_environments, write_environments
from papergym.errors import InputError

RECORD = {
    "id": "a",
    "domain": "cs",
    "question": "What limits it?",
    "reference": "Measure it.",
    "rubric": [{"text": "It measures.", "dimension": "method", "source": "answer", "weight": 1.0}],
    "stages": {"goal": "g", "background": "b", "method": "m", "experiment": "e"},
    "provenance": {"paper": "p"},
}


def lines(path, *records):
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def test_write_then_read_gives_the_same_environments(tmp_path):
    imported = Environment(
        "b", "econ", "Q", (Criterion("penalised", weight=-2.0),), messages=({"role": "user", "content": "hi"},), split="train"
    )
    environments = [Environment.from_record(RECORD), imported]
    write_environments(tmp_path / "e.jsonl", environments)
    assert read_environments(tmp_path / "e.jsonl") == environments
    assert orjson.loads((tmp_path / "e.jsonl").read_bytes().splitlines()[0]) == RECORD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"question": " "}, ["question", "' '"]),
        ({"id": None}, ["id", "nothing"]),
        ({"rubric": []}, ["rubric"]),
        ({"rubric": [{"text": ""}]}, ["rubric[0].text", "''"]),
        ({"rubric": [{"text": "x", "dimension": "style"}]}, ["rubric[0].dimension", "'style'", "method, experiment"]),
        ({"rubric": [{"text": "x", "weight": float("nan")}]}, ["rubric[0].weight"]),
        ({"rubric": [{"text": "x", "weight": True}]}, ["rubric[0].weight", "True"]),
        ({"rubric": [{"text": "x", "points": 1}]}, ["rubric[0]", "'points'"]),
        ({"stages": {"goal": "g"}}, ["stages"]),
        ({"messages": [{"role": "user"}]}, ["messages[0].content"]),
        ({"answer": "x"}, ["'answer'"]),
        ({"provenance": []}, ["provenance", "[]"]),
        ({"provenance": ""}, ["provenance", "''"]),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(tmp_path, change, words):
    path = lines(tmp_path / "e.jsonl", RECORD, RECORD | {"id": "b"} | change)
    with pytest.raises(InputError) as error:
        read_environments(path)
    assert all(word in str(error.value) for word in [str(path), "line 2", *words]), str(error.value)


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    with pytest.raises(InputError, match="no environments to write"):
        write_environments(tmp_path / "e.jsonl", [])
    assert list(tmp_path.iterdir()) == []
    lines(tmp_path / "e.jsonl", RECORD | {"provenance": None})
    assert read_environments(tmp_path / "e.jsonl")[0].provenance == {}


def test_a_line_cut_off_is_named(tmp_path):
    path = tmp_path / "e.jsonl"
    path.write_bytes(orjson.dumps(RECORD) + b"\n" + orjson.dumps(RECORD)[:50])
    with pytest.raises(InputError, match=r"line 2.*cut off"):
        read_environments(path)


def test_repeated_ids_and_empty_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 2, id: 'a' was already used in line 1"):
        read_environments(lines(tmp_path / "twice.jsonl", RECORD, RECORD))
    with pytest.raises(InputError, match="no environments"):
        read_environments(lines(tmp_path / "empty.jsonl"))


def test_an_invalid_environment_is_not_written(tmp_path):
    good = Environment.from_record(RECORD)
    write_environments(tmp_path / "e.jsonl", [good])
    with pytest.raises(InputError, match="rubric"):
        write_environments(tmp_path / "e.jsonl", [good, dataclasses.replace(good, id="b", rubric=())])
    assert read_environments(tmp_path / "e.jsonl") == [good]
