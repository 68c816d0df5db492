"""Float64 oracles, written from the formulas alone, and the bars that results are held to."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from papergym.kernels import cpu

FLOOR = 1e-5  # smallest bar: relative error that passes whatever plain fp32 achieves
BF16_GRADIENT = 5e-3
WORST_TOKEN = 10  # times the bar


def _check(
    name: str,
    result: torch.Tensor,
    exact: torch.Tensor,
    plain: torch.Tensor,
    floor: float = FLOOR,
    slack: torch.Tensor | None = None,
    per_token: bool = True,
    sample: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> None:
    """Relative norm of the error, and for tensors with a row a token the worst row, against fp64 and the same formula in plain fp32.

    slack [rows]: absolute error that a row may have besides, where the exact result is discontinuous (at a clip).
    sample: exact and plain results over more tokens, given where only a few are judged: these are too few draws of the
    rounding error to tell its size, so the bar comes from the sample, and what holds for single tokens holds for the few.
    """
    result, plain = result.detach().double(), plain.double()
    assert result.shape == exact.shape and bool(result.isfinite().all()), name
    error, allowed, scale = (value.reshape(len(exact), -1).norm(dim=1) for value in (result - exact, plain - exact, exact))
    extra = torch.full_like(scale, 1e-36) if slack is None else slack + 1e-36  # subnormal terms have no relative accuracy
    bar = max(2 * _relative(plain, exact) if sample is None else 2 * _relative(sample[1].double(), sample[0]), floor)
    error_norm, limit = error.norm(), (bar if sample is None else WORST_TOKEN * bar) * scale.norm() + extra.norm()
    assert error_norm <= limit, f"{name}: {error_norm / scale.norm():.2e} > {limit / scale.norm():.2e}"
    live = scale[scale > 0]
    typical = float(live.square().mean().sqrt()) if len(live) else 0.0  # a row far below it is all rounding error
    excess = error - (WORST_TOKEN * bar * scale.clamp_min(typical) + 2 * allowed + extra)
    assert not per_token or bool((excess <= 0).all()), f"{name}: row {int(excess.argmax())} is {float((error / scale).max()):.2e} off"


def _relative(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result - exact).norm() / exact.norm().clamp_min(1e-300))


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a backend; "compiled" and "eager" are the two routes of `torch`: with the compiled row passes and without them."""
    if request.param == "compiled" and cpu.library() is None:
        pytest.skip("no C++ compiler")
    if request.param == "eager":
        monkeypatch.setattr(cpu, "library", lambda: None)
    return "torch" if request.param in ("compiled", "eager") else request.param


@pytest.fixture(scope="session")
def check_bars() -> Callable[..., None]:
    return _check


@dataclass
class Expected:
    """divergence [N], gradients of Σ weight · divergence, entropies [N], clipped [N]; slack: what entries at the clip may change."""

    divergence: torch.Tensor
    hidden: torch.Tensor
    head: torch.Tensor
    entropy: torch.Tensor
    teacher_entropy: torch.Tensor
    clipped: torch.Tensor
    hidden_slack: torch.Tensor
    head_slack: torch.Tensor


