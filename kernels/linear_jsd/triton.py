"""The operation on a GPU: rows in chunks through one workspace; cuBLAS for the GEMMs, one Triton kernel for all that lies between.

Legend: N tokens, n rows that the mask keeps, R rows of a chunk, C columns of a chunk, H and Ht hidden widths, V vocabulary.

Per chunk of rows: GEMMs of both heads with fp32 output into the workspace [2, R, V] (one, if student and teacher share the head); the
row kernel fills the results and leaves the gradient of the student's logits in their place; a GEMM contracts it with the head. That is
6 n H V floating-point operations. The upstream weight of a token only scales its row of the hidden gradient, so backward is one
multiplication. The head gradient mixes rows and waits for the weights: backward forms it by chunks of columns, since the statistics of
every row are known by then, and so writes each element of it once.

Without gradients and with a workspace too small for efficient GEMMs, triton_online.py takes over, which stores nothing of width V.
"""

from collections.abc import Iterator

import torch
from torch.autograd.function import FunctionCtx

from papergym.kernels.checks import differentiable_once
from papergym.kernels.gemm import SPLITS, add_product, contract, project
from papergym.kernels.linear_jsd import JsdOptions, JsdOutput
from papergym.kernels.linear_jsd.triton_online import online_jsd
from papergym.kernels.linear_jsd.triton_rows import COUNTS, STATISTICS, TILE_LAUNCH, divergence_rows, gradient_tile, row_launch
from papergym.kernels.projection import exact_products, same_matrix
from papergym.kernels.triton_tiles import check_runnable, product_dtype

GEMM_ROWS = 128  # rows of one GEMM tile: a chunk is a multiple, if it holds one
FEWEST_ROWS = 64  # of a chunk, below which reading the head costs more than multiplying by it
BACKWARD_ROWS = 8192  # of a chunk of columns in backward

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]  # student hidden, student head, teacher hidden, teacher head


def linear_jsd(
    student_hidden: torch.Tensor,
    student_head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
    mask: torch.Tensor | None,
    options: JsdOptions,
) -> JsdOutput:
    """As fused_linear_jsd, on checked arguments of any dtype but fp64. bf16 operands use the tensor cores, others are fp32 GEMMs."""
    operands = (student_hidden, student_head, teacher_hidden, teacher_head)
    check_runnable(student_hidden, operands)
    twin = options.divergence.triton_twin()
    rows = None if mask is None else mask.nonzero().squeeze(-1)
    return JsdOutput(*_LinearJsd.apply(*operands, rows, options, twin, torch.is_grad_enabled()))


class _LinearJsd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student_hidden, student_head, teacher_hidden, teacher_head, rows, options, twin, grad_enabled):
        ctx.set_materialize_grads(False)
        operands = (student_hidden, student_head, teacher_hidden, teacher_head)
        total, device = student_hidden.shape[0], student_hidden.device
        count = total if rows is None else rows.numel()
        statistics = torch.empty(STATISTICS, count, dtype=torch.float32, device=device)
        counts = torch.empty(COUNTS, count, dtype=torch.int64, device=device)
        differentiable = [grad_enabled and tensor.requires_grad for tensor in operands[:2]]
        gradient = torch.empty(count, student_hidden.shape[1], dtype=torch.float32, device=device) if differentiable[0] else None
        with exact_products(*operands):
            if not any(differentiable) and options.workspace_bytes < FEWEST_ROWS * _row_bytes(operands):
                online_jsd(operands, rows, options, twin, statistics, counts)
            else:
                _row_pass(operands, rows, options, twin, statistics, counts, gradient)
        ctx.options, ctx.twin = options, twin
        ctx.save_for_backward(*operands, rows, gradient, statistics if differentiable[1] else None)
        outputs = (*statistics[:3].clone(), counts[0].bool(), counts[1].clone())
        if rows is not None:
            outputs = tuple(values.new_zeros(total).index_copy_(0, rows, values) for values in outputs)
        ctx.mark_non_differentiable(*outputs[1:])
        return outputs

    @staticmethod
    @differentiable_once
    def backward(ctx: FunctionCtx, upstream, *_):
        *operands, rows, gradient, statistics = ctx.saved_tensors
        student_hidden = operands[0]
        hidden_gradient = head_gradient = None
        if upstream is not None and rows is not None:
            upstream = upstream[rows]
        if upstream is not None and gradient is not None:
            scaled = torch.empty_like(gradient, dtype=student_hidden.dtype)
            torch.mul(gradient, upstream[:, None], out=scaled)
            hidden_gradient = scaled if rows is None else scaled.new_zeros(student_hidden.shape).index_copy_(0, rows, scaled)
        if upstream is not None and ctx.needs_input_grad[1]:
            with exact_products(*operands):
                head_gradient = _head_gradient(operands, rows, upstream.contiguous(), statistics, ctx.options, ctx.twin)
        return hidden_gradient, head_gradient, *[None] * 6


