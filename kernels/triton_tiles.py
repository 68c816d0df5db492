"""Tiles of logits that Triton multiplies out in registers, and the softmax statistics of whole rows from them.

Legend: n rows, H hidden width, V vocabulary, S parts of the vocabulary that different programs take, BM rows and BV columns of a tile.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from papergym.kernels.checks import require, shape
from papergym.kernels.triton_math import INTERPRETED, LOWEST

PROGRAMS = 1024  # several for each processor of a large GPU: with few rows, the vocabulary is split until there are as many


def interpreted() -> bool:
    """Whether Triton runs its kernels on the CPU, as it does if TRITON_INTERPRET=1 was set when they were imported."""
    return INTERPRETED.value


def check_runnable(hidden: torch.Tensor, operands: tuple[torch.Tensor, ...]) -> None:
    """Raises InputError unless Triton's kernels can run on these tensors."""
    require(
        hidden.is_cuda or interpreted(),
        f"backend 'triton' needs a CUDA device, but the first tensor {shape(hidden)} is on {hidden.device}: use backend 'torch'",
    )
    for tensor in operands:
        require(tensor.dtype != torch.float64, f"backend 'triton' computes in fp32, but {shape(tensor)} is float64: use backend 'torch'")


def gemm_launch(dtype: torch.dtype, device: str, accumulators: int = 1) -> dict[str, int]:
    """Tile, warps and pipeline stages for products of a dtype: free of spills and within 99 KB of shared memory on every chip.

    device: "cpu" is the interpreter, where few large operations are fastest. accumulators: tiles of logits alive at once.
    """
    if device == "cpu":
        return {"BM": 32, "BV": 512, "BK": 128, "num_warps": 4, "num_stages": 1}
    if dtype == torch.float32:  # exact products: no tensor cores
        return {"BM": 64 // accumulators, "BV": 64 // accumulators, "BK": 32, "num_warps": 4, "num_stages": 2, "maxnreg": 255}
    return {"BM": 128 // accumulators, "BV": 128 // accumulators, "BK": 64, "num_warps": 8, "num_stages": 4}


def product_dtype(*operands: torch.Tensor) -> torch.dtype:
    """What the kernels multiply and round gradients of logits to: bf16 if all operands are, else fp32.

    The interpreter multiplies bf16 wrongly and cuts fp32 off, instead of rounding it, on the way to bf16: it gets fp32.
    """
    return torch.bfloat16 if all(tensor.dtype == torch.bfloat16 for tensor in operands) and not interpreted() else torch.float32


@triton.jit
def logits_tile(
    hidden,  # [n, H]
    head,  # [V, H]
    rows,  # [BM] int64
    columns,  # [BV] int64
    row_count,
    column_count,
    width,  # H
    hidden_stride,
    hidden_step,
    head_stride,
    head_step,
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Raw logits [BM, BV] in fp32; rows and columns past the end give finite nonsense. UPCAST: multiply in fp32."""
    rows = tl.where(rows < row_count, rows, 0)
    columns = tl.where(columns < column_count, columns, 0)
    logits = tl.zeros([BM, BV], tl.float32)
    for start in range(0, width, BK):
        features = start + tl.arange(0, BK)
        inside = features < width
        left = tl.load(hidden + rows[:, None] * hidden_stride + features[None, :] * hidden_step, mask=inside[None, :], other=0.0)
        right = tl.load(head + columns[None, :] * head_stride + features[:, None] * head_step, mask=inside[:, None], other=0.0)
        if UPCAST:
            left, right = left.to(tl.float32), right.to(tl.float32)
        logits = tl.dot(left, right, logits, input_precision="ieee")
    return logits


@triton.jit
def softmax_statistics(
    hidden,
    head,
    targets,  # [n] int64
    partial,  # [4, S, n] fp32: maximum, Σ e^x, Σ x e^x with x = scale · (logit − maximum), and the target's raw logit or 0
    row_count,
    vocabulary,
    width,
    hidden_stride,
    hidden_step,
    head_stride,
    head_step,
    scale,  # 1 / temperature
    part,  # columns of a part, a multiple of BV
    BM: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Statistics of BM rows over one part of the vocabulary; programs: (row blocks, S)."""
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = rows < row_count
    target = tl.load(targets + rows, mask=inside, other=-1)
    maximum, total = tl.full([BM], LOWEST, tl.float32), tl.zeros([BM], tl.float32)
    weighted, picked = tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32)
    first = tl.program_id(1).to(tl.int64) * part
    for start in range(0, part, BV):
        columns = first + start + tl.arange(0, BV)
        logits = logits_tile(
            hidden,
            head,
            rows,
            columns,
            row_count,
            vocabulary,
            width,
            hidden_stride,
            hidden_step,
            head_stride,
            head_step,
            BM,
            BV,
            BK,
            UPCAST,
        )
        logits = tl.where((columns < vocabulary)[None, :], logits, float("-inf"))
        picked += tl.sum(tl.where(columns[None, :] == target[:, None], logits, 0.0), 1)
        larger = tl.maximum(maximum, tl.max(logits, 1))
        fall = tl.maximum((maximum - larger) * scale, -1e4)
        x = tl.maximum((logits - larger[:, None]) * scale, -1e4)
        terms = tl.exp(x)
        weighted = tl.exp(fall) * (weighted + fall * total) + tl.sum(terms * x, 1)
        total = tl.exp(fall) * total + tl.sum(terms, 1)
        maximum = larger
    partial += tl.program_id(1).to(tl.int64) * row_count + rows
    step = tl.num_programs(1).to(tl.int64) * row_count
    tl.store(partial, maximum, mask=inside)
    tl.store(partial + step, total, mask=inside)
    tl.store(partial + 2 * step, weighted, mask=inside)
    tl.store(partial + 3 * step, picked, mask=inside)


@dataclass(frozen=True)
class SoftmaxStatistics:
    """Per row [n], fp32: the largest raw logit, log Σ e^(scale · (logit − maximum)), entropy in nats, and log-prob of the target."""

    maximum: torch.Tensor
    log_sum: torch.Tensor
    entropy: torch.Tensor
    target_logprob: torch.Tensor


def vocabulary_parts(rows: int, vocabulary: int, launch: dict[str, int]) -> tuple[tuple[int, int], int]:
    """The grid (row blocks, S) and the columns of a part."""
    blocks, tiles = triton.cdiv(rows, launch["BM"]), triton.cdiv(vocabulary, launch["BV"])
    tiles_of_part = triton.cdiv(tiles, max(1, min(tiles, triton.cdiv(PROGRAMS, blocks))))
    return (blocks, triton.cdiv(tiles, tiles_of_part)), tiles_of_part * launch["BV"]


def measure_rows(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, scale: float) -> SoftmaxStatistics:
    """Statistics of softmax(scale · hidden [n, H] · head [V, H]ᵀ), n > 0, with one pass over the head a block of rows."""
    rows, vocabulary, dtype = hidden.shape[0], head.shape[0], product_dtype(hidden, head)
    launch = gemm_launch(dtype, hidden.device.type)
    grid, part = vocabulary_parts(rows, vocabulary, launch)
    partial = torch.empty(4, grid[1], rows, dtype=torch.float32, device=hidden.device)
    softmax_statistics[grid](
        hidden,
        head,
        targets,
        partial,
        rows,
        vocabulary,
        hidden.shape[1],
        *hidden.stride(),
        *head.stride(),
        scale,
        part,
        UPCAST=dtype == torch.float32,
        **launch,
    )
    maxima, totals, weighted, picked = partial
    maximum = maxima.amax(0)
    fall = ((maxima - maximum) * scale).clamp_(min=-1e4)
    shrink = fall.exp()
    total = (shrink * totals).sum(0)
    log_sum = total.log()
    entropy = log_sum - (shrink * (weighted + fall * totals)).sum(0) / total
    return SoftmaxStatistics(maximum, log_sum, entropy, (picked.sum(0) - maximum) * scale - log_sum)
