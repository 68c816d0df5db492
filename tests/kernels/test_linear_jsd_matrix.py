"""fused_linear_jsd against a float64 oracle over shapes, dtypes, β, temperature, clip, distributions and masks."""

import functools
import itertools
import math
from dataclasses import dataclass

import mpmath
import pytest
import torch

from papergym.kernels import cpu
from papergym.kernels.linear_jsd import fused_linear_jsd

SHAPES = [(41, 64, 401), (37, 96, 4099), (423, 167, 1423), (128, 1024, 4096), (1, 64, 151936)]  # the first fills up a cover: the cheapest
INTERPRETED = [(9, 64, 401), (8, 96, 4099), (8, 167, 1423), (8, 256, 2048), (8, 64, 4099)]  # Triton's interpreter takes 0.1 s a row
DTYPES = [torch.float32, torch.bfloat16]
BETAS = [0.0, 1e-3, 0.1, 0.5, 0.9, 1.0]
TEMPERATURES = [1.0, 0.6, 1.1, 2.0]
CLIPS = [None, 0.05, 1e-3, 1e-6]
DISTRIBUTIONS = ["independent", "near", "very near", "one-hot against uniform", "gap 50", "gap 103", "gap 200", "padded"]
MASKED = [0.0, 0.99, 1.0]
TEACHERS = ["shared head", "own head", "wider"]
BACKENDS = ["compiled", "eager", "reference"]
FACTORS = (SHAPES, DTYPES, BETAS, TEMPERATURES, CLIPS, DISTRIBUTIONS, MASKED, TEACHERS)
FLOOR = 1e-5  # smallest bar
INTERPRETED_PRODUCT = (4, 64, 401)
FEW = 8  # rows, below which their errors say little about the size of rounding
NOISE = {"near": 0.05, "very near": 1e-3}


def name(shape):
    return "x".join(map(str, shape))


def largest_bar(backend):
    """The compiled route keeps its digits where plain fp32 loses all of them, and where a bar made of its errors would let zeros pass."""
    return 0.1 if backend == "torch" and cpu.library() is not None else math.inf


def device_of(backend):
    return "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"


