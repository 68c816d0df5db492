"""Device functions that the Triton kernels share: logarithms that keep small differences, and a row's sums lane by lane.

A row is read in tiles of LANES × GROUP columns. Each lane, which is one thread, keeps its own running maximum and sums: the lanes meet
once, after the last tile, and not once a tile.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)  # below every logit, and finite: −inf − LOWEST is −inf where −inf − (−inf) would be NaN
LOWEST_TERM = tl.constexpr(-1e34)  # likewise, of a logit in a sum: finite, also when summed over a vocabulary
LOWEST_LOGPROB = tl.constexpr(-1e4)  # likewise: times its probability, which is 0, it is 0
LOG2_E = tl.constexpr(1.4426950408889634)
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)  # whether kernels run on the CPU, for which there is no assembly


@triton.jit
def exp(x):
    """e^x of a tile. Compiled, what lies below 2⁻¹²⁶ is 0: to keep it would take three more instructions."""
    if INTERPRETED:
        return tl.exp(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * LOG2_E], tl.float32, is_pure=True, pack=1)


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
def log1p_fraction(x):
    """log(1 + x) for 0 ≤ x ≤ 1 with a relative error of 3 ulp: x times a minimax polynomial, which needs no division."""
    series = -0.029505214 + x * 0.005232688
    series = 0.07822591 + x * series
    series = -0.13663243 + x * series
    series = 0.19106005 + x * series
    series = -0.24842982 + x * series
    series = 0.33319098 + x * series
    series = -0.49999493 + x * series
    return x * (0.99999994 + x * series)


@triton.jit
def log1p(x):
    """log(1 + x) for any x ≥ 0 with a relative error of a few ulp."""
    return tl.where(x < 1, log1p_fraction(tl.minimum(x, 1.0)), tl.log(1 + x))


@triton.jit
def coin_bend(x, weight, rest):
    """log(1 + weight (e^x − 1)) − weight x for |x| ≤ ½ with a relative error of a few ulp; weight in (0, 1) and rest = 1 − weight.

    The logarithm generates the cumulants of a coin that shows 1 with that weight. What remains of it without its linear term is
    Σ κₙ xⁿ / n! from n = 2 on, and convergent for |x| < π: n = 9 is enough here. Neither an exponential nor a logarithm is taken, and
    scalar weights cost eight fused multiplications an entry.
    """
    variance, skew = weight * rest, rest - weight
    series = variance * skew * (1 + variance * (-252 + variance * (5040 - variance * 20160))) * (1 / 362880)
    series = variance * (1 + variance * (-126 + variance * (1680 - variance * 5040))) * (1 / 40320) + x * series
    series = variance * skew * (1 + variance * (-60 + variance * 360)) * (1 / 5040) + x * series
    series = variance * (1 + variance * (-30 + variance * 120)) * (1 / 720) + x * series
    series = variance * skew * (1 - variance * 12) * (1 / 120) + x * series
    series = variance * (1 - variance * 6) * (1 / 24) + x * series
    series = variance * skew * (1 / 6) + x * series
    return x * x * (variance * (1 / 2) + x * series)


@triton.jit
def difference(first, second, first_log, second_log):
    """first − second, accurate where they nearly agree, from both and their logarithms. 0 where both are 0."""
    gap = tl.where(first_log == second_log, 0.0, first_log - second_log)
    return tl.where(gap > 0, -first * expm1(-tl.abs(gap)), second * expm1(-tl.abs(gap)))


@triton.jit
def add_tile(maximum, total, logits, scale):
    """Running maximum and Σ e^(scale · (logit − maximum)) of every lane [LANES], after one more tile [LANES, GROUP].

    Returns both, the tile's terms [LANES, GROUP] and what the former sums were multiplied by [LANES].
    """
    larger = tl.maximum(maximum, tl.max(logits, 1))
    shrink = exp((maximum - larger) * scale)
    terms = exp((logits - larger[:, None]) * scale)
    return larger, total * shrink + tl.sum(terms, 1), terms, shrink


@triton.jit
def merge_lanes(maximum, total, scale):
    """Maximum of all lanes and the logarithm of their sum relative to it."""
    largest = tl.max(maximum, 0)
    return largest, tl.log(tl.sum(total * tl.exp((maximum - largest) * scale), 0))
