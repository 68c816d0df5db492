"""The element-wise half of the fused divergence on a GPU: what happens to a chunk of logits between two GEMMs.

Legend: R rows of a chunk, V vocabulary, n rows in all. One program owns one row and walks over it three times: forwards for both
log-sum-exps, backwards for the divergence and the mean of its derivative, forwards again for the gradient. The turn at each end
finds the tiles it just left in the L2 cache. The third walk computes the derivatives once more: memory is scarcer than arithmetic.
"""

import torch
import triton
import triton.language as tl

from papergym.kernels.triton_math import LOWEST, LOWEST_LOGPROB, LOWEST_TERM, add_tile, difference, exp, merge_lanes

# Rows of `statistics` [STATISTICS, n] fp32.
DIVERGENCE, ENTROPY, TEACHER_ENTROPY, STUDENT_MAX, STUDENT_LOG_SUM, TEACHER_MAX, TEACHER_LOG_SUM, MEAN_GAP, MEAN_DERIVATIVE = map(
    tl.constexpr, range(9)
)
STATISTICS = 9
# Rows of `counts` [COUNTS, n] int64.
TOP1_AGREE, CLIPPED = map(tl.constexpr, range(2))
COUNTS = 2

WARPS, THREADS = 8, 256  # of a row
TILE_LAUNCH = {"COLUMNS": 1024, "num_warps": 4}


