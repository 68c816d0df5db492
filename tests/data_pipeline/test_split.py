import pytest

from papergym.data_pipeline.split import split_environments
from papergym.environment import Criterion, Environment
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
