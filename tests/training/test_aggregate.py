import pytest
import torch

from papergym.errors import InputError
from papergym.training.aggregate import AGGREGATIONS, BatchCounts, token_weights

MASK = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
COUNTS = BatchCounts.of([2, 0, 3])


def test_hand_computed_weights():
    assert BatchCounts(2, 5) == COUNTS
    per_sequence = token_weights(MASK, "sequence_mean", COUNTS)
    torch.testing.assert_close(per_sequence, torch.tensor([[1 / 4, 1 / 4, 0], [0, 0, 0], [1 / 6, 1 / 6, 1 / 6]]))
    torch.testing.assert_close(token_weights(MASK, "token_mean", COUNTS), MASK / 5)
    torch.testing.assert_close(token_weights(MASK, "constant", COUNTS, 10), MASK / 20)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_split_into_micro_batches_does_not_matter(aggregation):
    terms = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    whole = (token_weights(MASK, aggregation, COUNTS, 7) * terms).sum()
    parts = sum((token_weights(MASK[i : i + 1], aggregation, COUNTS, 7) * terms[i : i + 1]).sum() for i in range(3))
    torch.testing.assert_close(whole, parts)


def test_bad_settings_are_named():
    with pytest.raises(InputError, match=r"'median'.*sequence_mean, token_mean, constant"):
        token_weights(MASK, "median", COUNTS)
    with pytest.raises(InputError, match="constant"):
        token_weights(MASK, "constant", COUNTS)
