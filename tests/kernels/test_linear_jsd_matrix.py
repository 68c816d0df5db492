"""fused_linear_jsd against a float64 oracle over shapes, dtypes, β, temperature, clip, distributions and masks."""

import functools
import itertools
from dataclasses import dataclass

import mpmath
import pytest
import torch

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
NOISE = {"near": 0.05, "very near": 1e-3}


def name(shape):
    return "x".join(map(str, shape))


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
    """Inputs and their logits in fp64 and fp32, which many settings share."""

    shape: tuple[int, int, int]
    dtype: torch.dtype
    distribution: str
    masked: float
    teacher: str

    @functools.cached_property
    def inputs(self):
        return make(self.shape, self.dtype, self.distribution, self.masked, self.teacher, torch.Generator().manual_seed(7))

    @functools.cached_property
    def logits(self):
        x, wx, y, wy = self.inputs[0]
        return {kind: (x.to(kind) @ wx.to(kind).T, y.to(kind) @ wy.to(kind).T) for kind in (torch.float64, torch.float32)}


def check(backend, check_bars, expected_jsd, case, beta, temperature, clip):
    tensors, weights, mask, vocab_size = case.inputs
    arguments = {"beta": beta, "temperature": temperature, "mask": mask, "vocab_size": vocab_size}

    def oracle(kind, **changes):
        return expected_jsd(*tensors, weights, clip=clip, dtype=kind, logits=case.logits[kind], **arguments | changes)

    exact, plain = oracle(torch.float64), oracle(torch.float32)
    few = (len(weights) if mask is None else int(mask.sum())) < 8
    wide = [oracle(kind, mask=None) for kind in (torch.float64, torch.float32) if few]

    shared = tensors[1] is tensors[3]
    device = device_of(backend)
    student, head, teacher, teacher_head = (tensor.to(device, copy=True) for tensor in tensors)
    student.requires_grad_(), head.requires_grad_()
    # 24 MiB: several chunks at the larger shapes
    options = {"element_clip": clip, "workspace_bytes": 24 << 20, "backend": backend, "mask": mask if mask is None else mask.to(device)}
    out = fused_linear_jsd(student, head, teacher, head if shared else teacher_head, **arguments | options)
    (out.divergence * weights.to(device)).sum().backward()

    # A log-prob of -g is rounded to g · 2⁻²⁴, a relative error of its probability that no later step can undo.
    gap = float(case.distribution.split()[1]) / temperature if case.distribution.startswith("gap") else 0
    floor = {torch.float32: max(FLOOR, 8 * gap * 2**-24), torch.bfloat16: 5e-3}[case.dtype]

    def judge(field, result, *options, per_token=True):
        values = [getattr(expected, field) for expected in (exact, plain, *wide)]
        check_bars(field, result.cpu(), *values[:2], *options, per_token=per_token, sample=tuple(values[2:]) or None)

    # A clipped endpoint sums terms of either sign, and the rounding of a log-sum-exp enters the sum whole.
    rounding = 2**-23 * (1 + exact.entropy) if clip is not None and beta in (0, 1) else None
    judge("divergence", out.divergence, FLOOR, rounding)
    judge("hidden", student.grad, floor, exact.hidden_slack)
    judge("head", head.grad, floor, exact.head_slack, per_token=False)
    judge("entropy", out.entropy)
    judge("teacher_entropy", out.teacher_entropy)
    assert int((out.clipped.cpu() - exact.clipped).abs().sum()) <= max(2e-3 * float(exact.clipped.sum()), int(clip is not None))


@pytest.mark.parametrize("backend", [*BACKENDS, "triton"], indirect=True)
def test_every_pair_of_settings(backend, combination, check_bars, expected_jsd):
    shape, dtype, beta, temperature, clip, *rest = combination
    if backend == "reference" and shape[2] > 10_000:
        pytest.skip("the plain backend needs fp64 logits of the whole vocabulary")
    if backend == "triton" and not torch.cuda.is_available():
        shape = INTERPRETED[SHAPES.index(shape)]
    check(backend, check_bars, expected_jsd, Case(shape, dtype, *rest), beta, temperature, clip)


@pytest.mark.slow
def test_every_pair_of_settings_at_full_size_in_triton(combination, check_bars, expected_jsd):
    shape, dtype, beta, temperature, clip, *rest = combination
    if shape[2] < 10_000:
        check("triton", check_bars, expected_jsd, Case(shape, dtype, *rest), beta, temperature, clip)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "shape", [pytest.param(shape, marks=pytest.mark.slow if shape in SHAPES[:2] else pytest.mark.soak, id=name(shape)) for shape in SHAPES]
)
@pytest.mark.parametrize("backend", BACKENDS[:2], indirect=True)
def test_whole_product(backend, shape, dtype, distribution, check_bars, expected_jsd):
    """Masks and teachers take turns, all else is the full product."""
    turns = itertools.cycle(itertools.product(MASKED[:2], TEACHERS))
    missed = []
    for temperature in TEMPERATURES:
        case = Case(shape, dtype, distribution, *next(turns))
        for beta, clip in itertools.product(BETAS, CLIPS):
            try:
                check(backend, check_bars, expected_jsd, case, beta, temperature, clip)
            except AssertionError as error:
                missed.append(f"β={beta} T={temperature} clip={clip} {case.masked} {case.teacher}: {str(error).splitlines()[0]}")
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


@pytest.mark.parametrize("clip", CLIPS[:2])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("distribution", ["independent", "one-hot against uniform", "gap 50", "gap 103"])
def test_the_oracle_in_eighty_digits(distribution, beta, clip, expected_jsd):
    """The same formula, number by number, from the same logits: in fp64 the oracle must not itself be what rounding makes of it."""
    case = Case((3, 6, 9), torch.float64, distribution, 0.0, "own head")
    tensors, weights, *_ = case.inputs
    expected = expected_jsd(*tensors, weights, beta, clip=clip, logits=case.logits[torch.float64])
    with mpmath.workdps(80):
        for row, (student, teacher) in enumerate(zip(*(side.tolist() for side in case.logits[torch.float64]))):
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
