"""Float64 oracles, written from the formulas alone, and the bars that results are held to."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from papergym.kernels import cpu

FLOOR = 1e-5  # smallest bar: relative error that passes whatever plain fp32 achieves
BF16_GRADIENT = 5e-3
WORST_TOKEN = 10  # times the bar


class Judge:
    """Holds results to the bar that the same formula in plain fp32 sets against fp64; several results may be held to one.

    Relative norm of the error, and for tensors with a row a token the worst row.
    slack [rows]: absolute error that a row may have besides, where the exact result is discontinuous (at a clip).
    sample: exact and plain results over more tokens, given where only a few are judged: these are too few draws of the
    rounding error to tell its size, so the bar comes from the sample, and what holds for single tokens holds for the few.
    """

    def __init__(
        self,
        exact: torch.Tensor,
        plain: torch.Tensor,
        floor: float = FLOOR,
        slack: torch.Tensor | None = None,
        per_token: bool = True,
        sample: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        self.exact, self.per_token = exact, per_token
        self.scale, self.allowed = _row_norms(exact), _row_norms(plain, exact)
        same = sample is None or sample[0] is exact
        scale, allowed = (self.scale, self.allowed) if same else (_row_norms(sample[0]), _row_norms(sample[1], sample[0]))
        self.bar = max(2 * float(allowed.norm() / scale.norm().clamp_min(1e-300)), floor)
        self.extra = torch.full_like(self.scale, 1e-36) if slack is None else slack + 1e-36  # subnormal terms have no relative accuracy
        self.loosened = 1 if sample is None else WORST_TOKEN

    def __call__(self, name: str, result: torch.Tensor, most: float = math.inf) -> None:
        """most: the bar is no higher, for results that keep their digits where the plain formula loses all of them."""
        result, scale, bar = result.detach(), self.scale, min(self.bar, most)
        limit = min(self.loosened * bar, most) * scale.norm() + self.extra.norm()
        assert result.shape == self.exact.shape, name
        error = _row_norms(result, self.exact)
        error_norm = error.norm()
        assert bool(error_norm.isfinite()), name
        assert error_norm <= limit, f"{name}: {error_norm / scale.norm():.2e} > {limit / scale.norm():.2e}"
        live = scale[scale > 0]
        typical = float(live.square().mean().sqrt()) if len(live) else 0.0  # a row far below it is all rounding error
        excess = error - (WORST_TOKEN * bar * scale.clamp_min(typical) + 2 * self.allowed + self.extra)
        row = f"row {int(excess.argmax())} is {float((error / scale).max()):.2e} off" if len(excess) else ""
        assert not self.per_token or bool((excess <= 0).all()), f"{name}: {row}"


def _row_norms(values: torch.Tensor, less: torch.Tensor | None = None) -> torch.Tensor:
    """Norms [rows] of values − less in fp64, by blocks of rows that stay in the cache."""
    norms = torch.empty(len(values), dtype=torch.float64)
    step = max(1, 2**16 // max(1, values[:1].numel()))
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        block = values[rows].double() if less is None else values[rows].double() - less[rows]
        norms[rows] = torch.linalg.vector_norm(block.flatten(1) if block.dim() > 1 else block[:, None], dim=1)
    return norms


@pytest.fixture
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a backend; "compiled" and "eager" are the two routes of `torch`: with the compiled row passes and without them."""
    if request.param == "compiled" and cpu.library() is None:
        pytest.skip("no C++ compiler")
    if request.param == "eager":
        monkeypatch.setattr(cpu, "library", lambda: None)
    return "torch" if request.param in ("compiled", "eager") else request.param


@pytest.fixture(scope="session")
def judge() -> type[Judge]:
    return Judge


@pytest.fixture(scope="session")
def check_bars() -> Callable[..., None]:
    """(name, result, exact, plain, ...): one result against one Judge."""
    return lambda name, result, *bars, **options: Judge(*bars, **options)(name, result)


