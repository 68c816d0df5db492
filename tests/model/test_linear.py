"""bf16 products in fp32, on a machine of either kind: values and gradients against float64."""

import pytest
import torch

from papergym.model import linear as module
from papergym.model.linear import Linear, linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_bf16_without_bf16_instructions_is_rounded_once(monkeypatch, frozen, bias):
    monkeypatch.setattr(module, "_cpu_multiplies_bf16", lambda: False)
    generator = torch.Generator().manual_seed(0)
    x, upstream = (torch.randn(2, 5, size, generator=generator).bfloat16() for size in (96, 33))
    weight, shift = torch.randn(33, 96, generator=generator).bfloat16(), torch.randn(33, generator=generator).bfloat16() if bias else None
    x.requires_grad_(), weight.requires_grad_(not frozen)
    if bias:
        shift.requires_grad_()
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in (x, weight, *([shift] if bias else []))]
    exact = torch.nn.functional.linear(*exact_inputs)
    exact.backward(upstream.double())
    found = linear(x, weight, shift)
    found.backward(upstream)
    gradients = [x.grad, weight.grad, *([shift.grad] if bias else [])]
    assert found.dtype == torch.bfloat16 and (weight.grad is None) == frozen
    for result, wanted in zip([found, *gradients], [exact, *(tensor.grad for tensor in exact_inputs)]):
        if result is not None:
            torch.testing.assert_close(result.double(), wanted, rtol=2**-8, atol=1e-6 * float(wanted.abs().max()))


def test_other_dtypes_take_the_plain_route(monkeypatch):
    monkeypatch.setattr(module, "_cpu_multiplies_bf16", lambda: False)
    layer, x = Linear(7, 3), torch.randn(4, 7)
    assert torch.equal(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert type(layer(x).grad_fn).__name__ == "AddmmBackward0"
