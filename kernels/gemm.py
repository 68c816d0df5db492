"""GEMMs against the head whose output is fp32: on a GPU from bf16 operands by tensor cores, elsewhere as in projection.py.

Shapes: R rows, H hidden width, V vocabulary.
"""

import torch

from papergym.kernels import projection

SPLITS = 8  # most partial sums of one contraction
OUTPUT_TILE = 128  # rows and columns of the output that one GPU processor computes at a time
BUSY = 2 * 132  # output tiles that keep a large GPU busy
LEAST_PART = 1024  # columns of a part


def project(hidden: torch.Tensor, head: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, V] fp32 = hidden [R, H] · headᵀ."""
    if hidden.is_cuda and hidden.dtype == head.dtype == torch.bfloat16:
        torch.mm(hidden, head.T, out_dtype=torch.float32, out=out)
    else:
        projection.project(hidden.float(), head, out=out)


def contract(weights: torch.Tensor, head: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, H] fp32 = weights [R, V] · head.

    V is hundreds of times R and H, so the output has too few tiles to occupy a GPU: V is cut into parts whose sums are added.
    """
    if not (weights.is_cuda and weights.dtype == head.dtype == torch.bfloat16):
        projection.contract(weights.float(), head, out=out)
        return
    vocabulary = head.shape[0]
    tiles = -(-out.shape[0] // OUTPUT_TILE) * -(-out.shape[1] // OUTPUT_TILE)
    splits = min(SPLITS, BUSY // tiles, vocabulary // LEAST_PART)
    if splits < 2:
        torch.mm(weights, head, out_dtype=torch.float32, out=out)
        return
    even = vocabulary // (8 * splits) * 8 * splits  # every part begins at a multiple of 16 bytes
    parts = weights[:, :even].unflatten(1, (splits, -1)).transpose(0, 1), head[:even].unflatten(0, (splits, -1))
    torch.sum(torch.bmm(*parts, out_dtype=torch.float32), 0, out=out)
    if even < vocabulary:
        out += torch.mm(weights[:, even:], head[even:], out_dtype=torch.float32)


def add_product(first: torch.Tensor, second: torch.Tensor, out: torch.Tensor) -> None:
    """out [A, B] fp32 += first [A, K] · second [K, B]."""
    if first.is_cuda and first.dtype == second.dtype == torch.bfloat16:
        torch.addmm(out, first, second, out_dtype=torch.float32, out=out)
    else:
        out.addmm_(first.float(), second.float())