def _through_softmax(g: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """g_j - q_j Σ_k g_k. In fp64 with g_k/q_k taken relative to that of the likeliest token: where it holds nearly all of the mass,
    its own gradient is the sum of the others' tiny ones, which the plain difference of two numbers near 1 does not see."""
    if q.dtype != torch.float64:
        return g - q * g.sum(-1, keepdim=True)
    relative = torch.where(q > 0, g / q, 0)
    relative = relative - relative.gather(-1, q.argmax(-1, keepdim=True))
    return q * (relative - (q * relative).sum(-1, keepdim=True))


@dataclass(eq=False)
class Distributions:
    """What β and the clip share: log-probs and probabilities [n, V] of student and teacher in one dtype, for the rows that the mask keeps.

    hidden [n, H], head [V, H], weights [n]; keep [N]: the mask. Padding columns are −inf here, not left out.
    """

    hidden: torch.Tensor
    head: torch.Tensor
    weights: torch.Tensor
    keep: torch.Tensor
    temperature: float
    student: torch.Tensor
    teacher: torch.Tensor

    @classmethod
    def of(cls, hidden, head, logits, weights, temperature=1.0, mask=None, vocab_size=None) -> "Distributions":
        """hidden [N, H], head [V, H] and the logits [N, V] of student and teacher before the temperature, all in one dtype."""
        keep = torch.ones(len(hidden), dtype=torch.bool) if mask is None else mask
        sides = []
        for z in logits:
            z = z[keep] / temperature
            if vocab_size is not None:
                z[:, vocab_size:] = -torch.inf
            z -= z.amax(-1, keepdim=True)
            sides.append(z - z.exp().sum(-1, keepdim=True).log())
        return cls(hidden[keep], head, weights.to(hidden.dtype)[keep], keep, temperature, *sides)

    @functools.cached_property
    def probabilities(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.student.exp(), self.teacher.exp()

    @functools.cached_property
    def entropies(self) -> list[torch.Tensor]:
        """Of student and teacher, [N]."""
        pairs = zip(self.probabilities, (self.student, self.teacher))
        return [self.spread(-torch.where(probs > 0, probs * logprobs, 0).sum(-1)) for probs, logprobs in pairs]

    def spread(self, values: torch.Tensor) -> torch.Tensor:
        """The rows at their places among all, which are 0 elsewhere."""
        full = values.new_zeros(len(self.keep), *values.shape[1:])
        full[self.keep] = values
        return full

    @functools.cached_property
    def magnitudes(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """|head| [V, H], q · |head| [n, H] and |hidden| · |hidden|ᵀ [n, n]."""
        head, hidden = self.head.abs(), self.hidden.abs()
        return head, self.probabilities[0] @ head, hidden @ hidden.T

    @functools.cached_property
    def rounding(self) -> torch.Tensor:
        """How far the rounding of fp32 logits may move an entry of the divergence, [n, V]: each logit is off by 2⁻²⁴ |hidden| |head|, the
        teacher's by as much, and the softmax takes off what all entries share."""
        logits = 2**-23 / self.temperature * self.hidden.norm(dim=1)[:, None] * self.head.norm(dim=1)
        q, p = self.probabilities
        return logits * torch.maximum(q, p) * (1 - torch.minimum(q, p))

    def slack(self, edge: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Norms of rows of what derivatives of size edge [n, V], cut or not, change in the gradients of hidden [N] and head [V]."""
        head, mean, products = self.magnitudes
        weights, total, columns = self.weights[:, None].abs() / self.temperature, edge.sum(-1, keepdim=True), edge.any(0)
        hidden = weights * (edge[:, columns] @ head[columns] + total * mean)
        edge = weights * (edge + self.probabilities[0] * total)
        return self.spread(hidden.norm(dim=1)), (products @ edge).mul_(edge).sum(0).sqrt()


@functools.lru_cache(maxsize=4)  # while the clip varies: fp64 and fp32, of the rows that are judged and of the sample
def _entries(pair: "Distributions", beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """f and its derivative by the student's log-prob, [n, V], before any clip or balance: the formula, term by term."""
    ls, lt, (q, p) = pair.student, pair.teacher, pair.probabilities
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
    return f, torch.where(q == 0, -p if beta == 0 else torch.zeros_like(p), g)


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

    @classmethod
    def of(cls, pair: Distributions, beta: float, clip: float | None = None, slack: bool = True) -> "Expected":
        """slack: whether it is wanted; else it is 0."""
        f, g = _entries(pair, beta)
        q, p = pair.probabilities
        cut = torch.zeros((), dtype=torch.bool).expand(f.shape)
        hidden_slack, head_slack = f.new_zeros(len(pair.keep)), f.new_zeros(f.shape[1])
        if clip is not None:
            cut = f > clip
            if slack:
                hidden_slack, head_slack = pair.slack(torch.where((f - clip).abs() <= 1e-3 * clip + pair.rounding, g.abs(), 0))
            f, g = f.clamp(max=clip), torch.where(cut, 0, g)
        elif beta in (0, 1):
            f = f + (q - p if beta == 0 else p - q)
        dlogits = pair.weights[:, None] / pair.temperature * _through_softmax(g, q)
        return cls(
            divergence=pair.spread(f.sum(-1)),
            hidden=pair.spread(dlogits @ pair.head),
            head=dlogits.T @ pair.hidden,
            entropy=pair.entropies[0],
            teacher_entropy=pair.entropies[1],
            clipped=pair.spread(cut.sum(-1)),
            hidden_slack=hidden_slack,
            head_slack=head_slack,
        )


@pytest.fixture(scope="session")
def oracle() -> tuple[type[Distributions], type[Expected]]:
    """Both halves of expected_jsd, for settings that share the first."""
    return Distributions, Expected


@pytest.fixture(scope="session")
def expected_jsd() -> Callable[..., Expected]:
    """The formula, term by term, on whole logits in the given dtype."""

    def expected(student, head, teacher, teacher_head, weights, beta, clip=None, dtype=torch.float64, logits=None, **options) -> Expected:
        x, wx, y, wy = (tensor.detach().to(dtype) for tensor in (student, head, teacher, teacher_head))
        return Expected.of(Distributions.of(x, wx, (x @ wx.T, y @ wy.T) if logits is None else logits, weights, **options), beta, clip)

    return expected


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


class Allocations(TorchDispatchMode):
    """Records the bytes of every storage that an operation returns, and the tensor's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, tuple[int, ...]]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.sizes.append((tensor.untyped_storage().nbytes(), tuple(tensor.shape)))
        return result


@pytest.fixture
def allocations() -> Allocations:
    return Allocations()
