import json
import os
from datetime import date

import pytest

from papergym.data_pipeline.split import SplitRule, split_environments, write_split
from papergym.environment import Criterion, Environment, read_environments, write_environments
from papergym.errors import InputError

DAY = date(2026, 1, 1)
QUESTION = "lichens spread by wind and by animals while caches evict what nobody reads and prices follow the weather of the year"


def environment(paper, index=0, split=None, day=None, domain="cs", question=None):
    provenance = {"paper": paper} | ({"date": day} if day else {})
    return Environment(
        f"{paper}-{index}", domain, question or f"What about {paper} {index}?", (Criterion("c"),), provenance=provenance, split=split
    )


def ids(side):
    return [found.id for found in side]


def left_out(split):
    return {found.id: reason for found, reason in split.left_out}


def test_marked_environments_keep_their_side():
    marked = [environment("a", split="train"), environment("b", split="heldout"), environment("c", split="train")]
    assert split_environments(marked, SplitRule(0.5)) == ([marked[0], marked[2]], [marked[1]], [])


def test_papers_stay_together_and_the_draw_follows_the_seed():
    environments = [environment(paper, index) for paper in "abcdef" for index in (0, 1)]
    train, heldout, none = split_environments(environments, SplitRule(seed=1))
    assert len(heldout) == 4 and len(train) == 8 and none == []
    assert {e.split for e in train} == {"train"} and {e.split for e in heldout} == {"heldout"}
    assert {e.provenance["paper"] for e in train}.isdisjoint({e.provenance["paper"] for e in heldout})
    assert split_environments(environments, SplitRule(seed=1)) == (train, heldout, [])
    draws = {tuple(ids(split_environments(environments, SplitRule(seed=seed)).heldout)) for seed in range(20)}
    assert len(draws) > 3


def test_each_side_gets_something_or_it_is_an_error():
    assert [len(side) for side in split_environments([environment("a"), environment("b")], SplitRule(0.01))] == [1, 1, 0]
    with pytest.raises(InputError, match="1 environments give 1 to train on and 0 held out"):
        split_environments([environment("a")], SplitRule(0.5))
    with pytest.raises(InputError, match="'a-0', split: 'validation' is not one of train, heldout or null"):
        split_environments([environment("a", split="validation"), environment("b")], SplitRule(0.5))


def test_nothing_is_trained_on_that_is_held_out_under_another_mark():
    environments = [environment("a", 0, "train"), environment("a", 1, "heldout"), environment("a", 2), environment("b", 0, "train")]
    split = split_environments(environments, SplitRule())
    assert (ids(split.train), ids(split.heldout)) == (["b-0"], ["a-1", "a-2"])
    assert "'a-1', which is held out" in left_out(split)["a-0"]


def test_the_same_question_or_source_makes_one_paper():
    environments = [
        environment("a", 0, "heldout", question="Why so?"),
        environment("b", 0, question="WHY, so?"),
        environment("c", 0, "train"),
    ]
    assert ids(split_environments(environments, SplitRule()).heldout) == ["a-0", "b-0"]
    same = [
        Environment(name, "cs", name, (Criterion("c"),), provenance={"sha256": digest}, split=mark)
        for name, digest, mark in (("v1", "x", "train"), ("v2", "x", "heldout"), ("w", "y", "train"))
    ]
    assert ids(split_environments(same, SplitRule()).train) == ["w"]


def test_near_duplicates_are_found_when_asked_for():
    pytest.importorskip("datasketch")
    environments = [
        environment("a", split="heldout", question=QUESTION),
        environment("b", split="train", question=QUESTION.replace("year", "century")),
        environment("c", split="train", question=" ".join(reversed(QUESTION.split()))),
    ]
    assert ids(split_environments(environments, SplitRule()).train) == ["b-0", "c-0"]
    assert ids(split_environments(environments, SplitRule(similarity=0.9)).train) == ["c-0"]  # 18 of 20
    assert ids(split_environments(environments, SplitRule(similarity=0.91)).train) == ["b-0", "c-0"]


def test_by_date_the_day_decides_whatever_the_marks_say():
    days = {
        "old": "2025-12-31",
        "day": "2026-01-01",
        "month": "2026-02",
        "year": "2026",
        "before": "2025",
        "stamp": "2026-03-01T10:00:00Z",
        "none": None,
    }
    environments = [environment(name, day=day, split="train") for name, day in days.items()]
    split = split_environments(environments, SplitRule(after=DAY))
    assert (ids(split.train), ids(split.heldout)) == (["old-0", "before-0"], ["day-0", "month-0", "year-0", "stamp-0"])
    assert "has the date None, which tells no side of 2026-01-01" in left_out(split)["none-0"]
    split = split_environments(environments, SplitRule(after=date(2026, 2, 2)))
    assert set(left_out(split)) == {"month-0", "year-0", "none-0"} and ids(split.heldout) == ["stamp-0"]


@pytest.mark.parametrize("day", ["soon", "2026-13", "2026-02-30", "", 2026, "20260101"])
def test_what_is_no_date_is_refused(day):
    environments = [environment("a", day="2020"), Environment("b", "cs", "Q", (Criterion("c"),), provenance={"date": day})]
    with pytest.raises(InputError, match=rf"'b', provenance.date: {day!r} is no date; write"):
        split_environments(environments, SplitRule(after=DAY))


