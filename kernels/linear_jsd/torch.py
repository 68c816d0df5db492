"""The operation in plain PyTorch for any device, tuned for CPUs: rows in chunks through one workspace, gradient in place.

Legend: n rows that the mask keeps, R rows of a chunk, r rows of a block, H and Ht hidden widths, V vocabulary.

Per chunk: GEMMs of both heads into the workspace [2, R, V]; one pass over blocks of rows that turns student logits into their
gradient in place; a GEMM that contracts it to the hidden gradient. The upstream weight of a token only scales its row, so
that GEMM belongs to forward and the hidden gradient costs [n, H], not a second visit. The head gradient mixes rows, so it waits
for the weights: backward visits the chunks again.

The pass over the rows is compiled (papergym.kernels.cpu) for the built-in divergence in fp32 on a CPU. Else it is a dozen eager operations
on blocks of rows small enough to stay in the cache, which takes three times as long.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.autograd.function import FunctionCtx

from papergym.kernels.checks import differentiable_once
from papergym.kernels.cpu import pointers, row_library
from papergym.kernels.linear_jsd import JsdOptions, JsdOutput
from papergym.kernels.linear_jsd.divergences import jsd
from papergym.kernels.projection import (
    accumulation_dtype,
    contract,
    exact_products,
    project,
    row_chunks,
    same_matrix,
)
from papergym.kernels.rows import BLOCK_BYTES, entropy_, normalise_, row_argmax, row_blocks

TEMPORARIES = 8  # of BLOCK_BYTES, alive at once
CPU_WORKSPACE_BYTES = 192 << 20  # more makes no GEMM faster there, and the system must first clear every page of it


def linear_jsd(
    student_hidden: torch.Tensor,
    student_head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
    mask: torch.Tensor | None,
    options: JsdOptions,
) -> JsdOutput:
    """As fused_linear_jsd, on checked arguments."""
    rows = None if mask is None else mask.nonzero().squeeze(-1)
    hidden_gradient = torch.is_grad_enabled() and student_hidden.requires_grad
    return JsdOutput(*_LinearJsd.apply(student_hidden, student_head, teacher_hidden, teacher_head, rows, options, hidden_gradient))


class _LinearJsd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student_hidden, student_head, teacher_hidden, teacher_head, rows, options, hidden_gradient):
        ctx.set_materialize_grads(False)
        total, device = student_hidden.shape[0], student_hidden.device
        count = total if rows is None else rows.numel()
        dtype = accumulation_dtype(student_hidden, student_head, teacher_hidden, teacher_head)
        results = RowResults.empty(count, dtype, device)
        gradient = torch.empty(count, student_hidden.shape[1], dtype=dtype, device=device) if hidden_gradient else None
        operands = (student_hidden, student_head, teacher_hidden, teacher_head)
        with exact_products(*operands):
            for chunk, logits, _ in _chunks(*operands, rows, options):
                _row_pass(logits, options, hidden_gradient, results.at(chunk))
                if gradient is not None:
                    contract(logits[0], student_head, out=gradient[chunk])
        if gradient is not None:
            gradient.div_(options.temperature)
        ctx.options = options
        ctx.save_for_backward(*operands, rows, gradient)
        outputs = results.all()
        if rows is not None:
            outputs = tuple(values.new_zeros(total).index_copy_(0, rows, values) for values in outputs)
        ctx.mark_non_differentiable(*outputs[1:])
        return outputs

    @staticmethod
    @differentiable_once
    def backward(ctx: FunctionCtx, upstream, *_):
        *operands, rows, gradient = ctx.saved_tensors
        student_hidden, student_head = operands[:2]
        hidden_gradient = head_gradient = None
        if upstream is not None and rows is not None:
            upstream = upstream[rows]
        if upstream is not None and gradient is not None:
            scaled = (gradient * upstream[:, None]).to(student_hidden.dtype)
            hidden_gradient = scaled if rows is None else scaled.new_zeros(student_hidden.shape).index_copy_(0, rows, scaled)
        if upstream is not None and ctx.needs_input_grad[1]:
            head_gradient = _head_gradient(operands, rows, upstream / ctx.options.temperature, ctx.options).to(student_head.dtype)
        return hidden_gradient, head_gradient, None, None, None, None, None


@dataclass(frozen=True)
class RowResults:
    """Per-row outputs [n], in JsdOutput's order."""

    divergence: torch.Tensor
    entropy: torch.Tensor
    teacher_entropy: torch.Tensor
    top1_agree: torch.Tensor
    clipped: torch.Tensor

    @classmethod
    def empty(cls, rows: int, dtype: torch.dtype, device: torch.device) -> "RowResults":
        return cls(*(torch.empty(rows, dtype=kind, device=device) for kind in (dtype, dtype, dtype, torch.bool, torch.int64)))

    def all(self) -> tuple[torch.Tensor, ...]:
        return self.divergence, self.entropy, self.teacher_entropy, self.top1_agree, self.clipped

    def at(self, rows: slice) -> "RowResults":
        """A view of some rows."""
        return RowResults(*(values[rows] for values in self.all()))


