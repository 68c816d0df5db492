import errno
import math
import os
import subprocess
import sys
import textwrap

import pytest

from papergym.errors import InputError, exit_on_input_error
from papergym.files import append_jsonl, atomic_directory, atomic_write, read_json, read_jsonl, remove_directory, reopen_jsonl
from papergym.registry import check_takes, resolve


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    with atomic_write(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"half of the n")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == ["a.json"]


def test_a_second_writer_is_refused_and_what_a_kill_left_is_written_over(tmp_path):
    path = tmp_path / "a.json"
    with atomic_write(path) as file:
        file.write(b"first")
        with pytest.raises(InputError, match=r"a\.json: another process is writing this file"), atomic_write(path):
            pass
    assert path.read_bytes() == b"first"
    (tmp_path / ".a.json.tmp").write_bytes(b"a longer half that a kill left")
    with atomic_write(path) as file:
        file.write(b"second")
    assert path.read_bytes() == b"second" and os.listdir(tmp_path) == ["a.json"]


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("papergym.files.fcntl.flock", flock)
    with pytest.raises(InputError, match=r"a\.json.* can't be locked \(No locks available\); write to"), atomic_write(tmp_path / "a.json"):
        pass


def test_a_directory_is_the_old_or_the_new_one(tmp_path):
    path = tmp_path / "adapter"
    for leftover in (".adapter.tmp", ".adapter.old"):
        (tmp_path / leftover / "deep").mkdir(parents=True)
    for content in ("old", "new"):
        with atomic_directory(path) as temporary:
            (temporary / content).write_text(content)
            assert [child.name for child in path.glob("*")] == (["old"] if content == "new" else [])
        assert [child.name for child in path.iterdir()] == [content]
    with pytest.raises(RuntimeError), atomic_directory(path) as temporary:
        (temporary / "half").touch()
        raise RuntimeError
    assert [child.name for child in path.iterdir()] == ["new"] and os.listdir(tmp_path) == ["adapter"]
    remove_directory(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_cut_at_any_byte_is_named_or_reopened_at_the_line_before(tmp_path):
    path = tmp_path / "a.jsonl"
    records = [{"step": 1, "text": "é\n"}, {"step": 2, "nested": {"a": [None, True, -1.5e-9]}}]
    append_jsonl(path, records[:1])
    first = len(path.read_bytes())
    append_jsonl(path, records[1:])
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        lines = int(size >= first) + int(size == len(whole))
        if size in (0, first - 1, first, len(whole) - 1, len(whole)):  # every line that has begun is whole
            assert [record for _, record in read_jsonl(path)] == records[: (size >= first - 1) + (size >= len(whole) - 1)]
        else:
            with pytest.raises(InputError, match=rf"a\.jsonl, line {1 + (size > first)}: .*the file was probably cut off"):
                list(read_jsonl(path))
        assert reopen_jsonl(path, lambda record: True) == records[:lines]
        append_jsonl(path, records[lines:])
        assert path.read_bytes() == whole
    assert reopen_jsonl(path, lambda record: record["step"] < 2) == records[:1]
    assert path.read_bytes() == whole[:first]
    path.write_bytes(b"{\n" + whole)
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: not valid JSON \(unexpected end of data[^;]*$"):
        reopen_jsonl(path, lambda record: True)


def test_a_byte_order_mark_is_no_content_and_other_encodings_are_not_cut_off(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"a":1}')
    assert list(read_jsonl(path)) == [(1, {"a": 1})] and read_json(path) == {"a": 1}
    path.write_bytes('{"a":1}'.encode("utf-16"))
    with pytest.raises(InputError, match=r"line 1: not valid JSON \(str is not valid UTF-8[^;]*$"):
        list(read_jsonl(path))


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


@pytest.mark.parametrize("call", ["write_json(path, value)", "append_jsonl(path, [value])"])
def test_a_full_disk_is_named_with_the_file_and_the_remedy(call, tmp_path):
    """A limit on the size of files stands for a full disk: the system says as little about the file."""
    program = f"""
        import resource, signal
        from papergym.errors import exit_on_input_error
        from papergym.files import append_jsonl, write_json
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        path, value = {str(tmp_path / "full.json")!r}, {{"text": "x" * 5000}}
        with exit_on_input_error():
            {call}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"papergym: {tmp_path / 'full.json'}: File too large; make room there, then give the same command again\n"


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
        (":x", "unknown thing ':x'"),
        ("..math:pi", "unknown thing"),
        ("a\0b:x", "unknown thing"),
    ]:
        with pytest.raises(InputError, match=words):
            resolve("thing", name, {"a": 1, "b": 2})


def test_what_a_configuration_names_takes_what_it_is_given():
    for function in (math.hypot, lambda a, b: 0, lambda a, b, c=1: 0, lambda *many: 0, dict):
        check_takes("thing", "m:f", function, "a", "b")
    for function, words in (
        (lambda a: 0, r"thing 'm:f': it takes \(a\), where a function of \(a, b\) is needed \(too many"),
        (lambda a, b, c: 0, r"it takes \(a, b, c\), where .*missing a required argument: 'c'"),
        (lambda *, a, b: 0, r"it takes \(\*, a, b\)"),
        (3, r"it is of the type int, where a function of \(a, b\) is needed"),
    ):
        with pytest.raises(InputError, match=words):
            check_takes("thing", "m:f", function, "a", "b")


def test_only_a_regular_file_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    for name, kind in (("pipe", "a device or pipe"), ("link", "a device or pipe"), ("folder", "a folder")):
        with pytest.raises(InputError, match=f"{name}: is {kind}, which no file may replace"), atomic_write(tmp_path / name):
            pass
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"]


def test_only_a_folder_is_replaced_by_one(tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("file", "a file"), ("link", "a link"), ("dangling", "a link"), ("pipe", "a device or pipe")):
        with pytest.raises(InputError, match=f"{name}: is {kind}, which no folder may replace"), atomic_directory(tmp_path / name):
            pytest.fail("nothing may be written")
    assert (tmp_path / "file").read_text() == "kept" and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file", "folder", "link", "pipe"]


def test_numbers_that_are_not_finite_end_with_a_sentence_and_code_1(capsys):
    with pytest.raises(SystemExit) as stop, exit_on_input_error():
        raise FloatingPointError("step 2: loss nan")
    assert stop.value.code == 1 and capsys.readouterr().err == "papergym: step 2: loss nan\n"
