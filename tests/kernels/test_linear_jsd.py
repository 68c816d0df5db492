"""What fused_linear_jsd promises beside accuracy: graph, masks, determinism, splitting, memory, variants from outside."""

import math
import subprocess
import sys

import pytest
import torch

from papergym.kernels.linear_jsd import fused_linear_jsd

BACKENDS = ["compiled", "eager", "reference"]


def inputs(rows=11, width=16, vocabulary=301, dtype=torch.float32, noise=0.3, seed=3):
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    head = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64) / 2
    teacher = student + noise * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    weights = torch.randn(rows, generator=generator)
    return student.to(dtype).requires_grad_(), head.to(dtype).requires_grad_(), teacher.to(dtype), weights


def gradients(divergence, weights, *tensors, retain_graph=False):
    return torch.autograd.grad((divergence * weights).sum(), tensors, retain_graph=retain_graph)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_hand_computed_values(backend):
    """Logits ln 1, ln 3 against ln 1, ln 1: q = (¼, ¾), p = (½, ½)."""
    head = torch.tensor([[0.0], [1.0]])
    arguments = (torch.tensor([[math.log(3)]]), head, torch.zeros(1, 1), head)
    middle = (3 / 8, 5 / 8)
    expected = {
        0.0: 0.5 * math.log(2) + 0.5 * math.log(2 / 3),
        1.0: 0.25 * math.log(0.5) + 0.75 * math.log(1.5),
        0.5: 0.5 * sum(0.5 * math.log(0.5 / m) + q * math.log(q / m) for q, m in zip((0.25, 0.75), middle)),
    }
    for beta, value in expected.items():
        out = fused_linear_jsd(*arguments, beta=beta, backend=backend)
        torch.testing.assert_close(out.divergence, torch.tensor([value], dtype=torch.float32), rtol=1e-5, atol=0)
    assert float(out.teacher_entropy) == pytest.approx(math.log(2), rel=1e-6)
    assert float(out.entropy) == pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3), rel=1e-6)
    cut = fused_linear_jsd(*arguments, beta=0, element_clip=0.05, backend=backend)  # terms ½ ln 2 and ½ ln ⅔
    assert float(cut.divergence) == pytest.approx(0.05 + 0.5 * math.log(2 / 3), rel=1e-5) and cut.clipped.tolist() == [1]


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("beta", [0.0, 0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_gradcheck(backend, beta, clip):
    student, head, teacher, _ = inputs(rows=3, width=4, vocabulary=9, dtype=torch.float64)

    teacher_head = head.detach() * 1.1

    def run(student, head):
        options = {"beta": beta, "temperature": 1.3, "element_clip": clip, "mask": torch.tensor([True, False, True])}
        return fused_linear_jsd(student, head, teacher, teacher_head, backend=backend, **options).divergence

    assert torch.autograd.gradcheck(run, (student, head))


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_teacher_equal_to_student(backend, beta):
    student, head, _, weights = inputs()
    out = fused_linear_jsd(student, head, student.detach(), head, beta=beta, backend=backend)
    gradient, head_gradient = gradients(out.divergence, weights, student, head)
    assert out.divergence.abs().max() < 1e-7
    assert bool(out.top1_agree.all())
    torch.testing.assert_close(out.entropy, out.teacher_entropy, rtol=1e-6, atol=0)  # a product may sum its last rows in another order
    far = fused_linear_jsd(student, head, -student.detach(), head, beta=beta, backend=backend)
    for noise, scale in zip((gradient, head_gradient), gradients(far.divergence, weights, student, head)):
        assert noise.norm() < 1e-5 * scale.norm()


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("beta", [1e-3, 0.1, 0.5, 0.9])
def test_disjoint_distributions_reach_the_bound(backend, beta):
    head = torch.eye(4)
    student, teacher = torch.tensor([[200.0, 0, 0, 0]]), torch.tensor([[0, 200.0, 0, 0]])
    bound = -beta * math.log(beta) - (1 - beta) * math.log(1 - beta)
    assert float(fused_linear_jsd(student, head, teacher, head, beta=beta, backend=backend).divergence) == pytest.approx(bound, rel=2e-6)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7, 1.0])
