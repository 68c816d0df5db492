"""Triton twins of the built-in divergences: same name, arguments and results as in divergences.py, for a tile in registers."""

import triton
import triton.language as tl

from papergym.kernels.triton_math import LOWEST_LOGPROB, coin_bend, exp, expm1, log1p, log1p_fraction

LOWEST_CENTRE = tl.constexpr(-64.0)  # as in divergences.py


@triton.jit
def log_odds(beta: tl.constexpr):
    """log(β/(1−β)) and log β, scalars."""
    over, under = tl.full([], (1 - beta) / beta, tl.float32), tl.full([], beta / (1 - beta), tl.float32)
    return log1p(under) - log1p(over), -log1p(over)


@triton.jit
def jsd(student_logprobs, teacher_logprobs, mean_gap, beta: tl.constexpr):
    """Generalised Jensen-Shannon divergence: value and derivative, each of the arguments' shape, and the constant (see divergences.py)."""
    student, teacher = exp(student_logprobs), exp(teacher_logprobs)
    if beta == 0:
        value = tl.where(teacher == 0, 0.0, teacher * (teacher_logprobs - student_logprobs))
        derivative = -teacher
        constant = 0.0
    elif beta == 1:
        value = tl.where(student == 0, 0.0, student * (student_logprobs - teacher_logprobs))
        derivative = value
        constant = 1.0
    else:
        logit, log_beta = log_odds(beta)
        centre = tl.minimum(tl.maximum(mean_gap, LOWEST_CENTRE), 0.0)  # d₀, and there:
        over_student, over_teacher = 1 - beta + beta * tl.exp(centre), beta + (1 - beta) * tl.exp(-centre)  # m/q and m/p
        log_over_student, log_over_teacher = -log1p(-beta * expm1(centre) / over_student), log1p((1 - beta) * expm1(-centre))
        weight, rest = beta / over_teacher, (1 - beta) / over_student  # of p and q in m
        log_rest = -log1p(beta / (1 - beta) * tl.exp(centre))

        gap = tl.maximum(teacher_logprobs, LOWEST_LOGPROB) - tl.maximum(student_logprobs, LOWEST_LOGPROB)
        x = gap - centre
        bend = coin_bend(x, weight, rest)
        odds = x + (centre + logit)  # log of β p over (1−β) q
        tail = log1p_fraction(exp(-tl.abs(odds)))
        near = tl.abs(x) < 0.5
        relative = tl.where(near, weight * x + bend, log_rest + (tl.maximum(odds, 0.0) + tail))  # log(m/q) less that at d₀
        teacher_term = tl.where(near, rest * x - bend - log_over_teacher, -log_beta - (tl.maximum(-odds, 0.0) + tail))  # log(p/m)
        derivative = (beta - 1) * student * relative
        constant = (beta - 1) * log_over_student
        value = beta * teacher * teacher_term + (derivative + student * constant)
    return value, derivative, constant
