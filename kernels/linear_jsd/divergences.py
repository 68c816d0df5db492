"""Divergences between the teacher's and the student's distribution of one token, entry by entry over the vocabulary.

A divergence is one function of the log-probabilities. Total variation, ½ Σ |p − q|, as research code would write it in its own module:

    def total_variation(student_logprobs, teacher_logprobs, beta):
        student, teacher = student_logprobs.exp(), teacher_logprobs.exp()
        return (student - teacher).abs() / 2, (student - teacher).sign() * student / 2

and use it: `fused_linear_jsd(..., divergence="mymodule:total_variation")`. It gets both log-probabilities [rows, V] (fp32 or fp64,
normalised, may hold −inf), must not change them, and returns two tensors [rows, V]: f_j, whose sum over j is the token's divergence,
and ∂f_j/∂(student log-prob)_j. The operation does the rest: element clip, the chain rule through softmax, temperature and the GEMMs.
`beta` is whatever the caller passed; ignore it if there is nothing to mix. The function sees a block of whole rows that fits the
CPU's cache, so temporaries are cheap, and in-place operations on its own temporaries are cheaper still.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from papergym.errors import InputError
from papergym.registry import resolve

Entries = Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]

# e^88 is finite in fp32, and the smaller of two probabilities this far apart is subnormal there.
LARGEST_GAP = 88.0


@dataclass(frozen=True)
class Divergence:
    """entries: the function described above.

    balance: beta -> κ. Σ_j κ (q_j − p_j) is zero in exact arithmetic; adding it to the unclipped sum cancels the first-order
    effect of a rounding error in either log-sum-exp. It plays no part under an element clip, which acts on f_j itself.
    twin: "module:function" of the same function for backend `triton`: a @triton.jit function of (student_logprobs, teacher_logprobs,
    beta: tl.constexpr), all fp32 of one shape, that returns (f, derivative). It is imported when it is first used.
    """

    entries: Entries
    balance: Callable[[float], float] = lambda beta: 0.0
    twin: str | None = None

    def triton_twin(self) -> Any:
        """The @triton.jit twin. Raises InputError if there is none."""
        if self.twin is None:
            name = f"{self.entries.__module__}:{self.entries.__name__}"
            raise InputError(f"divergence {name!r} has no Triton twin: give it one (Divergence.twin) or use backend 'torch'")
        return resolve("Triton twin", self.twin, {})


def jsd(student_logprobs: torch.Tensor, teacher_logprobs: torch.Tensor, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised Jensen-Shannon divergence, in nats: β KL(p‖m) + (1−β) KL(q‖m) with m = β p + (1−β) q, p the teacher.

    β = 0 is the forward KL(p‖q) and β = 1 the reverse KL(q‖p), as in OPSD, TRL and Liger-Kernel.
    With d = log q − log p, log(m/p) = log1p((1−β) expm1(d)) and log(m/q) = log1p(β expm1(−d)): no mixture is ever
    formed, so nothing cancels where the two distributions nearly agree. Of the two forms, the one whose weight is
    at most ½ is taken, which never brings the argument of log1p near −1.
    """
    if beta == 0:
        teacher = teacher_logprobs.exp()
        value = (teacher_logprobs - student_logprobs).mul_(teacher)
        return _zero_where_undefined(value), teacher.neg_()
    if beta == 1:
        student = student_logprobs.exp()
        value = _zero_where_undefined((student_logprobs - teacher_logprobs).mul_(student))
        return value, student.add_(value)
    if beta < 0.5:
        mixture_over_student, gap = _log_mixture(teacher_logprobs, student_logprobs, beta)
        student_term, teacher_term = mixture_over_student.neg(), gap.sub_(mixture_over_student)
    else:
        mixture_over_teacher, gap = _log_mixture(student_logprobs, teacher_logprobs, 1 - beta)
        student_term, teacher_term = gap.sub_(mixture_over_teacher), mixture_over_teacher.neg_()
    derivative = student_term.mul_(student_logprobs.exp()).mul_(1 - beta)
    value = teacher_term.mul_(teacher_logprobs.exp()).mul_(beta).add_(derivative)
    return value, derivative


def _log_mixture(minor: torch.Tensor, major: torch.Tensor, weight: float) -> tuple[torch.Tensor, torch.Tensor]:
    """log(m / major) for m = weight · minor + (1 − weight) · major, and the gap minor − major; all in logs."""
    gap = (minor - major).nan_to_num_(nan=0.0).clamp_(-LARGEST_GAP, LARGEST_GAP)  # NaN: both sides are −inf
    return torch.expm1(gap).mul_(weight).log1p_(), gap


def _zero_where_undefined(value: torch.Tensor) -> torch.Tensor:
    """0 · (±inf) and 0 · (inf − inf) contribute 0. A real infinity stays, and so does a NaN input, through the probabilities."""
    return value.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


DIVERGENCES: dict[str, Divergence] = {
    "jsd": Divergence(jsd, lambda beta: {0.0: 1.0, 1.0: -1.0}.get(beta, 0.0), twin="papergym.kernels.linear_jsd.triton_divergences:jsd")
}


def find_divergence(name: str) -> Divergence:
    """The divergence of that name, or `module:attribute`, a Divergence or a bare entries function. Raises InputError."""
    found = resolve("divergence", name, DIVERGENCES)
    return found if isinstance(found, Divergence) else Divergence(found)