def test_minus_infinity_in_both_contributes_nothing(backend, beta):
    student, head, teacher, _ = inputs()
    with torch.no_grad():
        student[:, 0] = teacher[:, 0] = 1
        head[:, 0] = 0
    expected = fused_linear_jsd(student, head, teacher, head, beta=beta, vocab_size=300, backend=backend)
    with torch.no_grad():
        head[300] = 0
        head[300, 0] = -torch.inf
        out = fused_linear_jsd(student, head, teacher, head, beta=beta, backend=backend)
    torch.testing.assert_close(out.divergence, expected.divergence.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(out.entropy, expected.entropy, rtol=1e-6, atol=0)


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7, 1.0])
def test_logits_of_minus_infinity_have_no_gradient(beta, clip):
    """A column that is −inf because a finite head overflows does as much as one that vocab_size leaves out."""
    student, head, teacher, weights = inputs()
    with torch.no_grad():
        student[:, 0] = teacher[:, 0] = 1e20
        head[:, 0] = 0
        head[300] = 0
        head[300, 0] = -1e20
    out = fused_linear_jsd(student, head, teacher, head, beta=beta, element_clip=clip)
    expected = fused_linear_jsd(student, head, teacher, head, beta=beta, element_clip=clip, vocab_size=300)
    assert torch.equal(out.clipped, expected.clipped)
    torch.testing.assert_close(out.divergence, expected.divergence, rtol=1e-6, atol=0)
    for one, other in zip(gradients(out.divergence, weights, student, head), gradients(expected.divergence, weights, student, head)):
        assert one[:300, 1:].isfinite().all() and (one - other)[:300, 1:].norm() <= 1e-5 * other[:300, 1:].norm()
        assert not one[300:].any()


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("side", ["student", "teacher"])
def test_nan_is_not_hidden(backend, beta, clip, side):
    """Neither in the value nor in the gradient."""
    student, head, teacher, weights = inputs()
    with torch.no_grad():
        (student if side == "student" else teacher)[2, 0] = torch.nan
    divergence = fused_linear_jsd(student, head, teacher, head, beta=beta, element_clip=clip, backend=backend).divergence
    assert divergence.isnan().nonzero().flatten().tolist() == [2]
    gradient = torch.autograd.grad((divergence * weights).sum(), student)[0]
    assert gradient.isnan().any(-1).nonzero().flatten().tolist() == [2]


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_masked_rows_cost_nothing_and_stay_attached(backend):
    student, head, teacher, weights = inputs()
    mask = torch.arange(11) % 3 == 0
    kept = fused_linear_jsd(student[mask], head, teacher[mask], head, backend=backend)
    kept_gradient, kept_head = gradients(kept.divergence, weights[mask], student, head)
    with torch.no_grad():
        student[~mask], teacher[~mask] = torch.nan, torch.inf
    out = fused_linear_jsd(student, head, teacher, head, mask=mask, backend=backend)
    gradient, head_gradient = gradients(out.divergence, weights, student, head)
    assert torch.equal(out.divergence[mask], kept.divergence) and torch.equal(out.top1_agree[mask], kept.top1_agree)
    assert torch.equal(gradient, kept_gradient) and torch.equal(head_gradient, kept_head)
    for values in (out.divergence, out.entropy, out.teacher_entropy, gradient, out.clipped, out.top1_agree):
        assert not values[~mask].any()


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("rows", [0, 5])
def test_nothing_to_supervise_keeps_the_graph(backend, rows):
    student, head, teacher, _ = inputs(rows=rows)
    out = fused_linear_jsd(student, head, teacher, head, mask=torch.zeros(rows, dtype=torch.bool), backend=backend)
    assert out.divergence.requires_grad and out.divergence.shape == (rows,)
    out.divergence.sum().backward()
    assert student.grad.shape == student.shape and not student.grad.any() and not head.grad.any()


def test_strides_do_not_matter():
    student, head, teacher, weights = inputs()
    spaced = torch.zeros(22, 16)
    spaced[::2] = student.detach()
    strided, turned = spaced[::2].requires_grad_(), head.detach().T.contiguous().T.requires_grad_()
    assert not strided.is_contiguous() and not turned.is_contiguous()
    first = fused_linear_jsd(student, head, teacher, head)
    second = fused_linear_jsd(strided, turned, teacher.T.contiguous().T, turned)
    torch.testing.assert_close(second.divergence, first.divergence, rtol=1e-5, atol=1e-8)
    for one, other in zip(gradients(first.divergence, weights, student, head), gradients(second.divergence, weights, strided, turned)):
        assert (one - other).norm() <= 1e-5 * one.norm()


def test_same_bits_again_and_a_second_backward():
    student, head, teacher, weights = inputs(rows=40, dtype=torch.bfloat16)
    out, again = (fused_linear_jsd(student, head, teacher, head, element_clip=1e-3) for _ in range(2))
    for name, values in vars(out).items():
        assert torch.equal(values, getattr(again, name)), name
    first = gradients(out.divergence, weights, student, head, retain_graph=True)
    doubled = gradients(out.divergence, 2 * weights, student, head, retain_graph=True)
    second = gradients(out.divergence, weights, student, head)
    third = gradients(again.divergence, weights, student, head)
    assert all(torch.equal(one, other) for others in (second, third) for one, other in zip(first, others))
    assert all(torch.equal(2 * one, other) for one, other in zip(first, doubled))  # a power of two scales exactly


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_chunks_and_splits_change_only_rounding(beta):
    student, head, teacher, weights = inputs(rows=37, vocabulary=4099)
    whole = fused_linear_jsd(student, head, teacher, head, beta=beta)
    expected = (whole.divergence, *gradients(whole.divergence, weights, student, head))
    single_rows = fused_linear_jsd(student, head, teacher, head, beta=beta, workspace_bytes=1)
    halves = [fused_linear_jsd(student[part], head, teacher[part], head, beta=beta) for part in (slice(0, 11), slice(11, 37))]
    for divergence in (single_rows.divergence, torch.cat([half.divergence for half in halves])):
        for one, other in zip(expected, (divergence, *gradients(divergence, weights, student, head))):
            assert (one - other).norm() <= 1e-5 * one.norm()


