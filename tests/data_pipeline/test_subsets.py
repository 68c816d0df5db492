"""Subsets: nested, balanced, and the same whatever else is in the file."""

import random

import pytest

from papergym.data_pipeline.subsets import nested_subsets, of_domains
from papergym.environment import Criterion, Environment
from papergym.errors import InputError

ENVIRONMENTS = [
    Environment(f"{domain}{n}", domain, "Q", (Criterion("c"),))
    for domain, count in (("cs", 9), ("econ", 5), ("physics", 5))
    for n in range(count)
]


def test_each_subset_is_contained_in_the_larger_ones_and_balanced():
    subsets = nested_subsets(ENVIRONMENTS, [14, 3, 7], seed=0)
    assert list(subsets) == [3, 7, 14]
    assert subsets[14][:7] == subsets[7] and subsets[7][:3] == subsets[3]
    for size, counts in ((3, [1, 1, 1]), (7, [3, 2, 2]), (14, [5, 5, 4])):
        assert [sum(e.domain == domain for e in subsets[size]) for domain in ("cs", "econ", "physics")] == counts
        assert len({e.id for e in subsets[size]}) == size


def test_the_draw_depends_on_seed_and_ids_alone():
    mixed = random.Random(3).sample(ENVIRONMENTS, len(ENVIRONMENTS))
    assert nested_subsets(mixed, [9], 0) == nested_subsets(ENVIRONMENTS, [9], 0)
    assert len({tuple(e.id for e in nested_subsets(ENVIRONMENTS, [3], seed)[3]) for seed in range(20)}) > 10
    more = [*ENVIRONMENTS, *(Environment(f"cs{n}", "cs", "Q", (Criterion("c"),)) for n in range(50, 53))]
    kept = {e.id for e in nested_subsets(ENVIRONMENTS, [9], 0)[9]} - {e.id for e in nested_subsets(more, [9], 0)[9]}
    assert len(kept) <= 3 and all(name.startswith("cs") for name in kept)


def test_what_would_not_be_balanced_is_refused():
    with pytest.raises(InputError, match="subset of 17: its 3 domains need 6 environments of 'econ', and there are 5"):
        nested_subsets(ENVIRONMENTS, [17], 0)
    with pytest.raises(InputError, match="subset of 0: a size from 1"):
        nested_subsets(ENVIRONMENTS, [0], 0)


def test_domains_are_chosen_by_name():
    assert {e.domain for e in of_domains(ENVIRONMENTS, ["econ", "cs"])} == {"cs", "econ"}
    assert of_domains(ENVIRONMENTS, []) == ENVIRONMENTS
    with pytest.raises(InputError, match="domain 'maths': no environment has it; the domains are cs, econ, physics"):
        of_domains(ENVIRONMENTS, ["maths"])
