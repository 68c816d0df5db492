"""Seeds as pure functions of what they are for, so that nothing about random state has to be stored or restored."""

import random

import numpy


def derive_seed(seed: int, *path: int) -> int:
    """A 63-bit seed for one use of randomness, e.g. derive_seed(run seed, step); different paths give independent streams."""
    return int(numpy.random.SeedSequence([seed, *path]).generate_state(1, numpy.uint64)[0] >> numpy.uint64(1))


def epoch_order(items: int, per_step: int, step: int, seed: int) -> list[int]:
    """The item indices of optimizer step `step` (from 1): a fresh permutation every epoch, cut into steps without gaps."""
    first = (step - 1) * per_step
    order = []
    for position in range(first, first + per_step):
        epoch, offset = divmod(position, items)
        order.append(int(numpy.random.default_rng([seed, epoch]).permutation(items)[offset]))
    return order


def seed_generators(seed: int) -> None:
    """Seeds the global generators of Python, NumPy and PyTorch, for code that is not ours and draws from them."""
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # of every device