def test_a_shared_head_gives_what_two_equal_heads_give():
    student, head, teacher, weights = inputs()
    shared, apart = (fused_linear_jsd(student, head, teacher, other) for other in (head, head.detach().clone()))
    torch.testing.assert_close(shared.divergence, apart.divergence, rtol=1e-5, atol=1e-8)
    for one, other in zip(gradients(shared.divergence, weights, student, head), gradients(apart.divergence, weights, student, head)):
        assert (one - other).norm() <= 1e-5 * one.norm()


def test_heads_padded_differently_meet_at_vocab_size():
    student, head, teacher, _ = inputs()
    padded = torch.cat((head.detach(), torch.full((19, 16), 7.0)))
    expected = fused_linear_jsd(student, head, teacher, head.detach().clone()).divergence
    torch.testing.assert_close(fused_linear_jsd(student, head, teacher, padded, vocab_size=301).divergence, expected)


def test_extras_carry_no_gradient_and_evaluation_needs_none():
    student, head, teacher, _ = inputs()
    out = fused_linear_jsd(student, head, teacher, head)
    assert not any(values.requires_grad for name, values in vars(out).items() if name != "divergence")
    with torch.no_grad():
        silent = fused_linear_jsd(student, head, teacher, head)
    assert torch.equal(silent.divergence, out.divergence) and not silent.divergence.requires_grad


OUTSIDE = """
import torch

def total_variation(student_logprobs, teacher_logprobs, beta):
    student, teacher = student_logprobs.exp(), teacher_logprobs.exp()
    return (student - teacher).abs() / 2, (student - teacher).sign() * student / 2

def skewed_kl(student_logprobs, teacher_logprobs, beta):
    teacher = teacher_logprobs.exp()
    mixture = torch.lerp(teacher, student_logprobs.exp(), 1 - beta)
    return teacher * (teacher_logprobs - mixture.log()), (beta - 1) * teacher * student_logprobs.exp() / mixture
"""
PLAIN = {
    "total_variation": lambda q, p: (q - p).abs() / 2,
    "skewed_kl": lambda q, p: p * (p / (0.1 * p + 0.9 * q)).log(),
}


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("clip", [None, 2e-3])
def test_a_divergence_from_outside(backend, name, clip, tmp_path, monkeypatch):
    """The two of docs/divergences.md, from a module that the package does not know, against autograd."""
    (tmp_path / "outside_divergences.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    student, head, teacher, weights = inputs(dtype=torch.float64)
    options = {"divergence": f"outside_divergences:{name}", "beta": 0.1, "element_clip": clip, "temperature": 1.5}
    out = fused_linear_jsd(student, head, teacher, head.detach(), backend=backend, **options)
    q, p = (torch.softmax(hidden @ head.T / 1.5, -1) for hidden in (student, teacher))
    terms = PLAIN[name](q, p.detach())
    expected = (terms if clip is None else terms.clamp(max=clip)).sum(-1)
    torch.testing.assert_close(out.divergence, expected)
    assert clip is None or (out.clipped.equal((terms > clip).sum(-1)) and bool(out.clipped.any()))
    for one, other in zip(gradients(out.divergence, weights, student, head), gradients(expected, weights, student, head)):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_frozen_head_has_no_gradient_and_no_tensor_exceeds_the_workspace(dtype, allocations):
    student, head, teacher, _ = inputs(rows=600, width=160, vocabulary=30000, dtype=dtype)
    head.requires_grad_(False)
    workspace = 24 << 20  # all logits: 137 MiB; an fp32 copy or gradient of the head: 18 MiB, above the share a copy may take
    with allocations:
        fused_linear_jsd(student, head, teacher, head, workspace_bytes=workspace).divergence.sum().backward()
    owned = [(size, shape) for size, shape in allocations.sizes if size != head.untyped_storage().nbytes()]
    assert max(size for size, _ in owned) <= workspace
    assert not any(shape == head.shape for _, shape in owned)


MEASURE = """
import torch
from papergym.kernels.linear_jsd import fused_linear_jsd
def kib(field):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(field))
torch.manual_seed(0)
def run(rows):
    student, teacher = torch.randn(rows, 64).bfloat16().requires_grad_(), torch.randn(rows, 64).bfloat16()
    fused_linear_jsd(student, head, teacher, head, workspace_bytes=48 << 20).divergence.sum().backward()
head = torch.randn(50000, 64).bfloat16()
run(300)  # the system's library of products keeps some 20 MiB of buffers, whatever comes after
open("/proc/self/clear_refs", "w").write("5")
before = kib("VmRSS")
run(900)  # the logits of both sides are 343 MiB
print((kib("VmHWM") - before) / 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_of_the_process_stays_in_the_workspace():
    peak = float(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout)
    assert peak <= 48 + 8, f"{peak} MiB above the inputs"
