from dataclasses import dataclass
from random import Random

import torch

from papergym.model.weights import load_model
from papergym.training.packing import micro_batches, pack, pad_rows, predicting_hidden


@dataclass
class Pair:
    prompt_ids: list[int]
    completion_ids: list[int]


def test_a_row_by_hand():
    pairs = [([5, 6, 7], [8, 9]), ([5, 6, 7], [4]), ([5, 6, 7], [1, 2, 3]), ([1], []), ([2], [3])]
    packed = pack(pairs, torch.device("cpu"))
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 1, 2, 1, 2]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 3, 4, 0, 0]]
    assert packed.groups == ((3, (1, 2)), (1, ()), (1, ()))
    assert packed.predictors.tolist() == [2, 3, 2, 2, 4, 5, 7]
    assert packed.targets.tolist() == [8, 9, 4, 1, 2, 3, 3]
    assert packed.lengths == (2, 1, 3, 0, 1)


def test_packed_and_alone_give_the_same_hidden_states_and_gradients(tiny_policy):
    model = load_model(tiny_policy, dtype=torch.float64)
    random = Random(0)
    prompts = [[random.randrange(250) for _ in range(length)] for length in (7, 1, 12)]
    pairs = [(prompt, [random.randrange(250) for _ in range(length)]) for prompt in prompts for length in (5, 1, 9, 0)]
    packed = predicting_hidden(model, pack(pairs, torch.device("cpu")))
    alone = [model(torch.tensor([[*prompt, *completion]]))[0, len(prompt) - 1 : -1] for prompt, completion in pairs if completion]
    weights = torch.randn(packed.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gradients = []
    for hidden in (packed, torch.cat(alone)):
        model.zero_grad()
        (hidden * weights).sum().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    torch.testing.assert_close(packed, torch.cat(alone), rtol=1e-6, atol=1e-6)
    for name, gradient in gradients[0].items():
        assert (gradient - gradients[1][name]).norm() <= 1e-6 * gradients[1][name].norm(), name


def test_pad_rows_keeps_order_and_gradient():
    flat = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    rows, mask = pad_rows(flat, (1, 0, 2))
    assert rows.tolist() == [[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]]
    assert mask.tolist() == [[True, False], [False, False], [True, True]]
    (rows * torch.tensor([[5.0, 100.0], [100.0, 100.0], [6.0, 7.0]])).sum().backward()
    assert flat.grad.tolist() == [5.0, 6.0, 7.0]


def test_micro_batches_keep_order_and_the_budget():
    samples = [Pair([index] * 3, [0] * length) for index, length in enumerate((1, 2, 20, 1, 1))]
    batches = list(micro_batches(samples, 9))
    assert [[len(sample.completion_ids) for sample in batch] for batch in batches] == [[1, 2], [20], [1, 1]]
    assert [sample for batch in batches for sample in batch] == samples
    assert list(micro_batches([], 9)) == []


def test_a_shared_prompt_counts_once():
    samples = [Pair([7] * 3, [0] * 3) for _ in range(5)]
    assert [len(batch) for batch in micro_batches(samples, 9)] == [2, 2, 1]
