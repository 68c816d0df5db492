"""The operation on a GPU, online over tiles of the vocabulary: logits live in registers, in both directions.

Legend: N rows, C columns of a chunk, H hidden width, V vocabulary, BM rows and BV columns of a tile.

Forward is one kernel: a GEMM whose tiles are reduced to a maximum, two sums and the target's logit. Backward multiplies the tiles out
again, a chunk of columns at a time, and writes their gradient (see torch.py), rounded to bf16 where the operands are bf16; GEMMs contract
it to both inputs' gradients. The rows' statistics are known, so a chunk spans all rows, and each element of the head gradient
is written once.
"""

import torch
import triton
import triton.language as tl
from torch.autograd.function import FunctionCtx

from papergym.kernels.checks import differentiable_once
from papergym.kernels.gemm import add_product
from papergym.kernels.linear_logprob import LogprobOutput
from papergym.kernels.projection import exact_products
from papergym.kernels.triton_tiles import check_runnable, gemm_launch, logits_tile, measure_rows, product_dtype

WORKSPACE_BYTES = 256 << 20  # of one chunk's gradient in backward (128 columns are always taken)
LEAST_COLUMNS = 128


def linear_logprob(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, temperature: float, workspace_bytes: int = WORKSPACE_BYTES
) -> LogprobOutput:
    """As fused_linear_logprob, on checked arguments of any dtype but fp64. bf16 operands use the tensor cores, others fp32 products."""
    check_runnable(hidden, (hidden, head))
    return LogprobOutput(*_LinearLogprob.apply(hidden, head, targets, 1 / temperature, workspace_bytes))


class _LinearLogprob(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, head, targets, scale, workspace_bytes):
        ctx.set_materialize_grads(False)
        ctx.scale, ctx.workspace_bytes = scale, workspace_bytes
        if hidden.shape[0] == 0:
            ctx.save_for_backward(hidden, head, targets)
            return hidden.new_empty(0, dtype=torch.float32), hidden.new_empty(0, dtype=torch.float32)
        rows = measure_rows(hidden, head, targets, scale)
        ctx.save_for_backward(hidden, head, targets, rows.maximum, rows.log_sum, rows.entropy)
        return rows.target_logprob, rows.entropy

    @staticmethod
    @differentiable_once
    def backward(ctx: FunctionCtx, logprob_weight, entropy_weight):
        hidden, head, targets, *statistics = ctx.saved_tensors
        if logprob_weight is None and entropy_weight is None:
            return None, None, None, None, None
        hidden_gradient, head_gradient = (
            torch.zeros_like(tensor, dtype=kind) if needed else None
            for tensor, kind, needed in zip((hidden, head), (torch.float32, head.dtype), ctx.needs_input_grad[:2])
        )
        if statistics:
            zeros = torch.zeros_like(statistics[0])
            weights = torch.stack([zeros if weight is None else weight for weight in (logprob_weight, entropy_weight)])
            with exact_products(hidden, head):
                _add_gradients(hidden, head, targets, torch.stack(statistics), weights, ctx, hidden_gradient, head_gradient)
        return None if hidden_gradient is None else hidden_gradient.to(hidden.dtype), head_gradient, None, None, None


def _add_gradients(hidden, head, targets, statistics, weights, ctx, hidden_gradient, head_gradient) -> None:
    """Both gradients, each unless None, chunk by chunk of columns."""
    rows, vocabulary, dtype = hidden.shape[0], head.shape[0], product_dtype(hidden, head)
    launch = gemm_launch(dtype, hidden.device.type)
    step = max(LEAST_COLUMNS, ctx.workspace_bytes // (rows * dtype.itemsize) // LEAST_COLUMNS * LEAST_COLUMNS)
    workspace = torch.empty(rows * min(step, vocabulary), dtype=dtype, device=hidden.device)
    for start in range(0, vocabulary, step):
        part = head[start : start + step]
        slopes = workspace[: rows * part.shape[0]].view(rows, -1)
        logit_gradient[(triton.cdiv(rows, launch["BM"]), triton.cdiv(part.shape[0], launch["BV"]))](
            hidden,
            part,
            targets,
            statistics,
            weights,
            slopes,
            rows,
            part.shape[0],
            start,
            hidden.shape[1],
            *hidden.stride(),
            *part.stride(),
            ctx.scale,
            UPCAST=dtype == torch.float32,
            **launch,
        )
        if hidden_gradient is not None:
            add_product(slopes, part, out=hidden_gradient)
        if head_gradient is not None:
            total = torch.zeros(part.shape, dtype=torch.float32, device=head.device)
            add_product(slopes.T, hidden, out=total)
            head_gradient[start : start + step] = total


@triton.jit
def logit_gradient(
    hidden,
    head,  # [C, H]: the chunk's part
    targets,  # [N] int64
    statistics,  # [3, N] fp32: maximum, log-sum, entropy
    weights,  # [2, N] fp32: upstream of log-prob and entropy
    gradient,  # [N, C]
    row_count,
    width,  # C
    first,  # the chunk's first column
    hidden_width,
    hidden_stride,
    hidden_step,
    head_stride,
    head_step,
    scale,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Gradient of the raw logits: scale · (a (δ_jy − q_j) − b q_j (log q_j + S)); programs: (row blocks, column blocks)."""
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    columns = tl.program_id(1).to(tl.int64) * BV + tl.arange(0, BV)
    logits = logits_tile(
        hidden, head, rows, columns, row_count, width, hidden_width, hidden_stride, hidden_step, head_stride, head_step, BM, BV, BK, UPCAST
    )
    inside = rows < row_count
    maximum = tl.load(statistics + rows, mask=inside, other=0.0)
    log_sum = tl.load(statistics + row_count + rows, mask=inside, other=0.0)
    entropy = tl.load(statistics + 2 * row_count + rows, mask=inside, other=0.0)
    logprob_weight = tl.load(weights + rows, mask=inside, other=0.0)
    entropy_weight = tl.load(weights + row_count + rows, mask=inside, other=0.0)
    target = tl.load(targets + rows, mask=inside, other=-1) - first
    logprobs = tl.maximum((logits - maximum[:, None]) * scale - log_sum[:, None], -1e4)  # 0 · −inf counts 0
    slope = tl.where(columns[None, :] == target[:, None], logprob_weight[:, None], 0.0)
    slope -= tl.exp(logprobs) * (logprob_weight[:, None] + entropy_weight[:, None] * (logprobs + entropy[:, None]))
    places = gradient + rows[:, None] * width + columns[None, :]
    tl.store(places, (slope * scale).to(gradient.dtype.element_ty), mask=inside[:, None] & (columns < width)[None, :])
