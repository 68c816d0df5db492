"""The divergence with the heads' rows, that is the vocabulary, sharded over the ranks of a process group.

Legend: n rows that the mask keeps, R rows of a chunk, H and Ht hidden widths, v rows of this rank's shards.

Per chunk each rank projects onto its shard and three small collectives follow, each of [k, R] fp32 or fp64: the row maxima; the sums of
exponentials, which make the log-probabilities those of the whole vocabulary before any entry is clipped; every rank's sums of divergence,
derivative, probability and extras. One more sums the hidden gradient [n, H] over the ranks. What a rank keeps for the head's gradient are a
few numbers a row, so backward needs no collective and ranks may disagree about whether their shard is trained.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from papergym.kernels.checks import differentiable_once
from papergym.kernels.linear_jsd import JsdOptions, JsdOutput, check_operands, check_options
from papergym.kernels.linear_jsd.torch import CPU_WORKSPACE_BYTES, TEMPORARIES, weighted_entries
from papergym.kernels.projection import accumulation_dtype, contract, exact_products, project, row_chunks
from papergym.kernels.rows import BLOCK_BYTES, row_argmax, row_blocks


def vocab_parallel_linear_jsd(
    student_hidden: Tensor,
    student_shard: Tensor,
    teacher_hidden: Tensor,
    teacher_shard: Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    beta: float = 0.5,
    temperature: float = 1.0,
    element_clip: float | None = None,
    mask: Tensor | None = None,
    divergence: str = "jsd",
    workspace_bytes: int = 512 << 20,
) -> JsdOutput:
    """fused_linear_jsd where rank r of the group holds rows [v, H] of the student's head and the same rows [v, Ht] of the teacher's.

    Hidden states, mask, options and whether the hidden states require a gradient must be the same on every rank, and so must the
    upstream weights of the divergence. The shards follow
    each other in the order of the ranks, may differ in height, and hold no padding rows. Every rank gets the whole result and
    the whole hidden gradient; a shard that requires a gradient gets its own rows of it. Raises InputError, a ValueError, for what one
    rank can see; an error on one rank leaves the others waiting for it.
    """
    options = check_options(beta, temperature, element_clip, divergence, workspace_bytes)
    check_operands(student_hidden, student_shard, teacher_hidden, teacher_shard, mask, None)
    rows = None if mask is None else mask.nonzero().squeeze(-1)
    need_hidden = torch.is_grad_enabled() and student_hidden.requires_grad
    operands = (student_hidden, student_shard, teacher_hidden.detach(), teacher_shard.detach())
    return JsdOutput(*_VocabParallelJsd.apply(*operands, rows, options, need_hidden, group))


@dataclass(frozen=True)
class _Statistics:
    """Of the whole vocabulary, [2, n] for student and teacher: largest logit, and log Σ e^((logit − largest) / temperature).

    offsets [2, n], fp64: what times q is added to the derivative of the entries that the clip kept, and of those that it cut.
    """

    largest: Tensor
    log_total: Tensor
    offsets: Tensor


class _VocabParallelJsd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, student_hidden, student_shard, teacher_hidden, teacher_shard, rows, options, need_hidden, group):
        ctx.set_materialize_grads(False)
        operands = (student_hidden, student_shard, teacher_hidden, teacher_shard)
        picked = [hidden if rows is None else hidden[rows] for hidden in (student_hidden, teacher_hidden)]
        count, dtype, device = len(picked[0]), accumulation_dtype(*operands), student_hidden.device
        height = torch.tensor(len(student_shard), device=device)
        dist.all_reduce(height, dist.ReduceOp.MAX, group)  # ranks must agree about the chunks
        chunks = _chunks_of(count, int(height), dtype, options, device)
        statistics = _Statistics(*(torch.empty(2, count, dtype=kind, device=device) for kind in (dtype, dtype, torch.float64)))
        sums = torch.empty(6, count, dtype=torch.float64, device=device)
        gradient = torch.empty(count, student_hidden.shape[1], dtype=dtype, device=device) if need_hidden else None
        with exact_products(*operands):
            for chunk in chunks:
                logits = _project(picked, (student_shard, teacher_shard), chunk, dtype)
                _reduce_softmax(logits, chunk, options.temperature, statistics, sums, group)
                _reduce_entries(logits, chunk, statistics, sums, options, group)
                if gradient is not None:
                    contract(_logit_gradient_(logits, statistics.offsets[:, chunk]), student_shard, out=gradient[chunk])
        if gradient is not None and count > 0:
            dist.all_reduce(gradient, dist.ReduceOp.SUM, group)
            gradient.div_(options.temperature)
        ctx.options, ctx.chunks = options, chunks
        ctx.save_for_backward(*operands, rows, gradient, statistics.largest, statistics.log_total, statistics.offsets)
        value, _, entropy, teacher_entropy, agree, clipped = sums
        outputs = (value.to(dtype), entropy.to(dtype), teacher_entropy.to(dtype), agree > 0, clipped.long())
        if rows is not None:
            outputs = tuple(values.new_zeros(len(student_hidden)).index_copy_(0, rows, values) for values in outputs)
        ctx.mark_non_differentiable(*outputs[1:])
        return outputs

    @staticmethod
    @differentiable_once
    def backward(ctx, upstream, *_):
        *operands, rows, gradient, largest, log_total, offsets = ctx.saved_tensors
        student_hidden, student_shard, teacher_hidden, teacher_shard = operands
        hidden_gradient = shard_gradient = None
        if upstream is not None and rows is not None:
            upstream = upstream[rows]
        if upstream is not None and gradient is not None:
            scaled = (gradient * upstream[:, None]).to(student_hidden.dtype)
            hidden_gradient = scaled if rows is None else scaled.new_zeros(student_hidden.shape).index_copy_(0, rows, scaled)
        if upstream is not None and ctx.needs_input_grad[1]:
            dtype, options = accumulation_dtype(*operands), ctx.options
            picked = [hidden if rows is None else hidden[rows] for hidden in (student_hidden, teacher_hidden)]
            weights = upstream / options.temperature
            shard_gradient = torch.zeros(student_shard.shape, dtype=dtype, device=student_shard.device)
            statistics = _Statistics(largest, log_total, offsets)
            with exact_products(*operands):
                for chunk in ctx.chunks:
                    logits = _project(picked, (student_shard, teacher_shard), chunk, dtype)
                    _normalise_(logits, chunk, options.temperature, statistics)
                    _entries(logits, options)
                    rows_gradient = _logit_gradient_(logits, offsets[:, chunk]).mul_(weights[chunk, None])
                    shard_gradient.addmm_(rows_gradient.T, picked[0][chunk].to(dtype))
            shard_gradient = shard_gradient.to(student_shard.dtype)
        return hidden_gradient, shard_gradient, None, None, None, None, None, None


def _chunks_of(count: int, height: int, dtype: torch.dtype, options: JsdOptions, device: torch.device) -> list[slice]:
    limit = min(options.workspace_bytes, CPU_WORKSPACE_BYTES) if device.type == "cpu" else options.workspace_bytes
    return list(row_chunks(count, 2 * height * dtype.itemsize, limit - TEMPORARIES * BLOCK_BYTES))


def _project(hidden: list[Tensor], shards: tuple[Tensor, Tensor], chunk: slice, dtype: torch.dtype) -> Tensor:
    """Raw logits [2, R, v] of student and teacher."""
    logits = torch.empty(2, chunk.stop - chunk.start, len(shards[0]), dtype=dtype, device=shards[0].device)
    for side in range(2):
        project(hidden[side][chunk].to(dtype), shards[side], out=logits[side])
    return logits


def _reduce_softmax(
    logits: Tensor, chunk: slice, temperature: float, statistics: _Statistics, sums: Tensor, group: dist.ProcessGroup | None
) -> None:
    """Turns raw logits into log-probabilities of the whole vocabulary; fills the largest logits and the log-sums of the chunk, and whether
    the teacher's first choice is one of the student's."""
    top = row_argmax(logits[1])[:, None]
    student_top, teacher_top = (logits[side].gather(-1, top).squeeze(-1) for side in range(2))
    largest = logits.amax(-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group)
    statistics.largest[:, chunk] = largest
    total = torch.empty_like(largest)
    for side in range(2):
        for block in row_blocks(logits[side]):
            total[side, block] = _scale_(logits[side, block], largest[side, block], temperature).exp().sum(-1)
    dist.all_reduce(total, dist.ReduceOp.SUM, group)
    statistics.log_total[:, chunk] = total.log()
    logits.sub_(statistics.log_total[:, chunk, None])
    owner = torch.where(teacher_top == largest[1], dist.get_rank(group), dist.get_world_size(group))
    first = owner.clone()  # rank that holds the teacher's first largest logit
    dist.all_reduce(first, dist.ReduceOp.MIN, group)
    sums[4, chunk] = ((owner == first) & (student_top == largest[0])).to(sums.dtype)


def _scale_(logits: Tensor, largest: Tensor, temperature: float) -> Tensor:
    """(logit − largest) / temperature, in this order: to scale first would round the whole logit."""
    return logits.sub_(largest[..., None]).mul_(1 / temperature)


def _normalise_(logits: Tensor, chunk: slice, temperature: float, statistics: _Statistics) -> None:
    """Raw logits to log-probabilities of the whole vocabulary, with the same rounding as in forward."""
    _scale_(logits, statistics.largest[:, chunk], temperature).sub_(statistics.log_total[:, chunk, None])


def _entries(logits: Tensor, options: JsdOptions) -> Tensor:
    """Overwrites log-probabilities [2, R, v] by derivative and student probability; returns this shard's sums [9, R] in fp64.

    A cut entry's probability has the sign −. Sums: value, derivative, both entropies, agreement (0 here), entries cut, probability kept,
    probability cut; and last the constant, the part of g/q that the derivative of the kept entries lacks.
    """
    rows = logits.shape[1]
    sums = torch.zeros(9, rows, dtype=torch.float64, device=logits.device)
    cut = torch.zeros(rows, dtype=torch.int64, device=logits.device)
    for block in row_blocks(logits[0]):
        student, teacher = logits[0, block], logits[1, block]
        value, derivative, constant, kept = weighted_entries(student, teacher, options, cut[block])
        probs = student.exp()
        sums[0, block] = value.sum(-1)
        sums[2, block] = -(student.clamp(min=-1e4) * probs).sum(-1)
        sums[3, block] = -(teacher.clamp(min=-1e4) * teacher.exp()).sum(-1)
        if constant is not None:
            sums[8, block] = constant.squeeze(-1).double()
        if kept is not None:
            probs.mul_(kept.mul_(2).sub_(1))
        sums[1, block] = derivative.sum(-1).double()
        sums[6, block] = probs.clamp(min=0).sum(-1).double()
        sums[7, block] = probs.clamp(max=0).sum(-1).double().neg_()
        student.copy_(derivative)
        teacher.copy_(probs)
    sums[5] = cut
    return sums


def _reduce_entries(
    logits: Tensor, chunk: slice, statistics: _Statistics, sums: Tensor, options: JsdOptions, group: dist.ProcessGroup | None
) -> None:
    """Fills the sums and offsets of the chunk.

    Every rank has a constant of its own, c_r, kept mass K_r and cut mass C_r; G = Σ_r (derivatives_r + c_r K_r). Of c_r − G / Σ (K + C),
    only differences of constants and what the cut mass lacks are formed: where the student is all but certain, the constant cancels to
    e^−100 of itself, far below its own rounding error, and what is left is the gradient.
    """
    local = _entries(logits, options)
    local[4] = sums[4, chunk]
    shards = [torch.empty_like(local) for _ in range(dist.get_world_size(group))]
    dist.all_gather(shards, local, group)
    ranks = torch.stack(shards)
    sums[:, chunk] = ranks[:, :6].sum(0)
    kept_mass, cut_mass, constants = ranks[:, 6:].unbind(1)
    mass = (kept_mass + cut_mass).sum(0)  # the rounded one, so that the gradient sums to 0
    derivatives, constant = ranks[:, 1].sum(0), local[8]
    kept = ((constant - constants) * kept_mass + constant * cut_mass).sum(0) - derivatives
    cut = -derivatives - (constants * kept_mass).sum(0)
    statistics.offsets[:, chunk] = torch.stack((kept, cut)) / mass


def _logit_gradient_(logits: Tensor, offsets: Tensor) -> Tensor:
    """From what _entries left: the gradient [R, v] of the scaled logits, in the student's half. The teacher's half is overwritten too."""
    derivative, signed = logits
    kept, cut = offsets[:, :, None].to(logits.dtype)
    derivative.addcmul_(signed.clamp(min=0), kept)
    return derivative.addcmul_(signed.clamp_(max=0), cut, value=-1)
