"""Triton twins of the built-in divergences: same name, arguments and results as in divergences.py, for a tile in registers."""

import triton
import triton.language as tl

from papergym.kernels.triton_math import log_mixture

LARGEST_GAP = tl.constexpr(88.0)  # as in divergences.py


@triton.jit
def jsd(student_logprobs, teacher_logprobs, beta: tl.constexpr):
    """Generalised Jensen-Shannon divergence: value and derivative, each of the arguments' shape."""
    student, teacher = tl.exp(student_logprobs), tl.exp(teacher_logprobs)
    if beta == 0:
        value = tl.where(teacher == 0, 0.0, teacher * (teacher_logprobs - student_logprobs))
        derivative = -teacher
    elif beta == 1:
        value = tl.where(student == 0, 0.0, student * (student_logprobs - teacher_logprobs))
        derivative = student + value
    else:
        # The side whose weight is at most ½ is the minor one; see divergences.py for why no mixture is formed.
        if beta < 0.5:
            gap = _gap(teacher_logprobs, student_logprobs)
            student_term = -log_mixture(gap, beta)
            teacher_term = gap + student_term
        else:
            gap = _gap(student_logprobs, teacher_logprobs)
            teacher_term = -log_mixture(gap, 1 - beta)
            student_term = gap + teacher_term
        derivative = (1 - beta) * student * student_term
        value = beta * teacher * teacher_term + derivative
    return value, derivative


@triton.jit
def _gap(minor, major):
    """minor − major, 0 where both are −inf, bounded so that its exponential is finite."""
    gap = tl.where(minor == major, 0.0, minor - major)
    return tl.minimum(tl.maximum(gap, -LARGEST_GAP), LARGEST_GAP)
