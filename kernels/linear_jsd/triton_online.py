"""The divergence without gradients and without a workspace: tiles of logits live in registers, twice.

The mixture of two distributions needs both log-sum-exps before its first term, so the logits are multiplied out once for these and
once more for the sums: 8 n H V operations, where the workspace needs 4.

Legend: n rows, S parts of the vocabulary that different programs take, BM rows and BV columns of a tile, H and Ht hidden widths.
"""

import torch
import triton
import triton.language as tl

from papergym.kernels.linear_jsd import JsdOptions
from papergym.kernels.triton_math import LOWEST, difference
from papergym.kernels.triton_tiles import (
    gemm_launch,
    logits_tile,
    measure_rows,
    product_dtype,
    vocabulary_parts,
)

PARTIALS = 5


@triton.jit
def divergence_online(
    student_hidden,
    student_head,
    teacher_hidden,
    teacher_head,
    statistics,  # [4, n] fp32: maximum and log-sum of student and teacher
    partial,  # [5, S, n] fp32: divergence, clipped, the teacher's best logit, the student's there, the student's best
    row_count,
    vocabulary,
    student_width,
    teacher_width,
    student_stride,
    student_step,
    student_head_stride,
    student_head_step,
    teacher_stride,
    teacher_step,
    teacher_head_stride,
    teacher_head_step,
    scale,
    clip,
    part,  # columns of a part, a multiple of BV
    ENTRIES: tl.constexpr,
    BETA: tl.constexpr,
    BALANCE: tl.constexpr,
    CLIP: tl.constexpr,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    UPCAST_STUDENT: tl.constexpr,
    UPCAST_TEACHER: tl.constexpr,
):
    """Sums of BM rows over one part of the vocabulary; programs: (row blocks, S)."""
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = rows < row_count
    student_max = tl.load(statistics + rows, mask=inside, other=0.0)
    student_log_sum = tl.load(statistics + row_count + rows, mask=inside, other=0.0)
    teacher_max = tl.load(statistics + 2 * row_count + rows, mask=inside, other=0.0)
    teacher_log_sum = tl.load(statistics + 3 * row_count + rows, mask=inside, other=0.0)
    divergence, clipped = tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    teacher_best, student_there = tl.full([BM], LOWEST, tl.float32), tl.zeros([BM], tl.float32)
    student_best = tl.full([BM], LOWEST, tl.float32)
    first = tl.program_id(1).to(tl.int64) * part
    for start in range(0, part, BV):
        columns = first + start + tl.arange(0, BV)
        valid = (columns < vocabulary)[None, :]
        student = logits_tile(
            student_hidden,
            student_head,
            rows,
            columns,
            row_count,
            vocabulary,
            student_width,
            student_stride,
            student_step,
            student_head_stride,
            student_head_step,
            BM,
            BV,
            BK,
            UPCAST_STUDENT,
        )
        teacher = logits_tile(
            teacher_hidden,
            teacher_head,
            rows,
            columns,
            row_count,
            vocabulary,
            teacher_width,
            teacher_stride,
            teacher_step,
            teacher_head_stride,
            teacher_head_step,
            BM,
            BV,
            BK,
            UPCAST_TEACHER,
        )
        student = tl.where(valid, student, float("-inf"))
        teacher = tl.where(valid, teacher, float("-inf"))
        best, place = tl.max(teacher, 1, return_indices=True, return_indices_tie_break_left=True)
        there = tl.sum(tl.where(tl.arange(0, BV)[None, :] == place[:, None], student, 0.0), 1)
        student_there = tl.where(best > teacher_best, there, student_there)
        teacher_best = tl.maximum(teacher_best, best)
        student_best = tl.maximum(student_best, tl.max(student, 1))

        student_logprobs = (student - student_max[:, None]) * scale - student_log_sum[:, None]
        teacher_logprobs = (teacher - teacher_max[:, None]) * scale - teacher_log_sum[:, None]
        value, _, _ = ENTRIES(student_logprobs, teacher_logprobs, 0.0, BETA)  # any mean gap gives the same value
        if CLIP:
            clipped += tl.sum((value > clip).to(tl.float32), 1)
            value = tl.where(value > clip, clip, value)
        elif BALANCE != 0:
            student_probs, teacher_probs = tl.exp(student_logprobs), tl.exp(teacher_logprobs)
            value += BALANCE * difference(student_probs, teacher_probs, student_logprobs, teacher_logprobs)
        divergence += tl.sum(value, 1)
    partial += tl.program_id(1).to(tl.int64) * row_count + rows
    step = tl.num_programs(1).to(tl.int64) * row_count
    tl.store(partial, divergence, mask=inside)
    tl.store(partial + step, clipped, mask=inside)
    tl.store(partial + 2 * step, teacher_best, mask=inside)
    tl.store(partial + 3 * step, student_there, mask=inside)
    tl.store(partial + 4 * step, student_best, mask=inside)


def online_jsd(
    operands: tuple[torch.Tensor, ...],
    rows: torch.Tensor | None,
    options: JsdOptions,
    twin,
    statistics: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Fills divergence and entropies (statistics [3+, n] fp32), agreement and clipped entries (counts [2, n] int64)."""
    student_hidden, student_head, teacher_hidden, teacher_head = operands
    if rows is not None:
        student_hidden, teacher_hidden = student_hidden[rows], teacher_hidden[rows]
    count, vocabulary, scale = student_hidden.shape[0], student_head.shape[0], 1 / options.temperature
    if count == 0:
        return
    nothing = torch.zeros(count, dtype=torch.int64, device=student_hidden.device)
    student = measure_rows(student_hidden, student_head, nothing, scale)
    teacher = measure_rows(teacher_hidden, teacher_head, nothing, scale)

    kinds = [product_dtype(student_hidden, student_head), product_dtype(teacher_hidden, teacher_head)]
    launch = gemm_launch(product_dtype(*operands), student_hidden.device.type, accumulators=2)
    grid, part = vocabulary_parts(count, vocabulary, launch)
    partial = torch.empty(PARTIALS, grid[1], count, dtype=torch.float32, device=student_hidden.device)
    divergence_online[grid](
        student_hidden,
        student_head,
        teacher_hidden,
        teacher_head,
        torch.stack((student.maximum, student.log_sum, teacher.maximum, teacher.log_sum)),
        partial,
        count,
        vocabulary,
        student_hidden.shape[1],
        teacher_hidden.shape[1],
        *student_hidden.stride(),
        *student_head.stride(),
        *teacher_hidden.stride(),
        *teacher_head.stride(),
        scale,
        options.element_clip or 0.0,
        part,
        ENTRIES=twin,
        BETA=options.beta,
        BALANCE=options.divergence.balance(options.beta) if options.element_clip is None else 0.0,
        CLIP=options.element_clip is not None,
        UPCAST_STUDENT=kinds[0] == torch.float32,
        UPCAST_TEACHER=kinds[1] == torch.float32,
        **launch,
    )
    divergence, clipped, teacher_best, student_there, student_best = partial
    favourite = teacher_best.argmax(0, keepdim=True)  # the first part, if several hold the maximum
    torch.sum(divergence, 0, out=statistics[0])
    statistics[1], statistics[2] = student.entropy, teacher.entropy
    counts[0] = student_there.gather(0, favourite)[0] == student_best.amax(0)
    counts[1] = clipped.sum(0)
