"""The operation in plain PyTorch for any device: online over tiles of the vocabulary, the logits recomputed in backward.

Legend: R rows of a chunk, C columns of a tile, r rows of a block that fits the cache, H hidden width, V vocabulary.

Forward keeps a running largest logit and two running sums of every row, so that no more than a tile of logits exists at a time: a GEMM
takes all rows there are, up to thousands, and the pass over its result finds it in cache. With upstream weights a for the log-prob of the
target y and b for the entropy S, the gradient of the scaled logits is a (δ_jy − q_j) − b q_j (log q_j + S).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from papergym.kernels.checks import differentiable_once
from papergym.kernels.cpu import pointers, row_library
from papergym.kernels.linear_logprob import LogprobOutput
from papergym.kernels.projection import accumulation_dtype, add_contraction, exact_products, project, row_chunks
from papergym.kernels.rows import row_blocks

WORKSPACE_BYTES = 128 << 20  # of a tile of logits [R, C]
TILE_COLUMNS = 8192


def linear_logprob(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    temperature: float,
    workspace_bytes: int = WORKSPACE_BYTES,
    tile_columns: int = TILE_COLUMNS,
) -> LogprobOutput:
    """As fused_linear_logprob, on checked arguments. A tile of logits fits into the workspace, except that one row is always taken."""
    return LogprobOutput(*_LinearLogprob.apply(hidden, head, targets, temperature, workspace_bytes, tile_columns))


@dataclass(frozen=True)
class _Statistics:
    """Of rows [n], over the columns so far: the largest logit; and with x = (logit − largest) / temperature, Σ e^x and Σ x e^x, in fp64."""

    largest: Tensor
    total: Tensor
    moment: Tensor

    @classmethod
    def of_nothing(cls, rows: int, dtype: torch.dtype, device: torch.device) -> "_Statistics":
        largest = torch.full((rows,), -torch.inf, dtype=dtype, device=device)
        return cls(largest, *(torch.zeros(rows, dtype=torch.float64, device=device) for _ in range(2)))

    def at(self, rows: slice) -> "_Statistics":
        """A view of some rows."""
        return _Statistics(self.largest[rows], self.total[rows], self.moment[rows])


class _LinearLogprob(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, head, targets, temperature, workspace_bytes, tile_columns):
        ctx.set_materialize_grads(False)
        ctx.temperature, ctx.tiling = temperature, (workspace_bytes, tile_columns)
        dtype = accumulation_dtype(hidden, head)
        statistics = _Statistics.of_nothing(len(hidden), dtype, hidden.device)
        target_logits = torch.empty(len(hidden), dtype=torch.float64, device=hidden.device)
        with exact_products(hidden, head):
            for rows, columns, logits, _ in _tiles(hidden, head, *ctx.tiling):
                found, entries = _targets_within(targets[rows], columns)
                target_logits[rows][found] = logits[found, entries].double()
                _add_columns(logits, temperature, statistics.at(rows))
        log_total = statistics.total.log()
        logprob = ((target_logits - statistics.largest) / temperature - log_total).to(dtype)
        entropy = (log_total - statistics.moment / statistics.total).to(dtype)
        ctx.save_for_backward(hidden, head, targets, statistics.largest, statistics.total, entropy)
        return logprob, entropy

    @staticmethod
    @differentiable_once
    def backward(ctx: FunctionCtx, logprob_weight, entropy_weight):
        hidden, head, targets, largest, total, entropy = ctx.saved_tensors
        if logprob_weight is None and entropy_weight is None:
            return None, None, None, None, None, None
        needs_hidden, needs_head = ctx.needs_input_grad[:2]
        dtype = accumulation_dtype(hidden, head)
        a, b = (torch.zeros_like(entropy) if w is None else w.to(dtype).contiguous() for w in (logprob_weight, entropy_weight))
        hidden_gradient = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device) if needs_hidden else None
        head_gradient = torch.zeros(head.shape, dtype=dtype, device=head.device) if needs_head else None
        with exact_products(hidden, head):
            for rows, columns, logits, hidden_rows in _tiles(hidden, head, *ctx.tiling):
                _gradient_pass(logits, ctx.temperature, *(values[rows] for values in (largest, total, entropy, a, b)))
                found, entries = _targets_within(targets[rows], columns)
                logits[found, entries] += a[rows][found]
                if hidden_gradient is not None:
                    add_contraction(logits, head[columns], out=hidden_gradient[rows])
                if head_gradient is not None:
                    head_gradient[columns].addmm_(logits.T, hidden_rows)
        hidden_gradient, head_gradient = (
            None if gradient is None else gradient.div_(ctx.temperature).to(like.dtype)
            for gradient, like in ((hidden_gradient, hidden), (head_gradient, head))
        )
        return hidden_gradient, head_gradient, None, None, None, None


def _tiles(hidden: Tensor, head: Tensor, workspace_bytes: int, tile_columns: int) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yields (rows, columns, logits [R, C] before the temperature, hidden [R, H]) in the accumulation dtype; one reused workspace."""
    dtype, vocabulary = accumulation_dtype(hidden, head), len(head)
    width = min(tile_columns, vocabulary)
    workspace = None
    for rows in row_chunks(len(hidden), width * dtype.itemsize, workspace_bytes):
        hidden_rows = hidden[rows].to(dtype)
        if workspace is None:  # the first chunk is the longest
            workspace = torch.empty(len(hidden_rows) * width, dtype=dtype, device=hidden.device)
        for start in range(0, vocabulary, width):
            columns = slice(start, min(start + width, vocabulary))
            shape = len(hidden_rows), columns.stop - start
            logits = workspace[: shape[0] * shape[1]].view(shape)
            project(hidden_rows, head[columns], out=logits)
            yield rows, columns, logits, hidden_rows