def make(shape, dtype, distribution, masked, teacher, generator):
    """Inputs whose logits have the named shape. Token 0 is the student's favourite, token 1 the teacher's, by a feature of their own."""
    rows, width, vocabulary = shape
    wide = width + 24 if teacher == "wider" else width

    def normal(*size):
        return torch.randn(*size, generator=generator)

    def favour(hidden, head, token, gap):
        head[:, token] = 0
        head[token] = 0
        head[token, token] = 1
        hidden[:, token] = gap

    student_head, student = normal(vocabulary, width) * 2 / width**0.5, normal(rows, width)
    if teacher == "own head":
        teacher_head = student_head + 0.01 * normal(vocabulary, width)
    elif teacher == "wider":
        teacher_head = torch.cat((student_head, 0.1 * normal(vocabulary, wide - width)), 1)
    else:
        teacher_head = student_head
    teacher_hidden = torch.cat((student, torch.zeros(rows, wide - width)), 1) if distribution in NOISE else normal(rows, wide)
    if distribution in NOISE:
        teacher_hidden += NOISE[distribution] * normal(rows, wide)
    elif distribution == "one-hot against uniform":
        student.zero_()
        favour(teacher_hidden, teacher_head, 1, 200)
    elif distribution.startswith("gap"):
        gap = float(distribution.split()[1])
        favour(student, student_head, 0, gap)
        favour(teacher_hidden, teacher_head, 1, gap)
        if teacher == "shared head":
            student[:, 1] = teacher_hidden[:, 0] = 0
    vocab_size = None
    if distribution == "padded":
        vocab_size = vocabulary - 7
        student_head[vocab_size:], teacher_head[vocab_size:] = 30.0, -30.0
    if teacher == "shared head":
        teacher_head = student_head = student_head.to(dtype)
    tensors = (student.to(dtype), student_head.to(dtype), teacher_hidden.to(dtype), teacher_head.to(dtype))
    mask = None if masked == 0 else torch.rand(rows, generator=generator) >= masked
    if masked == 0.99:
        mask[rows // 2] = True
    return tensors, torch.randn(rows, generator=generator), mask, vocab_size


@dataclass(frozen=True)
class Case:
    """Inputs at one temperature, which settings of β and clip share."""

    shape: tuple[int, int, int]
    dtype: torch.dtype
    distribution: str
    masked: float
    teacher: str
    temperature: float

    @functools.cached_property
    def inputs(self):
        return make(self.shape, self.dtype, self.distribution, self.masked, self.teacher, torch.Generator().manual_seed(7))

    def pairs(self, distributions):
        """The oracle's distributions in fp64 and fp32; of the rows that are judged, and of all if those are too few to sample rounding."""
        tensors, weights, mask, vocab_size = self.inputs
        masks = [mask] if mask is None or bool(mask.all()) or int(mask.sum()) >= FEW else [mask, None]
        for kind in (torch.float64, torch.float32):
            x, wx, y, wy = (tensor.to(kind) for tensor in tensors)
            logits = x @ wx.T, y @ wy.T
            yield [distributions.of(x, wx, logits, weights, self.temperature, chosen, vocab_size) for chosen in masks]


def bars(oracle, judge, case):
    """(β, clip) -> a function that holds a backend's results, of `run`, to the bars."""
    distributions, expected = oracle
    (pair, *all_rows), (plain_pair, *plain_all_rows) = case.pairs(distributions)
    few = len(pair.hidden) < FEW
    # A log-prob of -g is rounded to g · 2⁻²⁴, a relative error of its probability that no later step can undo.
    gap = float(case.distribution.split()[1]) / case.temperature if case.distribution.startswith("gap") else 0
    floor = {torch.float32: max(FLOOR, 8 * gap * 2**-24), torch.bfloat16: 5e-3}[case.dtype]

    def expect(beta, clip):
        exact, plain = expected.of(pair, beta, clip), expected.of(plain_pair, beta, clip, slack=False)
        wide = [expected.of(rows, beta, clip, slack=False) for rows in (*all_rows, *plain_all_rows)] or [exact, plain]

        def bar(field, *options, per_token=True):
            values = [getattr(each, field) for each in (exact, plain, *wide)]
            return judge(*values[:2], *options, per_token=per_token, sample=tuple(values[2:]) if few else None)

        # A clipped endpoint sums terms of either sign, and the rounding of a log-sum-exp enters the sum whole.
        rounding = 2**-23 * (1 + exact.entropy) if clip is not None and beta in (0, 1) else None
        judges = {
            "divergence": bar("divergence", FLOOR, rounding),
            "hidden": bar("hidden", floor, exact.hidden_slack),
            "head": bar("head", floor, exact.head_slack, per_token=False),
            "entropy": bar("entropy"),
            "teacher_entropy": bar("teacher_entropy"),
        }

        def hold(backend, results):
            for field, holds in judges.items():
                holds(field, results[field].cpu(), largest_bar(backend))
            allowed = max(2e-3 * float(exact.clipped.sum()), int(clip is not None))
            assert int((results["clipped"].cpu() - exact.clipped).abs().sum()) <= allowed

        return hold

    return expect


def run(backend, case, beta, clip):
    """The operation's outputs and gradients, by name."""
    tensors, weights, mask, vocab_size = case.inputs
    device = device_of(backend)
    student, head, teacher, teacher_head = (tensor.to(device).detach() for tensor in tensors)
    teacher_head = head if tensors[1] is tensors[3] else teacher_head
    student.requires_grad_(), head.requires_grad_()
    options = {"beta": beta, "temperature": case.temperature, "element_clip": clip, "vocab_size": vocab_size, "backend": backend}
    options["workspace_bytes"] = 24 << 20  # several chunks at the larger shapes
    out = fused_linear_jsd(student, head, teacher, teacher_head, mask=None if mask is None else mask.to(device), **options)
    (out.divergence * weights.to(device)).sum().backward()
    return vars(out) | {"hidden": student.grad, "head": head.grad}


@pytest.mark.parametrize("backend", [*BACKENDS, "triton"], indirect=True)
def test_every_pair_of_settings(backend, combination, oracle, judge):
    shape, dtype, beta, temperature, clip, *rest = combination
    if backend == "reference" and shape[2] > 10_000:
        pytest.skip("the plain backend needs fp64 logits of the whole vocabulary")
    if backend == "triton" and not torch.cuda.is_available():
        shape = INTERPRETED[SHAPES.index(shape)]
    case = Case(shape, dtype, *rest, temperature)
    bars(oracle, judge, case)(beta, clip)(backend, run(backend, case, beta, clip))


@pytest.mark.slow
def test_every_pair_of_settings_at_full_size_in_triton(combination, oracle, judge):
    shape, dtype, beta, temperature, clip, *rest = combination
    if shape[2] < 10_000:
        case = Case(shape, dtype, *rest, temperature)
        bars(oracle, judge, case)(beta, clip)("triton", run("triton", case, beta, clip))


@pytest.mark.slow
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_whole_product(shape, dtype, distribution, oracle, judge, monkeypatch):
    """Masks and teachers take turns, all else is the full product, by both routes of `torch` and by `reference` against one oracle."""
    compiled = cpu.library
    routes = [("eager", "torch", lambda: None)]
    if compiled() is not None:
        routes.append(("compiled", "torch", compiled))
    if shape in SHAPES[:2]:  # fp64 logits of the larger ones take long
        routes.append(("reference", "reference", compiled))
    check_product((shape, dtype, distribution), routes, oracle, judge, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_product_in_triton(dtype, distribution, oracle, judge, monkeypatch):
    check_product((INTERPRETED_PRODUCT, dtype, distribution), [("triton", "triton", cpu.library)], oracle, judge, monkeypatch)


def check_product(settings, routes, oracle, judge, monkeypatch):
    """Every temperature, β and clip by every route: (its name, the backend, what stands for the compiled library)."""
    turns = itertools.cycle(itertools.product(MASKED[:2], TEACHERS))
    missed = []
    for temperature in TEMPERATURES:
        case = Case(*settings, *next(turns), temperature)
        expect = bars(oracle, judge, case)
        for beta, clip in itertools.product(BETAS, CLIPS):
            hold = expect(beta, clip)
            for route, backend, library in routes:
                monkeypatch.setattr(cpu, "library", library)
                try:
                    hold(backend, run(backend, case, beta, clip))
                except AssertionError as error:
                    setting = f"{route} β={beta} T={temperature} clip={clip} {case.masked} {case.teacher}"
                    missed.append(f"{setting}: {str(error).splitlines()[0]}")
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("backend", [*BACKENDS[:2], "triton"], indirect=True)
@pytest.mark.parametrize("beta", BETAS + [0.75, 0.999])
@pytest.mark.parametrize("sigma", [1, 4, 7, 12])
def test_far_apart(backend, beta, sigma, check_bars, expected_jsd):
    """Independent logits of N(0, σ²): log(q/m) is nearly constant where the student has mass, and the gradient is what differs."""
    generator = torch.Generator().manual_seed(11)
    head, weights = torch.eye(1000), torch.randn(8, generator=generator)
    for _ in range(1 if backend == "triton" else 4):
        student, teacher = sigma * torch.randn(2, 8, 1000, generator=generator)
        exact, plain = (expected_jsd(student, head, teacher, head, weights, beta, dtype=kind) for kind in (torch.float64, torch.float32))
        device = device_of(backend)
        student.requires_grad_()
        shared = head.to(device)
        out = fused_linear_jsd(student.to(device), shared, teacher.to(device), shared, beta=beta, backend=backend)
        (out.divergence * weights.to(device)).sum().backward()
        check_bars("divergence", out.divergence.cpu(), exact.divergence, plain.divergence)
        check_bars("hidden", student.grad, exact.hidden, plain.hidden)
        if sigma >= 4:  # not only within the bar: far below the plain formula, which loses most digits here
            assert (student.grad - exact.hidden).norm() <= 1e-5 * exact.hidden.norm()


@pytest.mark.parametrize("backend", [*BACKENDS[:2], "triton"], indirect=True)
@pytest.mark.parametrize("shift", [20.0, 1e3, -1e4, 1e6, 1e9])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_shift_of_one_sides_logits_changes_nothing(backend, shift, temperature, check_bars, expected_jsd):
    """But for the rounding of the shifted logits, from which the oracle starts too."""
    generator = torch.Generator().manual_seed(13)
    head, weights = torch.eye(300), torch.randn(4, generator=generator)
    base = 2 * torch.randn(4, 300, generator=generator)
    near = base + 0.1 * torch.randn(4, 300, generator=generator)
    device = device_of(backend)
    for beta, clip in [(0.0, None), (0.1, None), (0.5, 1e-3), (0.9, None), (1.0, None)][:: 2 if backend == "triton" else 1]:
        for student, teacher in ((base, near + shift), (base + shift, near)):
            tensors, options = (student, head, teacher, head, weights, beta), {"temperature": temperature, "clip": clip}
            exact = expected_jsd(*tensors, **options)
            student, shared = student.clone().requires_grad_(), head.to(device)
            options = {"beta": beta, "temperature": temperature, "element_clip": clip, "backend": backend}
            out = fused_linear_jsd(student.to(device), shared, teacher.to(device), shared, **options)
            (out.divergence * weights.to(device)).sum().backward()
            check_bars("divergence", out.divergence.cpu(), exact.divergence, exact.divergence)
            check_bars("hidden", student.grad, exact.hidden, exact.hidden, slack=exact.hidden_slack)


@pytest.mark.parametrize("clip", CLIPS[:2])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("distribution", ["independent", "one-hot against uniform", "gap 50", "gap 103"])
def test_the_oracle_in_eighty_digits(distribution, beta, clip, expected_jsd):
    """The same formula, number by number, from the same logits: in fp64 the oracle must not itself be what rounding makes of it."""
    tensors, weights, *_ = Case((3, 6, 9), torch.float64, distribution, 0.0, "own head", 1.0).inputs
    logits = tensors[0] @ tensors[1].T, tensors[2] @ tensors[3].T
    expected = expected_jsd(*tensors, weights, beta, clip=clip, logits=logits)
    with mpmath.workdps(80):
        for row, (student, teacher) in enumerate(zip(*(side.tolist() for side in logits))):
            q, p = softmax(student), softmax(teacher)
            m = [beta * b + (1 - beta) * a for a, b in zip(q, p)]
            if beta == 0:
                f, g = [b * mpmath.log(b / a) for a, b in zip(q, p)], [-b for b in p]
            elif beta == 1:
                f = [a * mpmath.log(a / b) for a, b in zip(q, p)]
                g = [a + value for a, value in zip(q, f)]
            else:
                g = [(1 - beta) * a * mpmath.log(a / c) for a, c in zip(q, m)]
                f = [beta * b * mpmath.log(b / c) + value for b, c, value in zip(p, m, g)]
            if clip is not None:
                g = [0 if value > clip else derivative for value, derivative in zip(f, g)]
                f = [min(value, clip) for value in f]
            logit_gradient = [float(weights[row]) * (derivative - a * mpmath.fsum(g)) for derivative, a in zip(g, q)]
            columns = tensors[1].T.tolist()
            hidden = [float(mpmath.fsum(d * w for d, w in zip(logit_gradient, column))) for column in columns]
            torch.testing.assert_close(expected.hidden[row], torch.tensor(hidden, dtype=torch.float64), rtol=1e-9, atol=0)
            torch.testing.assert_close(float(expected.divergence[row]), float(mpmath.fsum(f)), rtol=1e-9, atol=0)


def softmax(logits):
    weights = [mpmath.exp(logit) for logit in logits]
    return [weight / mpmath.fsum(weights) for weight in weights]
