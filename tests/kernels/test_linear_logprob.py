"""fused_linear_logprob: log q(target) and entropy, their joint gradient, against a float64 oracle and by hand."""

import math
from functools import partial

import pytest
import torch

from papergym.kernels.linear_logprob import LogprobOutput, fused_linear_logprob
from papergym.kernels.linear_logprob.torch import linear_logprob
from papergym.kernels.linear_logprob.triton import linear_logprob as triton_logprob

BACKENDS = ["compiled", "eager", "reference"]
SHAPES = [(41, 64, 401), (37, 96, 4099), (423, 167, 1423), (128, 1024, 4096), (1, 64, 151936)]  # the first fills up a cover: the cheapest
INTERPRETED = [(41, 64, 401), (16, 96, 4099), (33, 167, 1423), (16, 256, 2048), (16, 64, 4099)]  # Triton's interpreter is slow
DTYPES = [torch.float32, torch.bfloat16]
TEMPERATURES = [1.0, 0.6, 1.1, 2.0]
SCALES = ["plain", "uniform", "gap 50", "gap 103", "gap 200"]
FACTORS = (SHAPES, DTYPES, TEMPERATURES, SCALES)


def make(shape, dtype, scale, generator):
    rows, width, vocabulary = shape
    hidden = torch.randn(rows, width, generator=generator)
    head = torch.randn(vocabulary, width, generator=generator) * 2 / width**0.5
    if scale == "uniform":
        hidden.zero_()
    elif scale.startswith("gap"):
        head[:, 0] = head[0] = 0
        head[0, 0], hidden[:, 0] = 1, float(scale.split()[1])
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    targets[0], targets[-1] = 0, vocabulary - 1
    a, b = torch.randn(2, rows, generator=generator)
    return hidden.to(dtype), head.to(dtype), targets, a, b


@pytest.mark.parametrize("backend", [*BACKENDS, "triton"], indirect=True)
def test_every_pair_of_settings(backend, combination, check_bars, expected_logprob):
    shape, dtype, temperature, scale = combination
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    if backend == "triton" and device == "cpu":
        shape = INTERPRETED[SHAPES.index(shape)]
    hidden, head, targets, a, b = make(shape, dtype, scale, torch.Generator().manual_seed(5))
    exact = expected_logprob(hidden, head, targets, a, b, temperature)
    plain = expected_logprob(hidden, head, targets, a, b, temperature, dtype=torch.float32)
    hidden.requires_grad_(), head.requires_grad_()
    out = fused_linear_logprob(hidden.to(device), head.to(device), targets.to(device), temperature=temperature, backend=backend)
    out = LogprobOutput(out.logprob.cpu(), out.entropy.cpu())
    (a * out.logprob + b * out.entropy).sum().backward()
    # A log-prob of -g is rounded to g · 2⁻²⁴, a relative error of its probability that no later step can undo.
    gap = float(scale.split()[1]) / temperature if scale.startswith("gap") else 0
    floor = max(1e-5, 8 * gap * 2**-24)
    check_bars("log-prob", out.logprob, exact[0], plain[0])
    check_bars("entropy", out.entropy, exact[1], plain[1], floor)
    floor = 5e-3 if dtype == torch.bfloat16 else floor
    saturated = 2**-24 * (a.abs() + b.abs()) / temperature * head.detach().norm(dim=1).max()  # 1 − q where q rounds to 1
    check_bars("hidden gradient", hidden.grad, exact[2], plain[2], floor, saturated.double())
    check_bars("head gradient", head.grad, exact[3], plain[3], floor, per_token=False)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_hand_computed_values(backend):
    """Logits 0, ln 3 at temperature 1: q = (¼, ¾)."""
    hidden, head = torch.tensor([[math.log(3)]] * 2), torch.tensor([[0.0], [1.0]])
    out = fused_linear_logprob(hidden, head, torch.tensor([0, 1]), backend=backend)
    torch.testing.assert_close(out.logprob, torch.tensor([0.25, 0.75]).log())
    torch.testing.assert_close(out.entropy, torch.full((2,), 0.25 * math.log(4) + 0.75 * math.log(4 / 3)))


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("used", ["logprob", "entropy", "both"])
def test_gradcheck(backend, used):
    generator = torch.Generator().manual_seed(1)
    hidden, head = (torch.randn(size, 4, generator=generator, dtype=torch.float64, requires_grad=True) for size in (3, 7))
    targets = torch.tensor([0, 6, 3])

    def run(hidden, head):
        out = fused_linear_logprob(hidden, head, targets, temperature=0.8, backend=backend)
        return {"logprob": out.logprob, "entropy": out.entropy, "both": (out.logprob, out.entropy)}[used]

    assert torch.autograd.gradcheck(run, (hidden, head))


