import pytest

from papergym.data_pipeline.split import split_environments, write_split
from papergym.environment import Criterion, Environment, read_environments
from papergym.errors import InputError


def environment(paper, index=0, split=None):
    return Environment(f"{paper}-{index}", "cs", "Q?", (Criterion("c"),), provenance={"paper": paper}, split=split)


def test_marked_environments_keep_their_side():
    marked = [environment("a", split="train"), environment("b", split="heldout"), environment("c", split="train")]
    assert split_environments(marked, 0.5, seed=0) == ([marked[0], marked[2]], [marked[1]])


def test_papers_stay_together_and_the_draw_follows_the_seed():
    environments = [environment(paper, index) for paper in "abcdef" for index in (0, 1)]
    train, heldout = split_environments(environments, 1 / 3, seed=1)
    assert len(heldout) == 4 and len(train) == 8
    assert {e.provenance["paper"] for e in train}.isdisjoint({e.provenance["paper"] for e in heldout})
    assert split_environments(environments, 1 / 3, seed=1) == (train, heldout)
    draws = {tuple(e.id for e in split_environments(environments, 1 / 3, seed=seed)[1]) for seed in range(20)}
    assert len(draws) > 3


def test_each_side_gets_something_or_it_is_an_error():
    assert [len(side) for side in split_environments([environment("a"), environment("b")], 0.01, seed=0)] == [1, 1]
    with pytest.raises(InputError, match="1 environments give 1 to train on and 0 held out"):
        split_environments([environment("a")], 0.5, seed=0)


def test_the_new_file_of_one_side_never_stands_beside_the_old_one_of_the_other(tmp_path, monkeypatch):
    environments = [environment(paper) for paper in "abcdef"]
    train, heldout = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    sides = write_split(environments, train, heldout, 0.5, seed=0)
    assert (read_environments(train), read_environments(heldout)) == sides

    def killed(path, side):
        raise KeyboardInterrupt

    monkeypatch.setattr("papergym.data_pipeline.split.write_environments", killed)
    with pytest.raises(KeyboardInterrupt):
        write_split(environments, train, heldout, 0.5, seed=1)
    assert read_environments(train) == sides[0] and not heldout.exists()
    with pytest.raises(InputError, match=r"train\.jsonl: .*need two files"):
        write_split(environments, train, tmp_path / "." / "train.jsonl", 0.5, seed=0)
