"""Triton twins of the built-in divergences: same name, arguments and results as in divergences.py, for a tile in registers."""

import triton
import triton.language as tl

from papergym.kernels.triton_math import expm1, log1p, log_mixture

LARGEST_GAP = tl.constexpr(88.0)  # as in divergences.py
LOWEST_CENTRE = tl.constexpr(-64.0)  # as there


@triton.jit
def jsd(student_logprobs, teacher_logprobs, mean_gap, beta: tl.constexpr):
    """Generalised Jensen-Shannon divergence: value and derivative, each of the arguments' shape, and the constant (see divergences.py)."""
    student, teacher = tl.exp(student_logprobs), tl.exp(teacher_logprobs)
    if beta == 0:
        value = tl.where(teacher == 0, 0.0, teacher * (teacher_logprobs - student_logprobs))
        derivative = -teacher
        constant = 0.0
    elif beta == 1:
        value = tl.where(student == 0, 0.0, student * (student_logprobs - teacher_logprobs))
        derivative = value
        constant = 1.0
    else:
        log_beta, log_other = tl.log(tl.full([], beta, tl.float32)), tl.log(tl.full([], 1 - beta, tl.float32))
        centre = tl.minimum(tl.maximum(mean_gap, LOWEST_CENTRE), 0.0)  # d₀
        growth = beta * expm1(centre)  # K − 1
        log_scale = tl.where(growth > -0.5, log1p(tl.maximum(growth, -0.5)), tl.log(1 - beta + beta * tl.exp(centre)))  # log K
        log_weight, log_rest = log_beta + centre - log_scale, log_other - log_scale
        weight = tl.exp(log_weight)
        log_rest = tl.where(weight < 0.5, log1p(-tl.minimum(weight, 0.5)), log_rest)

        gap = tl.where(teacher_logprobs == student_logprobs, 0.0, teacher_logprobs - student_logprobs)
        gap = tl.minimum(tl.maximum(gap, -LARGEST_GAP), LARGEST_GAP)
        tail, near, above = log_mixture(gap - centre, weight, log_weight, log_rest)
        relative = tail + tl.where(near, 0.0, tl.where(above, gap - centre + log_weight, log_rest))
        teacher_term = tl.where(near | (above == 0), gap - relative - log_scale, -tail - log_beta)
        derivative = (beta - 1) * student * relative
        constant = (beta - 1) * log_scale
        value = beta * teacher * teacher_term + derivative + student * constant
    return value, derivative, constant