def test_chunks_bits_and_a_second_backward():
    hidden, head, targets, a, b = make((37, 96, 4099), torch.float32, "plain", torch.Generator().manual_seed(2))
    hidden.requires_grad_(), head.requires_grad_()
    first, again = (fused_linear_logprob(hidden, head, targets) for _ in range(2))
    assert torch.equal(first.logprob, again.logprob) and torch.equal(first.entropy, again.entropy)
    loss = (a * first.logprob + b * first.entropy).sum()
    once = torch.autograd.grad(loss, (hidden, head), retain_graph=True)
    twice = torch.autograd.grad(loss, (hidden, head))
    anew = torch.autograd.grad((a * again.logprob + b * again.entropy).sum(), (hidden, head))
    assert all(torch.equal(one, other) for others in (twice, anew) for one, other in zip(once, others))
    rows = linear_logprob(hidden, head, targets, 1.0, workspace_bytes=1)  # one row at a time
    by_rows = torch.autograd.grad((a * rows.logprob + b * rows.entropy).sum(), (hidden, head))
    for one, other in zip((first.logprob, first.entropy, *once), (rows.logprob, rows.entropy, *by_rows)):
        assert (one - other).norm() <= 1e-5 * one.norm()


@pytest.mark.parametrize("backend", ["compiled", "eager", "triton"], indirect=True)
@pytest.mark.parametrize("trained_head", [True, False])
def test_nothing_is_as_large_as_the_logits(backend, trained_head, allocations):
    rows, width, vocabulary = (16, 4, 40_000) if backend == "triton" else (1200, 16, 40_000)
    compute = partial(triton_logprob, workspace_bytes=1 << 20) if backend == "triton" else linear_logprob
    generator = torch.Generator().manual_seed(4)
    hidden, head = torch.randn(rows, width, generator=generator), torch.randn(vocabulary, width, generator=generator)
    hidden.requires_grad_(), head.requires_grad_(trained_head)
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    with allocations:
        targets = torch.randint(0, vocabulary, (rows,), generator=generator).to(device)
        out = compute(hidden.to(device), head.to(device), targets, 1.0)
        (out.logprob.sum() + out.entropy.sum()).backward()
    assert hidden.grad.any()
    assert max(size for size, _ in allocations.sizes) < 4 * rows * vocabulary / 2


def test_strides_and_integer_types_do_not_matter():
    hidden, head, targets, *_ = make((41, 64, 401), torch.float32, "plain", torch.Generator().manual_seed(3))
    expected = fused_linear_logprob(hidden, head, targets)
    turned = fused_linear_logprob(hidden.T.contiguous().T, head.T.contiguous().T, targets.int())
    torch.testing.assert_close(turned.logprob, expected.logprob)
    torch.testing.assert_close(turned.entropy, expected.entropy)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_no_rows(backend):
    hidden, head = torch.zeros(0, 4, requires_grad=True), torch.ones(5, 4, requires_grad=True)
    out = fused_linear_logprob(hidden, head, torch.zeros(0, dtype=torch.long), backend=backend)
    (out.logprob.sum() + out.entropy.sum()).backward()
    assert out.logprob.shape == (0,) and hidden.grad.shape == (0, 4) and not head.grad.any()
