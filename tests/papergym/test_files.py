import pytest

from papergym.errors import InputError, exit_on_input_error
from papergym.files import atomic_write, read_json, read_jsonl
from papergym.registry import resolve


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    with atomic_write(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half of the n")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.json"]


def test_json_errors_name_the_file(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json: not valid JSON"):
        read_json(tmp_path / "a.json")
    (tmp_path / "b.jsonl").write_text("\n[1]\n")
    with pytest.raises(InputError, match=r"b\.jsonl, line 2: a JSON object is needed, not list"):
        list(read_jsonl(tmp_path / "b.jsonl"))


@pytest.mark.parametrize("error", [InputError("no such thing"), FileNotFoundError(2, "No such file or directory", "missing.tex")])
def test_bad_input_ends_with_one_line_and_code_2(capsys, error):
    with pytest.raises(SystemExit) as stop, exit_on_input_error():
        raise error
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_other_errors_propagate():
    with pytest.raises(ZeroDivisionError), exit_on_input_error():
        raise ZeroDivisionError


def test_the_registry_names_what_exists():
    assert resolve("thing", "a", {"a": 1}) == 1
    assert resolve("thing", "math:pi", {}) == pytest.approx(3.14159, abs=1e-4)
    for name, words in [
        ("c", "use one of a, b"),
        ("nomodule:x", "no module named 'nomodule'"),
        ("math:nothing", "has no attribute 'nothing'"),
    ]:
        with pytest.raises(InputError, match=words):
            resolve("thing", name, {"a": 1, "b": 2})
