"""Divergence between teacher and student next-token distributions, straight from hidden states and language-model heads.

The head's GEMM, both log-softmaxes, the divergence and its gradient are one operation, so the logits [N, V] never exist as a whole.
Variants: a vocabulary sharded over ranks (`.parallel`), the k likeliest tokens alone (`.topk`).
Legend: N token positions (rows), H student width, Ht teacher width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor  # `torch` here is the backend's submodule

from papergym.kernels.checks import check_device, check_mask, check_positive, check_projection, check_rows, find_backend, require, shape
from papergym.kernels.linear_jsd.divergences import Divergence, find_divergence

BACKENDS = {
    "reference": "papergym.kernels.linear_jsd.reference:linear_jsd",
    "torch": "papergym.kernels.linear_jsd.torch:linear_jsd",
    "triton": "papergym.kernels.linear_jsd.triton:linear_jsd",
}


@dataclass(frozen=True)
class JsdOutput:
    """Per-token results; a masked token has 0 (False) everywhere.

    divergence: [N] fp32 (fp64 for fp64 inputs), nats; differentiable with any upstream weight per token.
    entropy, teacher_entropy: [N], nats. top1_agree: [N] bool, the teacher's first most likely token is also one of the student's.
    clipped: [N] int64, vocabulary entries whose value the element clip cut. These four carry no gradient.
    """

    divergence: Tensor
    entropy: Tensor
    teacher_entropy: Tensor
    top1_agree: Tensor
    clipped: Tensor


@dataclass(frozen=True)
class JsdOptions:
    """What a backend needs beside tensors; checked by fused_linear_jsd."""

    divergence: Divergence
    beta: float
    temperature: float
    element_clip: float | None
    workspace_bytes: int
    restriction: Callable | None = None  # of the vocabulary, see topk.py


def fused_linear_jsd(
    student_hidden: Tensor,
    student_head: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    element_clip: float | None = None,
    mask: Tensor | None = None,
    vocab_size: int | None = None,
    divergence: str = "jsd",
    workspace_bytes: int = 512 << 20,
    backend: str = "auto",
) -> JsdOutput:
    """Generalised Jensen-Shannon divergence (β) of every row, from the logits hidden · headᵀ / temperature.

    student_hidden [N, H], student_head [V, H], teacher_hidden [N, Ht], teacher_head [V, Ht]: fp32, bf16, fp16 or fp64, any strides,
    one device. The teacher is constant. Gradients reach student_hidden and student_head, each only if it requires one: a frozen head
    never has a [V, H] gradient allocated. A head under FSDP must be gathered before the call.
    beta: 0 is KL(teacher‖student), 1 is KL(student‖teacher). element_clip c: each vocabulary entry's term becomes min(term, c),
    and a cut term has no gradient. mask [N] bool: False rows cost nothing, are 0 and stay attached to the graph.
    vocab_size: columns from there on are padding and count as −inf; needed when the two heads are padded differently. Heads must be
    finite: 0 · −inf is NaN in the GEMM of the hidden gradient. A logit that overflows to −inf is fine: no probability, no gradient.
    divergence: "jsd", or "module:function" as described in `papergym.kernels.linear_jsd.divergences`.
    workspace_bytes: bound on the memory used beside inputs, gradients and [N] outputs (a single row is always taken).
    backend: "triton" (GPU), "torch" (row-chunked), "reference" (autograd on the whole [N, V]), "auto" (triton if it can run, else torch).

    Raises InputError, a ValueError, if shapes, dtypes, devices or options do not fit.
    """
    options = check_options(beta, temperature, element_clip, divergence, workspace_bytes)
    student_head, teacher_head = check_operands(student_hidden, student_head, teacher_hidden, teacher_head, mask, vocab_size)
    operands = (student_hidden, student_head, teacher_hidden.detach(), teacher_head.detach())
    run = find_backend(backend, BACKENDS, *operands, twin=options.divergence.twin is not None)
    return run(*operands, mask, options)


def check_options(beta: float, temperature: float, element_clip: float | None, divergence: str, workspace_bytes: int) -> JsdOptions:
    """The options of fused_linear_jsd, checked."""
    require(0 <= beta <= 1, f"beta is {beta}: it must lie in [0, 1]")
    check_positive("temperature", temperature)
    check_positive("workspace_bytes", workspace_bytes)
    if element_clip is not None:
        check_positive("element_clip", element_clip)
    return JsdOptions(find_divergence(divergence), float(beta), float(temperature), element_clip, int(workspace_bytes))


def check_operands(
    student_hidden: Tensor,
    student_head: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    mask: Tensor | None,
    vocab_size: int | None,
) -> tuple[Tensor, Tensor]:
    """Checks the tensors of fused_linear_jsd; returns both heads without padding rows."""
    check_projection("student_hidden", student_hidden, "student_head", student_head)
    check_projection("teacher_hidden", teacher_hidden, "teacher_head", teacher_head)
    check_rows("student_hidden", student_hidden, "teacher_hidden", teacher_hidden)
    check_device("student_head", student_head, "teacher_head", teacher_head)
    if mask is not None:
        check_rows("student_hidden", student_hidden, "mask", mask)
        check_mask("mask", mask)
    return _common_vocabulary(student_head, teacher_head, vocab_size)


def _common_vocabulary(student_head: Tensor, teacher_head: Tensor, vocab_size: int | None) -> tuple[Tensor, Tensor]:
    """Both heads without padding rows; leaving a column out is what −inf means, and it costs no GEMM."""
    both = f"student_head is {shape(student_head)}, teacher_head is {shape(teacher_head)}"
    if vocab_size is None:
        require(student_head.shape[0] == teacher_head.shape[0], f"{both}: their vocabularies differ (if only by padding, give vocab_size)")
        return student_head, teacher_head
    smaller = min(student_head.shape[0], teacher_head.shape[0])
    whole = isinstance(vocab_size, int) and not isinstance(vocab_size, bool)
    require(whole and 1 <= vocab_size <= smaller, f"vocab_size is {vocab_size}, {both}: it must be a whole number from 1 to {smaller}")
    return student_head[:vocab_size], teacher_head[:vocab_size]
