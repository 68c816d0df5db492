"""Backend triton, beyond the matrix of settings: tiles, packing, offsets, the path without a workspace, twins, refusals.

The kernels run under Triton's interpreter, or on the GPU if there is one. It takes 0.1 s a row, so inputs are small.
"""

import math

import pytest
import torch
import triton
import triton.language as tl

from papergym.errors import InputError
from papergym.kernels import triton_tiles
from papergym.kernels.linear_jsd import divergences, fused_linear_jsd
from papergym.kernels.linear_jsd import triton as backend
from papergym.kernels.linear_jsd.triton_divergences import jsd as jsd_twin
from papergym.kernels.linear_jsd.triton_rows import COUNTS, STATISTICS, divergence_rows, row_launch
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.kernels.linear_logprob.triton import linear_logprob

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # −inf − −inf, where another value is taken


def inputs(rows=5, width=16, vocabulary=301, noise=0.3, seed=3):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(rows, width, generator=generator)
    head = torch.randn(vocabulary, width, generator=generator) / 2
    teacher = student + noise * torch.randn(rows, width, generator=generator)
    weights = torch.randn(rows, generator=generator)
    return student.to(DEVICE).requires_grad_(), head.to(DEVICE).requires_grad_(), teacher.to(DEVICE), weights.to(DEVICE)


def close(one, other, bar=1e-5):
    return float((one - other).detach().norm()) <= bar * float(other.detach().norm())


@pytest.mark.parametrize(("beta", "clip"), [(0.0, None), (0.3, None), (0.5, 1e-3), (1.0, None)])
def test_many_tiles_a_row_and_many_chunks_give_what_torch_gives(beta, clip, monkeypatch):
    monkeypatch.setattr(backend, "row_launch", lambda dtype: {"LANES": 16, "GROUP": 4, "num_warps": 2})
    monkeypatch.setattr(backend, "BACKWARD_ROWS", 2)
    student, head, teacher, weights = inputs()
    teacher_head = head.detach() * 1.05
    results = []
    for name in ("triton", "torch"):
        options = {"beta": beta, "element_clip": clip, "temperature": 1.3, "workspace_bytes": 12_000 if name == "triton" else 1 << 30}
        out = fused_linear_jsd(student, head, teacher, teacher_head, backend=name, **options)
        results.append((out, torch.autograd.grad((out.divergence * weights).sum(), (student, head))))
    (ours, gradients), (expected, expected_gradients) = results
    assert all(close(one, other) for one, other in zip(gradients, expected_gradients))
    assert close(ours.divergence, expected.divergence) and close(ours.entropy, expected.entropy)
    assert close(ours.teacher_entropy, expected.teacher_entropy) and torch.equal(ours.top1_agree, expected.top1_agree)
    assert torch.equal(ours.clipped, expected.clipped) and bool(ours.clipped.any()) == (clip is not None)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("clip", [None, 1e-3])
def test_without_gradients_and_workspace_nothing_changes(beta, clip):
    student, head, teacher, _ = inputs(rows=35, vocabulary=1100)
    wide = torch.cat((head.detach(), torch.ones(1100, 3, device=DEVICE)), 1)
    teacher = torch.cat((teacher, 0.1 * teacher[:, :3]), 1)
    mask = torch.arange(35, device=DEVICE) % 3 != 1
    options = {"beta": beta, "element_clip": clip, "temperature": 0.7, "mask": mask}
    with torch.no_grad():
        ours = fused_linear_jsd(student, head, teacher, wide, backend="triton", workspace_bytes=1, **options)
        expected = fused_linear_jsd(student, head, teacher, wide, backend="torch", **options)
    for name in ("divergence", "entropy", "teacher_entropy"):
        assert close(getattr(ours, name), getattr(expected, name)), name
    assert torch.equal(ours.top1_agree, expected.top1_agree) and 0 < int(ours.top1_agree.sum()) < int(mask.sum())
    assert torch.equal(ours.clipped, expected.clipped)


