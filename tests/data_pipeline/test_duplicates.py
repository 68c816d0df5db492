"""Near-duplicates against all pairs compared one by one."""

import itertools
import random

import pytest

from papergym.data_pipeline.duplicates import _bands, groups, links, near_duplicates, shingles
from papergym.environment import Criterion, Environment
from papergym.errors import InputError

pytest.importorskip("datasketch")


def jaccard(one, other):
    one, other = shingles(one), shingles(other)
    return len(one & other) / len(one | other)


def texts(count, words, seed):
    """Random texts, each followed by two copies in which ever more words are replaced."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        original = [f"w{draw.randrange(5000)}" for _ in range(words)]
        made.append(" ".join(original))
        for share in (0.03, 0.12):
            made.append(" ".join(word if draw.random() > share else f"x{draw.randrange(5000)}" for word in original))
    return made


def test_shingles_by_hand():
    assert shingles("The caches, evict — what?") == {"the caches evict", "caches evict what"}
    assert shingles("Why?") == {"why"} and shingles("a B") == {"a b"}


@pytest.mark.parametrize("similarity", [0.3, 0.5, 0.8])
def test_exactly_the_pairs_that_are_so_similar(similarity):
    made = list(dict.fromkeys(texts(20, 60, seed=1)))
    expected = [(i, j, jaccard(made[i], made[j])) for i, j in itertools.combinations(range(len(made)), 2)]
    expected = [pair for pair in expected if pair[2] >= similarity]
    assert near_duplicates(made, similarity) == expected and 5 < len(expected) < 61


def test_equal_texts_are_linked_with_the_first_and_none_with_nothing():
    assert near_duplicates(["a b c d", None, "A b c, d!", "other words that differ", None, "a b c d"], 1.0) == [(0, 2, 1.0), (0, 5, 1.0)]


def test_what_many_texts_end_with_makes_nobody_alike():
    ask = " How would you find out, and what would you measure, and against what would you compare it, and why?"
    made = [text + ask for text in texts(30, 22, seed=2)[::3]]
    assert all(jaccard(one, other) > 0.25 for one, other in itertools.combinations(made[:5], 2))
    assert near_duplicates(made, 0.25) == []
    # Many copies of one text are still found, though all that they hold is then common.
    copies = texts(1, 60, seed=3)[0].split()
    alike = [" ".join([*copies, f"end{number}"]) for number in range(12)]
    assert len(near_duplicates(made + alike, 0.9)) == 12 * 11 / 2


@pytest.mark.parametrize("similarity", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_pair_at_the_threshold_is_hardly_ever_missed(similarity):
    bands, rows = _bands(similarity)
    assert bands * rows <= 256 and (1 - similarity**rows) ** bands <= 1e-3


def test_links_join_what_is_connected_through_others():
    def environment(name, question, **provenance):
        return Environment(name, "cs", question, (Criterion("c"),), provenance=provenance)

    made = [
        environment("a", "one", paper="p"),
        environment("b", "two"),
        environment("c", "two", paper="p"),
        environment("d", "three", sha256="s"),
        environment("e", "four", sha256="s"),
        environment("f", "five"),
    ]
    found = links(made)
    assert found == [(0, 2, "paper", 1.0), (1, 2, "question", 1.0), (3, 4, "source", 1.0)]
    assert groups(6, found) == [0, 0, 0, 3, 3, 5]


def test_papers_are_compared_by_their_stages_or_references():
    words = texts(1, 80, seed=4)
    first, second = words[0], words[1]
    stages = {"goal": "", "background": "", "method": first, "experiment": ""}
    made = [
        Environment("a", "cs", "first question of all", (Criterion("c"),), stages=stages),
        Environment("b", "cs", "another thing to ask", (Criterion("c"),), reference=second),
        Environment("c", "cs", "nothing like either", (Criterion("c"),)),
    ]
    (link,) = links(made, 0.5)
    assert (link.first, link.second) == (0, 1) and link.similarity == pytest.approx(jaccard(first, second))
    assert link.kind == "paper"


@pytest.mark.parametrize("similarity", [0.0, -1, 1.2, float("nan")])
def test_a_similarity_that_is_none(similarity):
    with pytest.raises(InputError, match="a number above 0, up to 1"):
        near_duplicates(["a"], similarity)
