"""Attention to the sampler's cache: against float64 over each row's own history, on the compiled route and on PyTorch's."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from papergym.kernels import cpu
from papergym.kernels.cpu import decoding
from papergym.model.generation.cache import GroupCache, PrefillCache

LAYERS = 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("heads", "shared", "dim"), [(2, 2, 16), (1, 3, 7), (3, 1, 80)])
@pytest.mark.parametrize("route", ["compiled", "PyTorch"])
@pytest.mark.usefixtures("registers")
def test_every_row_attends_to_its_prompt_and_itself(monkeypatch, route, heads, shared, dim, dtype):
    """Groups that join later, rows that end in between, prompts beyond a block of keys, storage that grows and is compacted."""
    if route == "PyTorch":
        monkeypatch.setattr(decoding, "available", lambda tensor: False)
    elif cpu.library() is None:
        pytest.skip("no C++ compiler")
    generator = torch.Generator().manual_seed(3)
    bar = 1e-5 if dtype == torch.float32 else 5e-3 if route == "compiled" else 5e-2  # PyTorch's rounds scores and weights too

    def normal(*shape):
        return (2 * torch.randn(*shape, generator=generator)).to(dtype)

    cache = GroupCache()
    histories = []  # of each row: keys and values [LAYERS, heads, tokens, dim]

    def add(lengths, n):
        prefill = PrefillCache()
        prompts = normal(2, LAYERS, len(lengths), heads, max(lengths), dim)
        for layer in range(LAYERS):
            prefill.attend(layer, normal(len(lengths), heads * shared, max(lengths), dim), *prompts[:, layer])
        cache.add(prefill, lengths, n)
        histories.extend(prompts[:, :, group, :, :length] for group, length in enumerate(lengths) for _ in range(n))

    def step():
        cache.begin_step()
        rows = len(histories)
        for layer in range(LAYERS):
            query = normal(rows, heads * shared, 1, dim)
            fresh = normal(2, rows, 1, heads, dim).transpose(2, 3)  # as the decoder's: not contiguous
            found = cache.attend(layer, query, *fresh)
            for row in range(rows):
                if layer == 0:
                    room = torch.zeros(2, LAYERS, heads, 1, dim, dtype=dtype)
                    histories[row] = torch.cat((histories[row], room), dim=3)
                histories[row][:, layer, :, -1] = fresh[:, row, :, 0]
                keys, values = histories[row][:, layer].double()
                exact = scaled_dot_product_attention(query[row].double(), keys, values, enable_gqa=True)
                assert (found[row] - exact).norm() <= bar * exact.norm()

    def keep(*rows):
        cache.keep(rows)
        histories[:] = [histories[row] for row in rows]

    add([5, 70, 1], 3)
    step(), step()
    keep(0, 1, 2, 4, 5, 6, 7, 8)
    step()
    add([130], 2)
    for _ in range(65):
        step()
    keep(0, 4, 8, 9)
    step()
    keep(1, 3)
    step()