def row_pass(logits, gradient, rows, stride, **launch):
    """divergence_rows on logits [2, rows, V] that lie `stride` apart; returns its statistics."""
    launch = row_launch(gradient.dtype) | launch
    vocabulary = logits.shape[2]
    statistics = torch.empty(STATISTICS, rows, device=DEVICE)
    counts = torch.empty(COUNTS, rows, dtype=torch.int64, device=DEVICE)
    options = {"ENTRIES": jsd_twin, "BETA": 0.5, "BALANCE": 0.0, "CLIP": False, "GRADIENT": True}
    strides = stride, gradient.stride(0)
    divergence_rows[(rows,)](logits[0], logits[1], gradient, statistics, counts, rows, vocabulary, *strides, 1.0, 0.0, **options, **launch)
    return statistics


def test_a_bf16_gradient_is_packed_over_its_own_logits():
    vocabulary, tile = (901, {"LANES": 16, "GROUP": 4}) if DEVICE == "cpu" else (100_001, {"GROUP": 8})
    logits = torch.randn(2, 3, vocabulary, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    exact = torch.empty(3, vocabulary, device=DEVICE)
    expected = row_pass(logits, exact, 3, vocabulary, **tile)
    packed = logits[0].view(torch.bfloat16)[:, :vocabulary]
    assert torch.equal(row_pass(logits, packed, 3, vocabulary, **tile), expected)
    assert bool(((packed.float() - exact).abs() <= 2**-7 * exact.abs()).all())  # the interpreter cuts off where a GPU rounds


def test_offsets_beyond_32_bits():
    """Two rows 2³¹ elements apart in memory of which only these rows are ever touched."""
    stride, vocabulary = 2**31 + 64, 301
    memory = torch.empty(stride + 2 * vocabulary, device=DEVICE)
    logits = memory.as_strided((2, 2, vocabulary), (vocabulary, stride, 1))
    near = torch.randn(2, 2, vocabulary, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    logits.copy_(near)
    expected = torch.empty(2, vocabulary, device=DEVICE)
    statistics = row_pass(near, expected, 2, vocabulary)
    assert torch.equal(row_pass(logits, logits[0], 2, stride), statistics)
    assert torch.equal(logits[0], expected) and bool(expected[1].any())


def test_same_bits_again_and_a_second_backward():
    student, head, teacher, weights = inputs()
    out, again = (fused_linear_jsd(student, head, teacher, head, backend="triton") for _ in range(2))
    assert all(torch.equal(values, getattr(again, name)) for name, values in vars(out).items())
    loss = (out.divergence * weights).sum()
    once = torch.autograd.grad(loss, (student, head), retain_graph=True)
    for gradients in (torch.autograd.grad(loss, (student, head)), torch.autograd.grad((again.divergence * weights).sum(), (student, head))):
        assert all(torch.equal(one, other) for one, other in zip(once, gradients))


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_teacher_equal_to_student(beta):
    student, head, _, weights = inputs()

    def both(teacher):
        out = fused_linear_jsd(student, head, teacher, head, beta=beta, backend="triton")
        return out, torch.autograd.grad((out.divergence * weights).sum(), (student, head))

    (out, noise), (_, scale) = both(student.detach()), both(-student.detach())
    assert out.divergence.abs().max() < 1e-7
    assert bool(out.top1_agree.all()) and close(out.entropy, out.teacher_entropy, 1e-6)  # a product may sum its last rows in another order
    assert all(small.norm() < 1e-5 * large.norm() for small, large in zip(noise, scale))


@pytest.mark.parametrize("gradient", [True, False])
def test_strides_do_not_matter(gradient):
    """Of hidden states and heads, by rows in a workspace and without one."""
    student, head, teacher, weights = inputs()
    spaced = torch.zeros(10, 16, device=DEVICE)
    spaced[::2] = student.detach()
    strided, turned = spaced[::2].requires_grad_(), head.detach().T.contiguous().T.requires_grad_()
    results = []
    for tensors in ((student, head, teacher, head), (strided, turned, teacher.T.contiguous().T, turned)):
        with torch.set_grad_enabled(gradient):
            out = fused_linear_jsd(*tensors, beta=0.3, backend="triton", workspace_bytes=1)
        results.append([out.divergence, out.entropy, out.teacher_entropy])
        if gradient:
            results[-1] += torch.autograd.grad((out.divergence * weights).sum(), tensors[:2])
    assert not strided.is_contiguous() and not turned.is_contiguous()
    assert all(close(one, other) and bool(other.any()) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_largest_logit_far_below_zero(beta):
    """Students whose finite logits are all equal and as low as fp32 allows, beside a column that overflows to −inf on both sides."""
    student = torch.tensor([[-1e31], [-1e37], [-3e38]], device=DEVICE).requires_grad_()
    head = torch.ones(7, 1, device=DEVICE)
    teacher = torch.cat((student.detach(), torch.ones(3, 1, device=DEVICE)), 1)
    teacher_head = torch.cat((torch.zeros(7, 1), torch.randn(7, 1, generator=torch.Generator().manual_seed(0))), 1).to(DEVICE)
    head[3] = teacher_head[3, 0] = 1e10
    targets = torch.tensor([0, 4, 6], device=DEVICE)
    logprobs = teacher_head[[0, 1, 2, 4, 5, 6], 1].double().log_softmax(0)
    p, q = logprobs.exp(), torch.full_like(logprobs, 1 / 6)
    mixture = beta * p + (1 - beta) * q
    value = (beta * p * (p / mixture).log() + (1 - beta) * q * (q / mixture).log()).sum()
    value = {0.0: (p * (p / q).log()).sum(), 1.0: (q * (q / p).log()).sum()}.get(beta, value)
    out = fused_linear_jsd(student, head, teacher, teacher_head, beta=beta, backend="triton")
    assert not torch.autograd.grad(out.divergence.sum(), student)[0].isnan().any()
    with torch.no_grad():
        online = fused_linear_jsd(student, head, teacher, teacher_head, beta=beta, backend="triton", workspace_bytes=1)
    for found in (out, online):
        assert close(found.divergence, value.float().expand(3)) and close(found.entropy, torch.full((3,), math.log(6), device=DEVICE))
        assert close(found.teacher_entropy, -(p * logprobs).sum().float().expand(3))
    logprob = fused_linear_logprob(student, head, targets, backend="triton")
    assert close(logprob.logprob, torch.full((3,), -math.log(6), device=DEVICE)) and close(logprob.entropy, -logprob.logprob)


def test_masked_rows_cost_nothing_and_stay_attached():
    student, head, teacher, weights = inputs()
    mask = torch.tensor([True, False, True, False, False], device=DEVICE)
    kept = fused_linear_jsd(student[mask], head, teacher[mask], head, backend="triton")
    expected = torch.autograd.grad((kept.divergence * weights[mask]).sum(), (student, head))
    with torch.no_grad():
        student[~mask], teacher[~mask] = torch.nan, torch.inf
    out = fused_linear_jsd(student, head, teacher, head, mask=mask, backend="triton")
    gradients = torch.autograd.grad((out.divergence * weights).sum(), (student, head))
    assert torch.equal(out.divergence[mask], kept.divergence) and not out.divergence[~mask].any()
    assert close(gradients[0][mask], expected[0][mask]) and not gradients[0][~mask].any() and close(gradients[1], expected[1])


@pytest.mark.parametrize("rows", [0, 3])
def test_nothing_to_supervise_keeps_the_graph(rows):
    student, head, teacher, _ = inputs(rows=rows)
    mask = torch.zeros(rows, dtype=torch.bool, device=DEVICE)
    fused_linear_jsd(student, head, teacher, head, mask=mask, backend="triton").divergence.sum().backward()
    assert student.grad.shape == student.shape and not student.grad.any() and not head.grad.any()
    out = fused_linear_logprob(student[:0], head, torch.zeros(0, dtype=torch.long, device=DEVICE), backend="triton")
    (out.logprob.sum() + out.entropy.sum()).backward()
    assert not head.grad.any()


@pytest.mark.parametrize("beta", [0.0, 1e-3, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("name", [name for name, divergence in divergences.DIVERGENCES.items() if divergence.twin])
def test_a_twin_is_its_divergence(name, beta):
    """Through the whole operation, where student and teacher are near and where they are far apart."""
    for noise in (1e-3, 3.0):
        student, head, teacher, weights = inputs(rows=3, noise=noise)
        ours, expected = (
            fused_linear_jsd(student, head, teacher, head, beta=beta, divergence=name, backend=b) for b in ("triton", "torch")
        )
        assert close(ours.divergence, expected.divergence, 5e-4 if noise < 1 else 1e-5)  # of 1e-7: what rounding the logits leaves
        one, other = (torch.autograd.grad((out.divergence * weights).sum(), student)[0] for out in (ours, expected))
        assert close(one, other, 5e-4 if noise < 1 else 1e-5)


@triton.jit
def jsd_entries(student, teacher, mean_gap, value, derivative, constant, COUNT: tl.constexpr, BETA: tl.constexpr):
    entries = tl.arange(0, COUNT)
    f, g, c = jsd_twin(tl.load(student + entries), tl.load(teacher + entries), tl.load(mean_gap), BETA)
    tl.store(value + entries, f)
    tl.store(derivative + entries, g)
    tl.store(constant, c)


@pytest.mark.parametrize("beta", [1e-3, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("centre", [0.0, -1e-6, -1e-3, -0.3, -5.0, -40.0, -80.0])
def test_an_entry_keeps_its_digits(beta, centre):
    """Against fp64, over log-ratios from −80 to 80 and dense around 0, the row's mean and the borders of the forms for near and far."""
    fine = torch.cat((-torch.logspace(-6, 0, 512), torch.logspace(-6, 0, 512)))
    gaps = torch.cat((fine, fine + centre, torch.linspace(-80, 80, 2048)))
    student = torch.full_like(gaps, -1.0)
    teacher = student + gaps
    value, derivative, constant = torch.empty_like(gaps), torch.empty_like(gaps), torch.empty(1)
    tensors = [tensor.to(DEVICE) for tensor in (student, teacher, torch.tensor([centre]), value, derivative, constant)]
    jsd_entries[(1,)](*tensors, COUNT=len(gaps), BETA=beta)
    value, derivative, constant = (tensor.double().cpu() for tensor in tensors[3:])

    d, d0 = teacher.double() - student.double(), torch.tensor(max(centre, -64.0)).double()
    q, p = student.double().exp(), teacher.double().exp()
    weight = beta * d0.exp() / (1 + beta * d0.expm1())
    relative = (weight * (d - d0).expm1()).log1p()
    student_term, teacher_term = -(beta * d.expm1()).log1p(), -((1 - beta) * (-d).expm1()).log1p()
    exact = beta * p * teacher_term + (1 - beta) * q * student_term
    assert bool(((constant + (1 - beta) * (beta * d0.expm1()).log1p()).abs() <= 1e-6 * constant.abs()).all())
    # Rounding of the log-ratio, which is one of log-probs, enters by the slope.
    slope = (weight * (d - d0).exp() / (1 + weight * (d - d0).expm1())) * 2**-23 * (d.abs() + d0.abs())
    assert bool(((derivative + (1 - beta) * q * relative).abs() <= (1 - beta) * q * (2e-6 * relative.abs() + slope)).all())
    # An entry's value is the sum of two terms that nearly cancel near d = 0, and each is given relative to that at d₀.
    student_size = student_term.abs() + (beta * d0.expm1()).log1p().abs()
    teacher_size = teacher_term.abs() + ((1 - beta) * (-d0).expm1()).log1p().abs()
    assert bool(((value - exact).abs() <= 1e-6 * (beta * p * teacher_size + (1 - beta) * q * student_size)).all())


@pytest.mark.parametrize("beta", [1e-3, 0.5, 0.999])
def test_small_divergences_keep_their_digits(beta):
    """The logits themselves are given, so that nothing is lost to a GEMM."""
    generator = torch.Generator().manual_seed(5)
    student = torch.randn(4, 301, generator=generator)
    teacher, head = student + 1e-3 * torch.randn(4, 301, generator=generator), torch.eye(301)
    out, expected = (
        fused_linear_jsd(student.to(device), head.to(device), teacher.to(device), head.to(device), beta=beta, backend=backend)
        for backend, device in (("triton", DEVICE), ("reference", "cpu"))
    )
    assert bool(((expected.divergence > 1e-11) & (expected.divergence < 1e-6)).all())
    assert close(out.divergence.cpu(), expected.divergence, 1e-3)


OUTSIDE = """
import triton
import triton.language as tl
from papergym.kernels.linear_jsd.divergences import Divergence

def entries(student_logprobs, teacher_logprobs, beta):
    student, teacher = student_logprobs.exp(), teacher_logprobs.exp()
    return (student - teacher).abs() / 2, (student - teacher).sign() * student / 2

@triton.jit
def twin(student_logprobs, teacher_logprobs, mean_gap, beta: tl.constexpr):
    student, teacher = tl.exp(student_logprobs), tl.exp(teacher_logprobs)
    slope = tl.where(student > teacher, student, tl.where(student < teacher, -student, 0.0)) / 2
    return tl.abs(student - teacher) / 2, slope, 0.0

total_variation = Divergence(entries, twin="outside_twin:twin")
"""


def test_a_twin_from_outside(tmp_path, monkeypatch):
    (tmp_path / "outside_twin.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    student, head, teacher, weights = inputs()
    name = "outside_twin:total_variation"
    ours, expected = (fused_linear_jsd(student, head, teacher, head, divergence=name, backend=b) for b in ("triton", "torch"))
    assert close(ours.divergence, expected.divergence)
    one, other = (torch.autograd.grad((out.divergence * weights).sum(), (student, head)) for out in (ours, expected))
    assert close(one[0], other[0]) and close(one[1], other[1])
    with pytest.raises(InputError, match=r"outside_twin:entries.*no Triton twin"):
        fused_linear_jsd(student, head, teacher, head, divergence="outside_twin:entries", backend="triton")


def test_what_cannot_run_is_refused(monkeypatch):
    student, head, teacher, _ = inputs()
    with pytest.raises(InputError, match="float64"):
        fused_linear_jsd(student.double(), head.double(), teacher.double(), head.double(), backend="triton")
    monkeypatch.setattr(triton_tiles, "interpreted", lambda: False)
    with pytest.raises(InputError, match=r"CUDA.*\[5, 16\].*cpu"):
        fused_linear_jsd(student.cpu(), head.cpu(), teacher.cpu(), head.cpu(), backend="triton")
    with pytest.raises(InputError, match="CUDA"):
        fused_linear_logprob(student.cpu(), head.cpu(), torch.zeros(5, dtype=torch.long), backend="triton")


@pytest.mark.parametrize("used", ["logprob", "entropy"])
def test_logprob_in_chunks_of_columns_with_one_upstream(used):
    student, head, _, weights = inputs(rows=5, vocabulary=301)
    targets = torch.tensor([0, 300, 128, 127, 299], device=DEVICE)
    results = []
    for out in (
        linear_logprob(student, head, targets, 0.8, workspace_bytes=1),
        fused_linear_logprob(student, head, targets, temperature=0.8),
    ):
        values = getattr(out, used)
        results.append((values, *torch.autograd.grad((values * weights).sum(), (student, head))))
    assert all(close(one, other) for one, other in zip(*results))


def test_logprob_of_strided_inputs_and_other_integers():
    student, head, _, _ = inputs(rows=4)
    targets = torch.tensor([0, 300, 7, 7], device=DEVICE)
    expected = fused_linear_logprob(student, head, targets, backend="triton")
    turned = fused_linear_logprob(student.T.contiguous().T, head.T.contiguous().T, targets.int(), backend="triton")
    assert close(turned.logprob, expected.logprob) and close(turned.entropy, expected.entropy)
