from papergym.seeds import derive_seed, epoch_order


def test_every_epoch_uses_each_item_once_whatever_the_cut():
    by_threes = [index for step in range(1, 11) for index in epoch_order(5, 3, step, seed=7)]
    by_fives = [index for step in range(1, 7) for index in epoch_order(5, 5, step, seed=7)]
    assert by_threes == by_fives
    assert all(sorted(by_fives[start : start + 5]) == list(range(5)) for start in range(0, 30, 5))
    assert by_fives[:5] != by_fives[5:10] or by_fives[5:10] != by_fives[10:15]


def test_seeds_differ_by_path_and_repeat():
    seeds = {derive_seed(0), derive_seed(0, 1), derive_seed(0, 2), derive_seed(0, 1, 1), derive_seed(1, 1)}
    assert len(seeds) == 5
    assert derive_seed(3, 4) == derive_seed(3, 4) < 2**63
