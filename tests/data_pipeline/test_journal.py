"""The record of finished papers: what a kill cuts is dropped, what other settings made is not used."""

import pytest

from papergym.data_pipeline.journal import Journal
from papergym.errors import InputError


def test_records_are_found_again_after_a_kill_at_any_byte(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path, "f")
    for number in range(3):
        journal.add(f"p{number}", "k", {"reason": f"r{number}"})
    data = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        again = Journal(path, "f")
        whole = sum(end <= size for end in ends) - 1  # lines behind the head
        for number in range(3):
            record = again.get(f"p{number}", "k")
            assert (record and record["reason"]) == (f"r{number}" if number < whole else None)
        again.add("new", "k", {"reason": "n"})
        assert again.get("new", "k")["reason"] == "n" and again.get("p0", "other") is None
        again.close(finished=False)
        assert path.read_bytes().count(b"\n") == max(whole, 0) + 2
    journal.close(finished=False)


def test_it_begins_anew_with_other_settings_and_goes_when_finished(tmp_path):
    path = tmp_path / "journal"
    for fingerprint, known in (("f", False), ("f", True), ("g", False), ("f", False)):
        journal = Journal(path, fingerprint)
        assert (journal.get("p", "k") is not None) == known, fingerprint
        journal.add("p", "k", {"reason": "r"})
        journal.close(finished=False)
    Journal(path, "h").close(finished=False)
    assert not path.exists()  # nothing was in it
    journal = Journal(path, "h")
    journal.add("p", "k", {})
    journal.close(finished=True)
    assert not path.exists()


@pytest.mark.parametrize("line", [b"\0\0\0\n", b"{}\n", b"null\n", b"{\n"])
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    journal = Journal(tmp_path / "journal", "maker")
    journal.add("paper", "key", {"made": 1})
    journal.close(finished=False)
    with open(tmp_path / "journal", "ab") as file:
        file.write(line)
    with pytest.raises(InputError, match=r"journal: byte \d+: not a record of a build; remove the file"):
        Journal(tmp_path / "journal", "maker")
