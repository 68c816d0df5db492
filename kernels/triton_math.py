"""Device functions that the Triton kernels share: logarithms that keep small differences, and a row's sums lane by lane.

A row is read in tiles of LANES columns. Each lane keeps its own running maximum and sums, which no other thread needs: the lanes meet
once, after the last tile, and not once a tile.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1e30)  # below every logit, and finite: −inf − LOWEST is −inf where −inf − (−inf) would be NaN


@triton.jit
def expm1(x):
    """e^x − 1 with a relative error of a few ulp, also near 0. Taylor's terms up to x⁹ are exact to fp32 for |x| < ½."""
    series = 1 + x * (1 / 9)
    series = 1 + x * (1 / 8) * series
    series = 1 + x * (1 / 7) * series
    series = 1 + x * (1 / 6) * series
    series = 1 + x * (1 / 5) * series
    series = 1 + x * (1 / 4) * series
    series = 1 + x * (1 / 3) * series
    series = x * (1 + x * (1 / 2) * series)
    return tl.where(tl.abs(x) < 0.5, series, tl.exp(x) - 1)


@triton.jit
def log1p(x):
    """log(1 + x) for −0.51 ≤ x ≤ 1.02 with a relative error of a few ulp: 2 artanh(z) by its series, z = x / (2 + x), |z| ≤ ⅓."""
    z = x / (2 + x)
    square = z * z
    series = 1 / 13 + square * (1 / 15)
    series = 1 / 11 + square * series
    series = 1 / 9 + square * series
    series = 1 / 7 + square * series
    series = 1 / 5 + square * series
    series = 1 / 3 + square * series
    return 2 * z * (1 + square * series)


@triton.jit
def log_mixture(x, weight, log_weight, log_rest):
    """log(1 + weight (e^x − 1)) = base + tail to a few ulp, with one exponential and no logarithm of an entry: (tail, near, above).

    weight in (0, 1), its logarithm and log_rest = log(1 − weight) may be scalars. The base is 0 where `near`, |x| < 0.7; else
    x + log_weight where `above`, that is, where weight e^x is the larger summand; else log_rest. They are kept apart so that a caller
    can leave out a base that cancels.
    """
    log_ratio = x + log_weight - log_rest  # of the summands weight e^x and 1 − weight
    near = tl.abs(x) < 0.7
    exponent = tl.where(near, x, -tl.abs(log_ratio))
    tail = log1p(tl.where(near, weight * expm1(exponent), tl.exp(exponent)))
    return tail, near, log_ratio > 0


@triton.jit
def difference(first, second, first_log, second_log):
    """first − second, accurate where they nearly agree, from both and their logarithms. 0 where both are 0."""
    gap = tl.where(first_log == second_log, 0.0, first_log - second_log)
    return tl.where(gap > 0, -first * expm1(-tl.abs(gap)), second * expm1(-tl.abs(gap)))


@triton.jit
def add_tile(maximum, total, logits, scale):
    """Running maximum and Σ e^(scale · (logit − maximum)) of every lane, after one more tile; all [LANES]."""
    larger = tl.maximum(maximum, logits)
    return larger, total * tl.exp((maximum - larger) * scale) + tl.exp((logits - larger) * scale)


@triton.jit
def merge_lanes(maximum, total, scale):
    """Maximum of all lanes and the logarithm of their sum relative to it."""
    largest = tl.max(maximum, 0)
    return largest, tl.log(tl.sum(total * tl.exp((maximum - largest) * scale), 0))