def _chunks(
    student_hidden: torch.Tensor,
    student_head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
    rows: torch.Tensor | None,
    options: JsdOptions,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yields (chunk, logits [2, R, V] of student and teacher, student hidden [R, H]) in the accumulation dtype.

    The logits live in one workspace that the next chunk overwrites. A head that is also the teacher's is read once, by one GEMM.
    """
    dtype = accumulation_dtype(student_hidden, student_head, teacher_hidden, teacher_head)
    count = student_hidden.shape[0] if rows is None else rows.numel()
    vocabulary = student_head.shape[0]
    row_bytes = 2 * vocabulary * dtype.itemsize
    shared = same_matrix(student_head, teacher_head)
    limit = min(options.workspace_bytes, CPU_WORKSPACE_BYTES) if student_hidden.device.type == "cpu" else options.workspace_bytes
    available = limit - TEMPORARIES * BLOCK_BYTES

    workspace = None
    for chunk in row_chunks(count, row_bytes, available):
        if workspace is None:  # the first chunk is the longest
            workspace = torch.empty(2 * (chunk.stop - chunk.start) * vocabulary, dtype=dtype, device=student_hidden.device)
        picked = chunk if rows is None else rows[chunk]
        student_rows, teacher_rows = student_hidden[picked].to(dtype), teacher_hidden[picked].to(dtype)
        logits = workspace[: 2 * len(student_rows) * vocabulary].view(2, len(student_rows), vocabulary)
        if shared:
            project(torch.cat((student_rows, teacher_rows)), student_head, out=logits.flatten(0, 1))
        else:
            project(student_rows, student_head, out=logits[0])
            project(teacher_rows, teacher_head, out=logits[1])
        yield chunk, logits, student_rows


def _row_pass(logits: torch.Tensor, options: JsdOptions, gradient: bool, results: RowResults) -> None:
    """Fills the results of R rows; if asked, overwrites the student's half of the logits [2, R, V] by temperature · dD/d(raw logit)."""
    compiled = row_library(logits) if options.divergence.entries is jsd and options.restriction is None else None
    if compiled is not None:
        clip = math.nan if options.element_clip is None else options.element_clip
        settings = (*logits.shape[1:], options.beta, options.temperature, clip, gradient, torch.get_num_threads())
        compiled.papergym_jsd(*pointers(logits[0], logits[1]), *settings, *pointers(*results.all()))
        return
    for block in row_blocks(logits[0]):
        _block_pass(logits[0, block], logits[1, block], options, gradient, results.at(block))


def _block_pass(student_logits: torch.Tensor, teacher_logits: torch.Tensor, options: JsdOptions, gradient: bool, out: RowResults) -> None:
    """One block of rows [r, V], all of it in cache."""
    student, student_probs = normalise_(student_logits, options.temperature)
    teacher, teacher_probs = normalise_(teacher_logits, options.temperature)
    support = None if options.restriction is None else options.restriction(student, teacher, student_probs, teacher_probs)
    pair = (student, teacher) if support is None else (support.student, support.teacher)
    value, derivative, constant, kept = weighted_entries(*pair, options, out.clipped)
    torch.sum(value, -1, out=out.divergence)

    top = row_argmax(teacher)
    torch.eq(student.gather(-1, top[:, None]).squeeze(-1), student.amax(-1), out=out.top1_agree)
    entropy_(student, student_probs, out=out.entropy)
    entropy_(teacher, teacher_probs, out=out.teacher_entropy)
    if gradient:
        probs = student_probs if support is None else support.student.exp()
        # G, over Σ q so that the gradient sums to 0 in spite of rounding: where all g_j/q_j nearly agree, all of it hangs on that.
        mass = probs.sum(-1, keepdim=True)
        total = derivative.sum(-1, keepdim=True).div_(mass)
        if constant is not None and kept is not None:  # the kept entries get it by the mass of the cut ones, and these by that of the kept
            kept_probs, cut_probs = kept * probs, (1 - kept) * probs
            kept_share, cut_share = (side.sum(-1, keepdim=True).div_(mass).mul_(constant) for side in (kept_probs, cut_probs))
            derivative.addcmul_(kept_probs, cut_share).addcmul_(cut_probs, kept_share, value=-1)
        target = student_logits if support is None else torch.empty_like(derivative)
        torch.addcmul(derivative, probs, total, value=-1, out=target)
        if support is not None:
            support.spread(target, student_probs, out=student_logits)


def weighted_entries(
    student: torch.Tensor, teacher: torch.Tensor, options: JsdOptions, clipped: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Value and derivative [r, V] with balance or clip applied; the constant c [r, 1] of which the derivative lacks c q, or None;
    and which entries [r, V] the clip kept, as 0 or 1, or None: the others have a derivative of 0 and lack nothing.

    clipped [r] receives the number of entries cut.
    """
    value, derivative, *rest = options.divergence.entries(student, teacher, options.beta)
    constant = rest[0] if rest else None
    if options.element_clip is None:
        clipped.zero_()
        balance = options.divergence.balance(options.beta)
        if balance:  # exponentials of the rounded log-probs: it is their normalisation that needs the balance
            value = value.add(student.exp().sub_(teacher.exp()), alpha=balance)
        return value, derivative, constant, None
    kept = torch.le(value, options.element_clip, out=torch.empty_like(value))  # 0 or 1; a float mask vectorises, a bool one does not
    clipped.copy_(value.shape[-1] - kept.sum(-1))
    largest = torch.finfo(value.dtype).max
    derivative = derivative.clamp(-largest, largest).mul_(kept)  # a cut term may have an infinite one
    return value.clamp(max=options.element_clip), derivative, constant, kept


def _head_gradient(operands, rows: torch.Tensor | None, weights: torch.Tensor, options: JsdOptions) -> torch.Tensor:
    """Σ_i weight_i · (dD_i/d logits)ᵀ · hidden_i over n rows, [V, H] in the accumulation dtype; recomputes the logits."""
    student_hidden, student_head = operands[:2]
    dtype = accumulation_dtype(*operands)
    gradient = torch.zeros(student_head.shape, dtype=dtype, device=student_head.device)
    scratch = RowResults.empty(weights.numel(), dtype, student_hidden.device)
    with exact_products(*operands):
        for chunk, logits, hidden in _chunks(*operands, rows, options):
            _row_pass(logits, options, True, scratch.at(chunk))
            gradient.addmm_(logits[0].mul_(weights[chunk, None]).T, hidden)
    return gradient