def _targets_within(targets: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """The rows [k] whose targets [R] lie in the columns, and where in these."""
    found = ((targets >= columns.start) & (targets < columns.stop)).nonzero().squeeze(-1)
    return found, targets[found] - columns.start


def _add_columns(logits: Tensor, temperature: float, statistics: _Statistics) -> None:
    """Takes raw logits [R, C] into the statistics of their rows; may overwrite them."""
    largest, total, moment = statistics.largest, statistics.total, statistics.moment
    compiled = row_library(logits)
    if compiled is not None:
        compiled.papergym_logprob(*pointers(logits), *logits.shape, temperature, torch.get_num_threads(), *pointers(largest, total, moment))
        return
    lowest = torch.finfo(logits.dtype).min  # so that a difference of infinities never occurs
    for block in row_blocks(logits):
        reference = torch.maximum(largest[block], logits[block].amax(-1)).clamp(min=lowest)
        scaled = logits[block].sub_(reference[:, None]).mul_(1 / temperature)
        exponentials = scaled.exp()
        shift = ((largest[block].double() - reference) / temperature).clamp_(min=-1e4)
        decay = shift.exp()
        moment[block].add_(shift * total[block]).mul_(decay).add_(scaled.clamp_(min=-1e4).mul_(exponentials).sum(-1, dtype=torch.float64))
        total[block].mul_(decay).add_(exponentials.sum(-1, dtype=torch.float64))
        largest[block] = reference


def _gradient_pass(logits: Tensor, temperature: float, largest: Tensor, total: Tensor, entropy: Tensor, a: Tensor, b: Tensor) -> None:
    """Overwrites raw logits [R, C] by −q (a + b (log q + S)): the gradient of the scaled ones but for the target's a. Else [R]."""
    compiled = row_library(logits)
    if compiled is not None:
        settings = (*logits.shape, temperature, torch.get_num_threads())
        compiled.papergym_logprob_gradient(*pointers(logits), *settings, *pointers(largest, total, entropy, a, b))
        return
    constant = (entropy - total.log()).to(logits.dtype)
    for block in row_blocks(logits):
        scaled = logits[block].sub_(largest[block, None]).mul_(1 / temperature)
        probs = scaled.exp().div_(total[block, None].to(logits.dtype))
        slopes = scaled.clamp_(min=-1e4).add_(constant[block, None]).mul_(b[block, None]).add_(a[block, None])
        torch.mul(slopes, probs, out=logits[block]).neg_()