def _through_softmax(g: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """g_j - q_j Σ_k g_k. In fp64 with g_k/q_k taken relative to that of the likeliest token: where it holds nearly all of the mass,
    its own gradient is the sum of the others' tiny ones, which the plain difference of two numbers near 1 does not see."""
    if q.dtype != torch.float64:
        return g - q * g.sum(-1, keepdim=True)
    relative = torch.where(q > 0, g / q, 0)
    relative = relative - relative.gather(-1, q.argmax(-1, keepdim=True))
    return q * (relative - (q * relative).sum(-1, keepdim=True))


def _expected_jsd(
    student_hidden,
    student_head,
    teacher_hidden,
    teacher_head,
    weights,
    beta,
    temperature=1.0,
    clip=None,
    mask=None,
    vocab_size=None,
    dtype=torch.float64,
    logits=None,
) -> Expected:
    """The formula, term by term, on whole logits in the given dtype. Padding columns are −inf here, not left out.

    logits: (student, teacher), each [N, V] before the temperature, if already computed in that dtype.
    """
    x, wx, y, wy, weights = (tensor.detach().to(dtype) for tensor in (student_hidden, student_head, teacher_hidden, teacher_head, weights))
    keep = torch.ones(len(x), dtype=torch.bool) if mask is None else mask
    s, t = (x @ wx.T, y @ wy.T) if logits is None else logits
    s, t = s[keep] / temperature, t[keep] / temperature
    if vocab_size is not None:
        s[:, vocab_size:], t[:, vocab_size:] = -torch.inf, -torch.inf
    ls, lt = (z - z.amax(-1, keepdim=True) for z in (s, t))
    ls, lt = (z - z.exp().sum(-1, keepdim=True).log() for z in (ls, lt))
    q, p = ls.exp(), lt.exp()
    if beta == 0:
        f, g = p * (lt - ls), -p
    elif beta == 1:
        f, g = q * (ls - lt), q * (ls - lt + 1)
    else:
        top = torch.maximum(ls, lt)
        lm = top + (beta * (lt - top).exp() + (1 - beta) * (ls - top).exp()).log()
        g = (1 - beta) * q * (ls - lm)
        f = beta * p * (lt - lm) + g.nan_to_num(0.0)
    absent = (p == 0) & (q == 0)
    f, g = torch.where(absent, 0, f), torch.where(absent, 0, g)
    f = torch.where((p == 0) & (beta == 0) | (q == 0) & (beta == 1), 0, f)
    g = torch.where(q == 0, -p if beta == 0 else torch.zeros_like(p), g)
    cut, edge = torch.zeros_like(f, dtype=torch.bool), torch.zeros_like(f)
    if clip is not None:
        cut = f > clip
        edge = torch.where((f - clip).abs() <= 1e-3 * clip, g.abs(), 0)
        f, g = f.clamp(max=clip), torch.where(cut, 0, g)
    elif beta in (0, 1):
        f = f + (q - p if beta == 0 else p - q)
    w = weights[keep, None] / temperature
    dlogits, edge = w * _through_softmax(g, q), w.abs() * (edge + q * edge.sum(-1, keepdim=True))

    def spread(values: torch.Tensor) -> torch.Tensor:
        full = values.new_zeros(len(keep), *values.shape[1:])
        full[keep] = values
        return full

    def entropy(probs: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
        return spread(-torch.where(probs > 0, probs * logprobs, 0).sum(-1))

    return Expected(
        divergence=spread(f.sum(-1)),
        hidden=spread(dlogits @ wx),
        head=dlogits.T @ x[keep],
        entropy=entropy(q, ls),
        teacher_entropy=entropy(p, lt),
        clipped=spread(cut.sum(-1)),
        hidden_slack=spread((edge @ wx.abs()).norm(dim=1)),
        head_slack=(edge.T @ x[keep].abs()).norm(dim=1),
    )


@pytest.fixture(scope="session")
def expected_jsd() -> Callable[..., Expected]:
    return _expected_jsd


@pytest.fixture(scope="session")
def expected_logprob() -> Callable[..., tuple[torch.Tensor, ...]]:
    """(hidden, head, targets, a, b, temperature, dtype) -> log-prob, entropy, and the gradients of Σ a · logprob + b · entropy."""

    def expected(hidden, head, targets, a, b, temperature=1.0, dtype=torch.float64):
        x, w, a, b = (tensor.detach().to(dtype) for tensor in (hidden, head, a, b))
        s = x @ w.T / temperature
        s = s - s.amax(-1, keepdim=True)
        logprobs = s - s.exp().sum(-1, keepdim=True).log()
        q = logprobs.exp()
        entropy = -(q * logprobs).sum(-1)
        one_hot = torch.nn.functional.one_hot(targets, len(w)).to(dtype)
        dlogits = (a[:, None] * (one_hot - q) - b[:, None] * q * (logprobs + entropy[:, None])) / temperature
        return logprobs.gather(1, targets[:, None])[:, 0], entropy, dlogits @ w, dlogits.T @ x

    return expected


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `combination` runs over a pairwise cover of its module's FACTORS."""
    if "combination" in metafunc.fixturenames:
        rows = pairwise(metafunc.module.FACTORS)
        ids = ["-".join(str(value).removeprefix("torch.").replace(" ", "_") for value in row) for row in rows]
        metafunc.parametrize("combination", rows, ids=ids)


def pairwise(factors: Sequence[Sequence]) -> list[tuple]:
    """Few combinations, among which every pair of values of every two factors occurs; greedy and deterministic."""
    pairs = {
        ((i, a), (j, b))
        for (i, first), (j, second) in itertools.combinations(enumerate(factors), 2)
        for a in range(len(first))
        for b in range(len(second))
    }
    rows = []
    while pairs:
        row = dict(min(pairs))
        for i, factor in enumerate(factors):
            if i not in row:
                gains = [sum(tuple(sorted(((i, a), chosen))) in pairs for chosen in row.items()) for a in range(len(factor))]
                row[i] = max(range(len(factor)), key=gains.__getitem__)
        pairs -= set(itertools.combinations(sorted(row.items()), 2))
        rows.append(tuple(factor[row[i]] for i, factor in enumerate(factors)))
    return rows