def test_an_earlier_version_of_a_held_out_paper_is_not_trained_on():
    environments = [environment("a", 0, day="2025-05-05"), environment("a", 1, day="2026-05-05"), environment("b", day="2025-05-05")]
    split = split_environments(environments, SplitRule(after=DAY))
    assert (ids(split.train), ids(split.heldout), list(left_out(split))) == (["b-0"], ["a-1"], ["a-0"])


def test_so_many_papers_of_each_domain():
    domains = ("cs", "econ", "physics")
    environments = [environment(f"{domain}{n}", i, domain=domain, day="2026-05") for domain in domains for n in range(6) for i in (0, 1)]
    environments += [environment(f"old-{domain}", domain=domain, day="2024") for domain in domains]
    split = split_environments(environments, SplitRule(after=DAY, per_domain=4))
    papers = {(found.domain, found.provenance["paper"]) for found in split.heldout}
    assert [sum(domain == name for name, _ in papers) for domain in domains] == [4, 4, 4] and len(split.heldout) == 24
    assert ids(split.train) == ["old-cs-0", "old-econ-0", "old-physics-0"] and len(split.left_out) == 12
    # Without a date the rest is trained on, and another domain changes nobody's draw.
    drawn = split_environments(environments, SplitRule(per_domain=4))
    assert len(drawn.train) == len(environments) - len(drawn.heldout) and drawn.left_out == []
    less = split_environments([e for e in environments if e.domain != "econ"], SplitRule(after=DAY, per_domain=4))
    assert ids(less.heldout) == [found.id for found in split.heldout if found.domain != "econ"]
    with pytest.raises(InputError, match="domain 'cs': 6 papers could be held out, and 7 are asked for"):
        split_environments(environments, SplitRule(after=DAY, per_domain=7))
    with pytest.raises(InputError, match="domain 'law': 0 papers could be held out, and 4 are asked for"):
        split_environments([*environments, environment("old-law", domain="law", day="2024")], SplitRule(after=DAY, per_domain=4))


def test_the_new_file_of_one_side_never_stands_beside_the_old_one_of_the_other(tmp_path, monkeypatch):
    environments = [environment(paper) for paper in "abcdef"]
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    split, _ = write_split(environments, train, heldout, SplitRule(0.5))
    assert (read_environments(train), read_environments(heldout)) == split[:2]

    def killed(path, side):
        raise KeyboardInterrupt

    monkeypatch.setattr("papergym.data_pipeline.split.write_environments", killed)
    with pytest.raises(KeyboardInterrupt):
        write_split(environments, train, heldout, SplitRule(0.5, seed=1))
    assert read_environments(train) == split.train and not heldout.exists()
    with pytest.raises(InputError, match=r"train\.jsonl: .*need two files"):
        write_split(environments, train, tmp_path / "." / "train.jsonl", SplitRule(0.5))


def test_subsets_and_what_is_left_out_are_written(tmp_path):
    environments = [environment(f"{domain}{n}", domain=domain, day="2024") for domain in ("cs", "econ") for n in range(4)]
    environments += [environment("later", day="2026-06"), environment("sometime")]
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    _, files = write_split(environments, train, heldout, SplitRule(after=DAY), [6, 2])
    assert files == [tmp_path / "train-2.jsonl", tmp_path / "train-6.jsonl"]
    two, six = (read_environments(path) for path in files)
    assert six[:2] == two and {found.id for found in six} <= {found.id for found in read_environments(train)}
    assert json.loads((tmp_path / "train.left_out.jsonl").read_text())["environment"] == "sometime-0"
    with pytest.raises(InputError, match=r"train-2\.jsonl: a subset of an earlier split"):
        write_split(environments, train, heldout, SplitRule(after=DAY), [6])
    write_split(environments[:-1], train, heldout, SplitRule(after=DAY), [2, 6])
    assert not (tmp_path / "train.left_out.jsonl").exists()


def test_no_file_of_a_split_takes_the_place_of_another_or_of_its_input(tmp_path):
    environments = [environment(paper) for paper in "abcdefgh"]
    source = tmp_path / "a.jsonl"
    write_environments(source, environments)
    before = source.read_bytes()
    (tmp_path / "folder").mkdir()
    train, heldout = tmp_path / "t.jsonl", tmp_path / "h.jsonl"
    for paths, sizes, what in (
        ((source, heldout), [], "the environments to split and the environments to train on"),
        ((train, tmp_path / "folder" / ".." / "a.jsonl"), [], "the environments to split and those held out"),
        ((train, tmp_path / "t.left_out.jsonl"), [], "those held out and those on neither side"),
        ((train, tmp_path / "t-4.jsonl"), [4, 4, 2], "those held out and the subset of 4"),
    ):
        with pytest.raises(InputError, match=rf"\.jsonl: {what} need two files; give"):
            write_split(environments, *paths, SplitRule(), sizes, source)
    os.mkfifo(tmp_path / "pipe")
    for paths in ((train, tmp_path / "pipe"), (tmp_path / "pipe", heldout), (train, tmp_path / "folder")):
        with pytest.raises(InputError, match="which no file may replace"):
            write_split(environments, *paths, SplitRule(), source=source)
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", "folder", "pipe"] and source.read_bytes() == before
    write_split(environments, train, heldout, SplitRule(), [2, 2], source)


@pytest.mark.parametrize("share", [float("nan"), -0.1, 1.1])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(InputError, match=rf"share of the papers to hold out is {share}; a number from 0 to 1"):
        split_environments([environment("a"), environment("b")], SplitRule(share))
