"""topk_linear_jsd against the formula in float64 with autograd, and what must hold between it and the whole divergence."""

import itertools

import pytest
import torch

from papergym.errors import InputError
from papergym.kernels.linear_jsd import fused_linear_jsd
from papergym.kernels.linear_jsd.topk import topk_linear_jsd

CHOICES = list(itertools.product(["teacher", "student"], ["bucket", "renormalise"]))


def inputs(rows=23, width=24, vocabulary=307, seed=1):
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(vocabulary, width, generator=generator)
    student = torch.randn(rows, width, generator=generator)
    teacher = student + 0.4 * torch.randn(rows, width, generator=generator)
    return student.requires_grad_(), head.requires_grad_(), teacher, torch.randn(rows, generator=generator)


def oracle(student, head, teacher, *, k, support, tail, beta, temperature, clip):
    """Probabilities of the reduced vocabulary written down directly, all in float64; autograd does the rest."""
    q, p = (torch.softmax(hidden.double() @ head.double().T / temperature, -1) for hidden in (student, teacher))
    p = p.detach()
    ids = (p if support == "teacher" else q.detach()).topk(k).indices
    inside = torch.zeros_like(p).scatter(-1, ids, 1)
    reduced = []
    for probs in (q, p):
        part, rest = probs.gather(-1, ids), (probs * (1 - inside)).sum(-1, keepdim=True)
        reduced.append(torch.cat((part, rest), -1) if tail == "bucket" else part / part.sum(-1, keepdim=True))
    q, p = reduced
    if beta == 0:
        terms = p * (p / q).log()
    elif beta == 1:
        terms = q * (q / p).log()
    else:
        mixture = beta * p + (1 - beta) * q
        terms = beta * p * (p / mixture).log() + (1 - beta) * q * (q / mixture).log()
    return (terms if clip is None else terms.clamp(max=clip)).sum(-1)


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize(("support", "tail"), CHOICES)
def test_value_and_gradients(support, tail, clip, beta):
    student, head, teacher, weights = inputs()
    options = {"k": 20, "support": support, "tail": tail, "beta": beta, "temperature": 1.2}
    out = topk_linear_jsd(student, head, teacher, head, element_clip=clip, workspace_bytes=17 << 20, **options)
    double = [tensor.detach().double().requires_grad_() for tensor in (student, head)]
    expected = oracle(*double, teacher.double(), clip=clip, **options)
    expected_gradients = torch.autograd.grad((expected * weights).sum(), double)
    assert (out.divergence.double() - expected).norm() <= 1e-5 * expected.norm()
    found = torch.autograd.grad((out.divergence * weights).sum(), (student, head))
    for one, other in zip(found, expected_gradients):
        assert (one.double() - other).norm() <= 2e-5 * other.norm()
    assert clip is None or bool(out.clipped.any())


@pytest.mark.parametrize("tail", ["bucket", "renormalise"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_whole_vocabulary_as_support_is_the_whole_divergence(tail, beta):
    student, head, teacher, weights = inputs()
    whole = fused_linear_jsd(student, head, teacher, head, beta=beta)
    out = topk_linear_jsd(student, head, teacher, head, k=len(head), tail=tail, beta=beta)
    torch.testing.assert_close(out.divergence, whole.divergence, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(out.entropy, whole.entropy)
    pairs = zip(*(torch.autograd.grad((each.divergence * weights).sum(), (student, head)) for each in (out, whole)))
    for one, other in pairs:
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_a_bucket_never_tells_more_and_a_mask_leaves_rows_out():
    student, head, teacher, _ = inputs()
    mask = torch.arange(23) % 2 == 0
    whole = fused_linear_jsd(student, head, teacher, head).divergence
    values = [topk_linear_jsd(student, head, teacher, head, k=k, mask=mask).divergence for k in (1, 5, 50)]
    assert all(bool((fewer <= more + 1e-7).all()) for fewer, more in zip(values, [*values[1:], whole]))
    assert not values[2][~mask].any() and bool((values[2][mask] > 0).all())


@pytest.mark.parametrize(
    ("change", "mention"),
    [({"k": 0}, "k is 0"), ({"k": 12}, "12"), ({"k": 2, "support": "both"}, "both"), ({"k": 2, "tail": "cut"}, "cut")],
)
def test_bad_arguments(change, mention):
    hidden, head = torch.zeros(3, 8), torch.zeros(11, 8)
    with pytest.raises(InputError, match=mention):
        topk_linear_jsd(hidden, head, hidden, head, **change)