def row_launch(gradient: torch.dtype) -> dict[str, int]:
    """16 bytes of the gradient a thread and tile; registers for four rows on one processor at a time."""
    return {"LANES": THREADS, "GROUP": 16 // gradient.itemsize, "num_warps": WARPS, "maxnreg": 64}


@triton.jit
def load_tile(logits, tile, vocabulary, LANES: tl.constexpr, GROUP: tl.constexpr):
    """One tile of a row [LANES, GROUP], −inf past its end."""
    columns = tile * (LANES * GROUP) + tl.arange(0, LANES * GROUP)
    return tl.reshape(tl.load(logits + columns, mask=columns < vocabulary, other=float("-inf")), [LANES, GROUP])


@triton.jit
def clipped_entries(student_logprobs, teacher_logprobs, mean_gap, clip, ENTRIES: tl.constexpr, BETA: tl.constexpr, CLIP: tl.constexpr):
    """Value and derivative of every entry, and whether it was cut. The derivative lacks the constant part c q unless CLIP."""
    value, derivative, constant = ENTRIES(student_logprobs, teacher_logprobs, mean_gap, BETA)
    cut = value > clip
    if CLIP:
        value = tl.where(cut, clip, value)
        derivative = tl.where(cut, 0.0, derivative + constant * exp(student_logprobs))
    return value, derivative, cut


@triton.jit
def divergence_rows(
    student,  # [R, V] fp32 raw logits
    teacher,  # [R, V] fp32 raw logits
    gradient,  # [R, V] fp32 or bf16; may share the student's memory, each row beginning where the student's row does
    statistics,  # [9, n] fp32, from the chunk's first row on
    counts,  # [2, n] int64, likewise
    rows,  # n
    vocabulary,
    logit_stride,
    gradient_stride,
    scale,  # 1 / temperature
    clip,  # largest value of an entry, if CLIP
    ENTRIES: tl.constexpr,
    BETA: tl.constexpr,
    BALANCE: tl.constexpr,
    CLIP: tl.constexpr,
    GRADIENT: tl.constexpr,
    LANES: tl.constexpr,  # threads
    GROUP: tl.constexpr,  # columns of a lane in a tile
):
    """Fills the statistics and counts of R rows; if GRADIENT, writes dD/d(raw logit) of the student."""
    row = tl.program_id(0)
    student += row.to(tl.int64) * logit_stride
    teacher += row.to(tl.int64) * logit_stride
    gradient += row.to(tl.int64) * gradient_stride
    tiles = tl.cdiv(vocabulary, LANES * GROUP)

    zeros = tl.zeros([LANES], tl.float32)
    student_max, student_sum, teacher_max, teacher_sum, gap_sum = zeros + LOWEST, zeros, zeros + LOWEST, zeros, zeros
    best_tile = tl.zeros([LANES], tl.int32)
    for tile in range(tiles):
        student_logits = load_tile(student, tile, vocabulary, LANES, GROUP)
        teacher_logits = load_tile(teacher, tile, vocabulary, LANES, GROUP)
        former = teacher_max
        student_max, student_sum, terms, shrink = add_tile(student_max, student_sum, student_logits, scale)
        teacher_max, teacher_sum, _, _ = add_tile(teacher_max, teacher_sum, teacher_logits, scale)
        best_tile = tl.where(teacher_max > former, tile, best_tile)
        gaps = tl.maximum(teacher_logits, LOWEST_TERM) - tl.maximum(student_logits, LOWEST_TERM)
        gap_sum = gap_sum * shrink + tl.sum(terms * gaps, 1)
    student_top, student_log_sum = merge_lanes(student_max, student_sum, scale)
    teacher_top, teacher_log_sum = merge_lanes(teacher_max, teacher_sum, scale)
    # Σ q (log p − log q)
    gap_total = tl.sum(gap_sum * tl.exp((student_max - student_top) * scale), 0) * tl.exp(-student_log_sum)
    mean_gap = (gap_total + student_top - teacher_top) * scale + student_log_sum - teacher_log_sum
    # The teacher's favourite is the first of its largest logits.
    columns = tl.min(tl.where(teacher_max == teacher_top, best_tile, tiles), 0) * (LANES * GROUP) + tl.arange(0, LANES * GROUP)
    best = tl.load(teacher + columns, mask=columns < vocabulary, other=float("-inf")) == teacher_top
    favourite = tl.minimum(tl.min(tl.where(best, columns, vocabulary), 0), vocabulary - 1)  # NaN equals nothing
    agree = tl.load(student + favourite) == student_top

    divergence, derivatives, probabilities, entropy, teacher_entropy = zeros, zeros, zeros, zeros, zeros
    clipped = tl.zeros([LANES], tl.int32)
    for step in range(tiles):
        student_logits = load_tile(student, tiles - 1 - step, vocabulary, LANES, GROUP)
        teacher_logits = load_tile(teacher, tiles - 1 - step, vocabulary, LANES, GROUP)
        student_logprobs = (student_logits - student_top) * scale - student_log_sum
        teacher_logprobs = (teacher_logits - teacher_top) * scale - teacher_log_sum
        value, derivative, cut = clipped_entries(student_logprobs, teacher_logprobs, mean_gap, clip, ENTRIES, BETA, CLIP)
        student_probs, teacher_probs = exp(student_logprobs), exp(teacher_logprobs)
        if CLIP:
            clipped += tl.sum(cut.to(tl.int32), 1)
        elif BALANCE != 0:
            value += BALANCE * difference(student_probs, teacher_probs, student_logprobs, teacher_logprobs)
        divergence += tl.sum(value, 1)
        derivatives += tl.sum(derivative, 1)
        probabilities += tl.sum(student_probs, 1)
        entropy -= tl.sum(student_probs * tl.maximum(student_logprobs, LOWEST_LOGPROB), 1)
        teacher_entropy -= tl.sum(teacher_probs * tl.maximum(teacher_logprobs, LOWEST_LOGPROB), 1)

    # Over Σ q, so that the gradient sums to 0 in spite of rounding: where all g_j / q_j nearly agree, all of it hangs on that.
    mean_derivative = tl.sum(derivatives, 0) / tl.sum(probabilities, 0)
    tl.store(statistics + DIVERGENCE * rows + row, tl.sum(divergence, 0))
    tl.store(statistics + ENTROPY * rows + row, tl.sum(entropy, 0))
    tl.store(statistics + TEACHER_ENTROPY * rows + row, tl.sum(teacher_entropy, 0))
    tl.store(statistics + STUDENT_MAX * rows + row, student_top)
    tl.store(statistics + STUDENT_LOG_SUM * rows + row, student_log_sum)
    tl.store(statistics + TEACHER_MAX * rows + row, teacher_top)
    tl.store(statistics + TEACHER_LOG_SUM * rows + row, teacher_log_sum)
    tl.store(statistics + MEAN_GAP * rows + row, mean_gap)
    tl.store(statistics + MEAN_DERIVATIVE * rows + row, mean_derivative)
    tl.store(counts + TOP1_AGREE * rows + row, agree.to(tl.int64))
    tl.store(counts + CLIPPED * rows + row, tl.sum(clipped, 0).to(tl.int64))

    if GRADIENT:
        for tile in range(tiles):
            student_logits = load_tile(student, tile, vocabulary, LANES, GROUP)
            teacher_logits = load_tile(teacher, tile, vocabulary, LANES, GROUP)
            student_logprobs = (student_logits - student_top) * scale - student_log_sum
            teacher_logprobs = (teacher_logits - teacher_top) * scale - teacher_log_sum
            _, derivative, _ = clipped_entries(student_logprobs, teacher_logprobs, mean_gap, clip, ENTRIES, BETA, CLIP)
            slope = (derivative - exp(student_logprobs) * mean_derivative) * scale
            # A bf16 row is packed into the first half of its fp32 row: tile t covers bytes of tiles t/2 to (t+1)/2, at most t.
            # All threads have read those once they have met here.
            tl.debug_barrier()
            columns = tile * (LANES * GROUP) + tl.arange(0, LANES * GROUP)
            slope = tl.reshape(slope.to(gradient.dtype.element_ty), [LANES * GROUP])
            tl.store(gradient + columns, slope, mask=columns < vocabulary)


@triton.jit
def gradient_tile(
    student,  # [R, C] fp32 raw logits of C columns
    teacher,  # [R, C] fp32 raw logits
    gradient,  # [R, C] fp32 or bf16; may be `student` itself if fp32
    statistics,  # [9, n] fp32, from the chunk's first row on
    weights,  # [R] fp32 upstream weight
    rows,  # n
    width,  # C
    scale,
    clip,
    ENTRIES: tl.constexpr,
    BETA: tl.constexpr,
    CLIP: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """weight · dD/d(raw logit) for any part of the logits, from the statistics of whole rows."""
    row = tl.program_id(0)
    offset = row.to(tl.int64) * width
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    student_logits = tl.load(student + offset + columns, mask=inside, other=float("-inf"))
    teacher_logits = tl.load(teacher + offset + columns, mask=inside, other=float("-inf"))
    statistics += row
    student_shift = tl.load(statistics + STUDENT_MAX * rows), tl.load(statistics + STUDENT_LOG_SUM * rows)
    teacher_shift = tl.load(statistics + TEACHER_MAX * rows), tl.load(statistics + TEACHER_LOG_SUM * rows)
    student_logprobs = (student_logits - student_shift[0]) * scale - student_shift[1]
    teacher_logprobs = (teacher_logits - teacher_shift[0]) * scale - teacher_shift[1]
    mean_gap = tl.load(statistics + MEAN_GAP * rows)
    _, derivative, _ = clipped_entries(student_logprobs, teacher_logprobs, mean_gap, clip, ENTRIES, BETA, CLIP)
    slope = derivative - exp(student_logprobs) * tl.load(statistics + MEAN_DERIVATIVE * rows)
    slope *= scale * tl.load(weights + row)
    tl.store(gradient + offset + columns, slope.to(gradient.dtype.element_ty), mask=inside)
