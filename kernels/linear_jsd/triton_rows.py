"""The element-wise half of the fused divergence on a GPU: what happens to a chunk of logits between two GEMMs.

Legend: R rows of a chunk, V vocabulary, n rows in all. One program owns one row and walks over it three times: forwards for both
log-sum-exps, backwards for the divergence, whose derivatives take the place of the teacher's logits, forwards again to turn them into
the gradient. The turn at each end finds the tiles it just left in the L2 cache.
"""

import torch
import triton
import triton.language as tl

from papergym.kernels.triton_math import LOWEST, add_tile, difference, merge_lanes

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
    """16 bytes of the gradient a thread and tile; registers for two rows on one processor at a time, three in fp32.

    The limit is there to be named: left to itself, the compiler spills a few registers on some chips to stay below one of its own.
    """
    return {"LANES": THREADS * 16 // gradient.itemsize, "num_warps": WARPS, "maxnreg": 128 if gradient.itemsize == 2 else 80}


@triton.jit
def divergence_rows(
    student,  # [R, V] fp32 raw logits
    teacher,  # [R, V] fp32 raw logits; overwritten if GRADIENT
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
    LANES: tl.constexpr,
):
    """Fills the statistics and counts of R rows; if GRADIENT, writes dD/d(raw logit) of the student."""
    row = tl.program_id(0)
    student += row.to(tl.int64) * logit_stride
    teacher += row.to(tl.int64) * logit_stride
    gradient += row.to(tl.int64) * gradient_stride
    tiles = tl.cdiv(vocabulary, LANES)

    student_max, teacher_max = tl.full([LANES], LOWEST, tl.float32), tl.full([LANES], LOWEST, tl.float32)
    student_sum, teacher_sum, gap_sum = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    for tile in range(tiles):
        columns = tile * LANES + tl.arange(0, LANES)
        inside = columns < vocabulary
        student_logits = tl.load(student + columns, mask=inside, other=float("-inf"))
        teacher_logits = tl.load(teacher + columns, mask=inside, other=float("-inf"))
        former = student_max
        student_max, student_sum = add_tile(student_max, student_sum, student_logits, scale)
        teacher_max, teacher_sum = add_tile(teacher_max, teacher_sum, teacher_logits, scale)
        gap = tl.where(student_logits == teacher_logits, 0.0, teacher_logits - student_logits)
        gap = tl.minimum(tl.maximum(gap, LOWEST), -LOWEST)  # 0 · inf would be NaN
        gap_sum = gap_sum * tl.exp((former - student_max) * scale) + tl.exp((student_logits - student_max) * scale) * gap
    student_top, student_log_sum = merge_lanes(student_max, student_sum, scale)
    teacher_top, teacher_log_sum = merge_lanes(teacher_max, teacher_sum, scale)
    # Σ q (log p − log q)
    gap_total = tl.sum(gap_sum * tl.exp((student_max - student_top) * scale), 0) * tl.exp(-student_log_sum)
    mean_gap = (gap_total + student_top - teacher_top) * scale + student_log_sum - teacher_log_sum

    divergence, derivatives, probabilities = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    entropy, teacher_entropy = tl.zeros([LANES], tl.float32), tl.zeros([LANES], tl.float32)
    clipped, first = tl.zeros([LANES], tl.int32), tl.zeros([LANES], tl.int32) + vocabulary
    for step in range(tiles):
        columns = (tiles - 1 - step) * LANES + tl.arange(0, LANES)
        inside = columns < vocabulary
        student_logits = tl.load(student + columns, mask=inside, other=float("-inf"))
        teacher_logits = tl.load(teacher + columns, mask=inside, other=float("-inf"))
        student_logprobs = (student_logits - student_top) * scale - student_log_sum
        teacher_logprobs = (teacher_logits - teacher_top) * scale - teacher_log_sum
        value, derivative, constant = ENTRIES(student_logprobs, teacher_logprobs, mean_gap, BETA)
        student_probs, teacher_probs = tl.exp(student_logprobs), tl.exp(teacher_logprobs)
        if CLIP:
            cut = value > clip
            value = tl.where(cut, clip, value)
            derivative = tl.where(cut, 0.0, derivative + constant * student_probs)
            clipped += cut.to(tl.int32)
        elif BALANCE != 0:
            value += BALANCE * difference(student_probs, teacher_probs, student_logprobs, teacher_logprobs)
        if GRADIENT:
            tl.store(teacher + columns, derivative, mask=inside)
        divergence += value
        derivatives += derivative
        probabilities += student_probs
        entropy -= student_probs * tl.maximum(student_logprobs, -1e4)  # 0 · −inf counts 0
        teacher_entropy -= teacher_probs * tl.maximum(teacher_logprobs, -1e4)
        first = tl.minimum(first, tl.where(teacher_logits == teacher_top, columns, vocabulary))

    # Over Σ q, so that the gradient sums to 0 in spite of rounding: where all g_j / q_j nearly agree, all of it hangs on that.
    mean_derivative = tl.sum(derivatives, 0) / tl.sum(probabilities, 0)
    favourite = tl.minimum(tl.min(first, 0), vocabulary - 1)  # NaN equals nothing
    agree = tl.load(student + favourite) == student_top
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
        tl.debug_barrier()  # all derivatives are written
        for tile in range(tiles):
            columns = tile * LANES + tl.arange(0, LANES)
            inside = columns < vocabulary
            student_logits = tl.load(student + columns, mask=inside, other=float("-inf"))
            derivative = tl.load(teacher + columns, mask=inside, other=0.0)
            student_probs = tl.exp((student_logits - student_top) * scale - student_log_sum)
            slope = (derivative - student_probs * mean_derivative) * scale
            # A bf16 row is packed into the first half of its fp32 row: tile t covers bytes of tiles t/2 to (t+1)/2, at most t.
            # All threads have read those once they have met here.
            tl.debug_barrier()
            tl.store(gradient + columns, slope.to(gradient.dtype.element_ty), mask=inside)


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
    student_probs = tl.exp(student_logprobs)
    value, derivative, constant = ENTRIES(student_logprobs, teacher_logprobs, tl.load(statistics + MEAN_GAP * rows), BETA)
    if CLIP:
        derivative = tl.where(value > clip, 0.0, derivative + constant * student_probs)
    slope = derivative - student_probs * tl.load(statistics + MEAN_DERIVATIVE * rows)
    slope *= scale * tl.load(weights + row)
    tl.store(gradient + offset + columns, slope.to(gradient.dtype.element_ty), mask=inside)
