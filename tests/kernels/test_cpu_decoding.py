"""The compiled steps of decoding against float64; attention is tested with the cache that it serves."""

import pytest
import torch

from papergym.kernels import cpu
from papergym.kernels.cpu import decoding

pytestmark = [pytest.mark.skipif(cpu.library() is None, reason="no C++ compiler"), pytest.mark.usefixtures("registers")]
BARS = {torch.float32: 1e-6, torch.bfloat16: 2**-8}  # of each entry; in bf16 a single rounding


def close(result, exact):
    bar = BARS[result.dtype]
    torch.testing.assert_close(result.double(), exact, rtol=bar, atol=1e-6 * float(exact.abs().max()))


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize(("inputs", "outputs"), [(23, 37), (16, 32), (64, 16), (7, 65), (96, 1)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 17])
def test_product(dtype, inputs, outputs, rows):
    """Rows in any number, outputs in incomplete blocks, with a bias and without; nothing is written beyond the result."""
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
    bias = torch.randn(outputs, generator=generator)
    x = torch.randn(2 * rows, 1, inputs, generator=generator).to(dtype)[::2]  # not contiguous
    packed = decoding.pack(weight)
    exact = x.double() @ weight.double().T
    found = decoding.product(x, packed, outputs)
    assert found.shape == (rows, 1, outputs) and found.dtype == dtype
    close(found, exact)
    close(decoding.product(x, packed, outputs, bias), exact + bias.double())


@pytest.mark.parametrize("dtype", BARS, ids=str)
@pytest.mark.parametrize("width", [1, 16, 23, 576])
def test_rms_norm(dtype, width):
    generator = torch.Generator().manual_seed(width)
    x, weight = (
        (3 * torch.randn(5, 3, 2 * width, generator=generator)).to(dtype)[..., ::2],
        torch.randn(width, generator=generator).to(dtype),
    )
    x[0, 0] = 0
    wide = x.double()
    close(decoding.rms_norm(x, weight, 1e-5), wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double())


def test_bf16_is_rounded_to_nearest_even_and_keeps_what_is_not_finite():
    values = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-20), torch.inf, -torch.inf, torch.nan, 3.4e38, 1e-40, 0.0])
    packed = decoding.pack(torch.ones(1, 1, dtype=torch.bfloat16))
    found = decoding.product(values[:, None], packed, 1)[:, 0]
    assert torch.equal(found.view(torch.int16)[~values.isnan()], values.bfloat16().view(torch.int16)[~values.isnan()])
    assert bool(found[5].isnan())


def test_long_products_keep_their_digits():
    """All terms positive: a single chain of 8192 fp32 sums would lose five times as much."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.rand(33, 8192, generator=generator), torch.rand(3, 8192, generator=generator)
    exact = x.double() @ weight.double().T
    assert (decoding.product(x, decoding.pack(weight), 33) - exact).norm() <= 5e-7 * exact.norm()


def test_tensors_of_other_dtypes_and_strides():
    x, weight = torch.randn(3, 64), torch.rand(64, 2)[:, 0]
    exact = torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)
    torch.testing.assert_close(decoding.rms_norm(x, weight, 1e-6), exact)
    torch.testing.assert_close(decoding.rms_norm(x, weight.bfloat16(), 1e-6).float(), exact, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(decoding.rms_norm(x.bfloat16(), weight, 1e-6), exact, rtol=2e-2, atol=2e-2)
    logits, uniforms = torch.randn(4, 99), torch.rand(4, 2, dtype=torch.float64)
    ids, _ = decoding.draw(logits, uniforms[:, 0].contiguous(), 1.0)
    assert torch.equal(decoding.draw(logits, uniforms[:, 0], 1.0)[0], ids)
    assert torch.equal(decoding.draw(logits, uniforms[:, 0].float(), 1.0)[0], ids)
