from dataclasses import dataclass

import torch

from papergym.training.packing import micro_batches, pack, pad_rows, predicting_hidden


@dataclass
class Pair:
    prompt_ids: list[int]
    completion_ids: list[int]


def test_predictors_stand_one_before_their_targets():
    packed = pack([([5, 6, 7], [8, 9]), ([1], []), ([2], [3])], torch.device("cpu"))
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 9, 1, 2, 3]]
    assert packed.cu_seqlens.tolist() == [0, 5, 6, 8]
    assert packed.predictors.tolist() == [2, 3, 6]
    assert packed.targets.tolist() == [8, 9, 3]
    assert packed.lengths == (2, 0, 1)
    assert (packed.input_ids[0, packed.predictors + 1] == packed.targets).all()


def test_predicting_hidden_selects_the_rows_before_the_targets():
    packed = pack([([5, 6], [7, 8])], torch.device("cpu"))
    hidden = predicting_hidden(lambda ids, cu_seqlens: ids[..., None].float(), packed)
    assert hidden.tolist() == [[6.0], [7.0]]


def test_pad_rows_keeps_order_and_gradient():
    flat = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    rows, mask = pad_rows(flat, (1, 0, 2))
    assert rows.tolist() == [[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]]
    assert mask.tolist() == [[True, False], [False, False], [True, True]]
    (rows * torch.tensor([[5.0, 100.0], [100.0, 100.0], [6.0, 7.0]])).sum().backward()
    assert flat.grad.tolist() == [5.0, 6.0, 7.0]


def test_micro_batches_keep_order_and_the_budget():
    samples = [Pair([0] * 3, [0] * length) for length in (1, 2, 20, 1, 1)]
    batches = list(micro_batches(samples, 9))
    assert [[len(sample.completion_ids) for sample in batch] for batch in batches] == [[1, 2], [20], [1, 1]]
    assert [sample for batch in batches for sample in batch] == samples
    assert list(micro_batches([], 9)) == []