def _row_bytes(operands: Operands) -> int:
    """Workspace for one row: two rows of logits and the partial sums of its hidden gradient."""
    return 8 * operands[1].shape[0] + 4 * SPLITS * operands[0].shape[1]


def _constants(options: JsdOptions, twin) -> dict:
    return {"ENTRIES": twin, "BETA": options.beta, "CLIP": options.element_clip is not None}


def _logits(operands: Operands, picked: slice | torch.Tensor, columns: slice, workspace: torch.Tensor) -> torch.Tensor:
    """Raw logits [2, R, C] of student and teacher in the workspace. A head that is also the teacher's is read once."""
    student_hidden, student_head, teacher_hidden, teacher_head = operands
    student, teacher = student_hidden[picked], teacher_hidden[picked]
    student_part, teacher_part = student_head[columns], teacher_head[columns]
    shape = (2, student.shape[0], student_part.shape[0])
    logits = workspace[: shape[0] * shape[1] * shape[2]].view(shape)
    if same_matrix(student_head, teacher_head) and student.dtype == teacher.dtype:
        project(torch.cat((student, teacher)), student_part, out=logits.flatten(0, 1))
    else:
        project(student, student_part, out=logits[0])
        project(teacher, teacher_part, out=logits[1])
    return logits


def _spans(count: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _row_pass(
    operands: Operands,
    rows: torch.Tensor | None,
    options: JsdOptions,
    twin,
    statistics: torch.Tensor,
    counts: torch.Tensor,
    gradient: torch.Tensor | None,
) -> None:
    """Fills statistics, counts and, unless None, gradient [n, H] fp32: dD/d(student hidden)."""
    head = operands[1]
    vocabulary, count = head.shape[0], counts.shape[1]
    step = max(1, min(count, options.workspace_bytes // _row_bytes(operands)))
    if step > GEMM_ROWS:
        step -= step % GEMM_ROWS
    workspace = torch.empty(2 * step * vocabulary, dtype=torch.float32, device=head.device)
    balance = options.divergence.balance(options.beta) if options.element_clip is None else 0.0
    for chunk in _spans(count, step):
        logits = _logits(operands, chunk if rows is None else rows[chunk], slice(None), workspace)
        slopes = logits[0].view(product_dtype(*operands))[:, :vocabulary]
        divergence_rows[(chunk.stop - chunk.start,)](
            logits[0],
            logits[1],
            slopes,
            statistics[:, chunk],
            counts[:, chunk],
            count,
            vocabulary,
            logits.stride(1),
            slopes.stride(0),
            1 / options.temperature,
            options.element_clip or 0.0,
            BALANCE=balance,
            GRADIENT=gradient is not None,
            **_constants(options, twin),
            **row_launch(slopes.dtype),
        )
        if gradient is not None:
            contract(slopes, head, out=gradient[chunk])


def _head_gradient(
    operands: Operands, rows: torch.Tensor | None, weights: torch.Tensor, statistics: torch.Tensor, options: JsdOptions, twin
) -> torch.Tensor:
    """Σ_i weight_i · (dD_i/d logits)ᵀ · hidden_i over n rows: [V, H] in the head's dtype, chunk by chunk of columns."""
    student_hidden, head = operands[:2]
    vocabulary, width = head.shape
    count, dtype = weights.numel(), product_dtype(*operands)
    step = max(1, min(count, BACKWARD_ROWS))
    # A column holds two logits and a gradient a row, and the fp32 sum over the chunks of rows.
    columns = options.workspace_bytes // (step * (8 + dtype.itemsize) + 4 * width)
    columns = max(1, min(vocabulary, columns - columns % GEMM_ROWS if columns > GEMM_ROWS else columns))
    workspace = torch.empty(2 * step * columns, dtype=torch.float32, device=head.device)
    packed = torch.empty(step * columns, dtype=dtype, device=head.device)
    gradient = torch.empty_like(head)
    for part in _spans(vocabulary, columns):
        total = torch.zeros(part.stop - part.start, width, dtype=torch.float32, device=head.device)
        for chunk in _spans(count, step):
            picked = chunk if rows is None else rows[chunk]
            logits = _logits(operands, picked, part, workspace)
            slopes = packed[: logits[0].numel()].view(logits[0].shape)
            gradient_tile[(slopes.shape[0], -(-slopes.shape[1] // TILE_LAUNCH["COLUMNS"]))](
                logits[0],
                logits[1],
                slopes,
                statistics[:, chunk],
                weights[chunk],
                count,
                slopes.shape[1],
                1 / options.temperature,
                options.element_clip or 0.0,
                **_constants(options, twin),
                **TILE_LAUNCH,
            )
            add_product(slopes.T, student_hidden[picked], out=total)
        gradient[part] = total
    return gradient
