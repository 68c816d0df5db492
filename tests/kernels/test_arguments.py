"""Bad arguments of the fused operations: a ValueError with one sentence that names what disagrees."""

import pytest
import torch

from papergym.errors import InputError
from papergym.kernels.linear_jsd import fused_linear_jsd
from papergym.kernels.linear_jsd.topk import topk_linear_jsd
from papergym.kernels.linear_logprob import fused_linear_logprob

HIDDEN, HEAD = torch.zeros(3, 8), torch.zeros(11, 8)


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"teacher_hidden": torch.zeros(4, 8)}, ["[3, 8]", "[4, 8]"]),
        ({"teacher_head": torch.zeros(12, 8)}, ["[11, 8]", "[12, 8]"]),
        ({"student_head": torch.zeros(11, 7)}, ["[3, 8]", "[11, 7]"]),
        ({"teacher_head": torch.zeros(11, 7)}, ["[3, 8]", "[11, 7]"]),
        ({"student_hidden": torch.zeros(1, 3, 8)}, ["[1, 3, 8]", "[11, 8]"]),
        ({"student_hidden": torch.zeros(3, 8, dtype=torch.long)}, ["student_hidden", "int64"]),
        ({"teacher_head": torch.zeros(11, 8, dtype=torch.int8)}, ["teacher_head", "int8"]),
        ({"student_hidden": torch.zeros(3, 8, device="meta")}, ["cpu", "meta", "[3, 8]"]),
        ({"mask": torch.ones(2, dtype=torch.bool)}, ["[3, 8]", "[2]"]),
        ({"mask": torch.ones(3)}, ["mask", "float32"]),
        ({"beta": 1.01}, ["beta", "1.01"]),
        ({"beta": -0.1}, ["beta", "-0.1"]),
        ({"beta": float("nan")}, ["beta", "nan"]),
        ({"temperature": 0.0}, ["temperature", "0.0"]),
        ({"element_clip": -1.0}, ["element_clip", "-1.0"]),
        ({"workspace_bytes": 0}, ["workspace_bytes", "0"]),
        ({"vocab_size": 12}, ["vocab_size", "12", "[11, 8]"]),
        ({"vocab_size": 2.5}, ["vocab_size", "2.5", "[11, 8]"]),
        ({"backend": "numpy"}, ["numpy", "reference", "torch"]),
        ({"divergence": "nonsense"}, ["nonsense", "jsd"]),
    ],
)
def test_linear_jsd(change, mentions):
    arguments = {"student_hidden": HIDDEN, "student_head": HEAD, "teacher_hidden": HIDDEN, "teacher_head": HEAD} | change
    with pytest.raises(InputError) as error:
        fused_linear_jsd(**arguments)
    assert all(mention in str(error.value) for mention in mentions), str(error.value)


@pytest.mark.parametrize(
    ("change", "mentions"),
    [
        ({"targets": torch.zeros(4, dtype=torch.long)}, ["[3, 8]", "[4]"]),
        ({"targets": torch.tensor([0, 11, 3])}, ["[3]", "11", "[11, 8]"]),
        ({"targets": torch.tensor([0, -1, 3])}, ["-1", "[11, 8]"]),
        ({"targets": torch.zeros(3)}, ["targets", "float32"]),
        ({"head": torch.zeros(11, 9)}, ["[3, 8]", "[11, 9]"]),
        ({"hidden": torch.zeros(3, 8, dtype=torch.long)}, ["hidden", "int64"]),
        ({"temperature": float("inf")}, ["temperature", "inf"]),
        ({"backend": "numpy"}, ["numpy", "reference", "torch"]),
    ],
)
def test_linear_logprob(change, mentions):
    arguments = {"hidden": HIDDEN, "head": HEAD, "targets": torch.zeros(3, dtype=torch.long)} | change
    with pytest.raises(InputError) as error:
        fused_linear_logprob(**arguments)
    assert all(mention in str(error.value) for mention in mentions), str(error.value)


SECOND = [(operation, backend) for operation in ("jsd", "logprob") for backend in ("torch", "triton", "reference")] + [("topk", "torch")]


@pytest.mark.parametrize(("operation", "backend"), SECOND)
def test_a_second_derivative_is_refused_or_right(operation, backend):
    """Whether or not the upstream gradient requires a gradient of its own, and by way of either input."""
    device = "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    sizes = ((3, 8), (11, 8), (3, 8))
    hidden, head, teacher = (torch.randn(size, generator=generator).to(device).requires_grad_() for size in sizes)

    def run():
        if operation == "jsd":
            return fused_linear_jsd(hidden, head, teacher, head, backend=backend).divergence
        if operation == "topk":
            return topk_linear_jsd(hidden, head, teacher, head, k=3).divergence
        return fused_linear_logprob(hidden, head, torch.tensor([0, 10, 3], device=device), backend=backend).entropy

    for source in (hidden, head):
        for loss in (run().sum(), run().square().sum()):
            (gradient,) = torch.autograd.grad(loss, source, create_graph=True)
            assert gradient.any()
            if backend == "reference":
                assert torch.autograd.grad(gradient.square().sum(), (hidden, head))[0].any()
            else:
                with pytest.raises(InputError, match="no second derivative: use backend 'reference'"):
                    (gradient.square().sum() + hidden.sum() + head.sum()).backward()
