"""Divergences between the teacher's and the student's distribution of one token, entry by entry over the vocabulary.

A divergence is one function of the log-probabilities, entries(student_logprobs, teacher_logprobs, beta); docs/divergences.md works
two examples. It gets both log-probabilities [rows, V] (fp32 or fp64, normalised, may hold −inf), must not change them, and returns
two tensors [rows, V]: f_j, whose sum over j is the token's divergence, and ∂f_j/∂(student log-prob)_j. An entry may depend on its own
pair alone, for V may be a shard of the vocabulary. The operation does the rest: element clip, the chain rule through softmax,
temperature and the GEMMs. A third tensor [rows, 1] may follow, c, when the second is given without its part c q_j: that part does not
change the gradient of an unclipped token, and where it outweighs the rest it would cost all the digits.
`beta` is whatever the caller passed; ignore it if there is nothing to mix. The function sees a block of whole rows that fits the
CPU's cache, so temporaries are cheap, and in-place operations on its own temporaries are cheaper still.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from papergym.errors import InputError
from papergym.registry import resolve

Entries = Callable[[torch.Tensor, torch.Tensor, float], tuple[torch.Tensor, ...]]

# e^88 is finite in fp32, and the smaller of two probabilities this far apart is subnormal there.
LARGEST_GAP = 88.0
# e^-64 is small beside every gradient that fp32 holds, and e^(88-64) is large beside 1, which the form for wide gaps relies on.
LOWEST_CENTRE = -64.0


@dataclass(frozen=True)
class Divergence:
    """entries: the function described above.

    balance: beta -> κ. Σ_j κ (q_j − p_j) is zero in exact arithmetic; adding it to the unclipped sum cancels the first-order
    effect of a rounding error in either log-sum-exp. It plays no part under an element clip, which acts on f_j itself.
    twin: "module:function" of the same function for backend `triton`: a @triton.jit function of (student_logprobs, teacher_logprobs,
    mean_gap, beta: tl.constexpr), namely a tile in fp32, its row's Σ q (log p − log q) as a scalar, and β, that returns
    (f, derivative, c), with c = 0 for none. It is imported when it is first used.
    """

    entries: Entries
    balance: Callable[[float], float] = lambda beta: 0.0
    twin: str | None = None

    def triton_twin(self) -> Any:
        """The @triton.jit twin. Raises InputError if there is none."""
        if self.twin is None:
            name = f"{self.entries.__module__}:{getattr(self.entries, '__name__', self.entries)}"
            raise InputError(f"divergence {name!r} has no Triton twin: give it one (Divergence.twin) or use backend 'torch'")
        return resolve("Triton twin", self.twin, {})


def jsd(student_logprobs: torch.Tensor, teacher_logprobs: torch.Tensor, beta: float) -> tuple[torch.Tensor, ...]:
    """Generalised Jensen-Shannon divergence, in nats: β KL(p‖m) + (1−β) KL(q‖m) with m = β p + (1−β) q, p the teacher.

    β = 0 is the forward KL(p‖q) and β = 1 the reverse KL(q‖p), as in OPSD, TRL and Liger-Kernel.
    No mixture is formed where the two nearly agree: with d = log p − log q, log(m/q) = log1p(β expm1(d)), accurate to the last digit.

    Where they lie far apart, log(q/m) is nearly the same for all entries that have student mass, and the gradient is what little
    of it differs. So it is taken relative to a row's own K = m/q at d₀ = Σ q d: log(m/q) − log K = log1p(w expm1(d − d₀)) with
    w = β e^d₀ / K. As d₀ = −KL(q‖p) ≤ 0, w ≤ β: no argument of log1p comes near −1 for β ≤ ½. For larger β, (1−w) + w e^(d−d₀)
    replaces it at d < d₀ − 1, and log(m/p) has a form of its own.
    """
    if beta == 0:
        teacher = teacher_logprobs.exp()
        value = (teacher_logprobs - student_logprobs).mul_(teacher)
        return value.masked_fill_(teacher == 0, 0.0), teacher.neg_()  # 0 · ∞ is 0, but a NaN input stays one
    if beta == 1:
        student = student_logprobs.exp()
        value = (student_logprobs - teacher_logprobs).mul_(student).masked_fill_(student == 0, 0.0)
        return value, student.add_(value)
    student = student_logprobs.exp()
    gap = teacher_logprobs - student_logprobs
    gap.masked_fill_(teacher_logprobs == student_logprobs, 0.0).clamp_(-LARGEST_GAP, LARGEST_GAP)  # also where both are −inf
    centre = (student * gap).sum(-1, keepdim=True).clamp_(min=LOWEST_CENTRE)  # d₀
    log_scale = torch.expm1(centre.double()).mul_(beta).log1p_()  # log K; fp64 because K may be 1 − 0.999
    weight = (beta * (centre - log_scale).exp()).to(gap.dtype)
    rest = ((1 - beta) * (-log_scale).exp()).to(gap.dtype)  # 1 − w
    log_scale = log_scale.to(gap.dtype)
    distance = gap - centre
    overflow = distance.sub(LARGEST_GAP).clamp_(min=0)  # there, log(1 + w expm1(x)) = x + log w
    if beta <= 0.5:
        relative = distance.clamp_(max=LARGEST_GAP).expm1_().mul_(weight).log1p_().add_(overflow)
        teacher_term = gap.sub_(relative).sub_(log_scale)
    else:
        below = distance.clamp(max=0)
        relative = distance.clamp_(max=LARGEST_GAP).expm1_().mul_(weight).log1p_().add_(overflow)
        far = torch.lt(below, -1, out=overflow)  # 0 or 1: a float mask vectorises, a bool one does not
        relative.lerp_(below.exp_().mul_(weight).add_(rest).log_(), far)
        teacher_term = gap.neg_().expm1_().mul_(1 - beta).log1p_().neg_()
    derivative = relative.neg_().mul_(student).mul_(1 - beta)
    shift = log_scale.mul_(beta - 1)
    value = teacher_term.mul_(teacher_logprobs.exp()).mul_(beta).add_(derivative).addcmul_(student, shift)
    return value, derivative, shift


DIVERGENCES: dict[str, Divergence] = {
    "jsd": Divergence(jsd, lambda beta: {0.0: 1.0, 1.0: -1.0}.get(beta, 0.0), twin="papergym.kernels.linear_jsd.triton_divergences:jsd")
}


def find_divergence(name: str) -> Divergence:
    """The divergence of that name, or `module:attribute`, a Divergence or a bare entries function. Raises InputError."""
    found = resolve("divergence", name, DIVERGENCES)
    return found if isinstance(found, Divergence) else Divergence(found)
