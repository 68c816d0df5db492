"""GEMMs against the head with at least fp32 accumulation and output, rows taken in chunks bounded in bytes.

Shapes: N rows, R rows of one chunk, H hidden width, V vocabulary.

A bf16 GEMM rounds the logits to 8 bits, which costs a tenth of the gradient where the divergence is small, and PyTorch has no
CPU GEMM from bf16 to fp32. So bf16 and fp16 operands are upcast, and where both sides are bf16 oneDNN is told that it may
multiply in bf16: the upcast values fit bf16 exactly, the sums stay fp32, and the CPU's bf16 dot product is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

TILE_BYTES = 4 << 20  # of the head that one GEMM reads: stays in cache, for a narrower head also between the upcast and the GEMM


def accumulation_dtype(*tensors: torch.Tensor) -> torch.dtype:
    """fp64 if any tensor is, else fp32."""
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


@contextmanager
def exact_products(*operands: torch.Tensor) -> Iterator[None]:
    """Inside, fp32 CPU GEMMs may round their operands to bf16 if every given tensor is bf16; autocast is off.

    Logits lose nothing by it; the gradient of the logits is rounded once, for the GEMM that contracts it.
    """
    device = operands[0].device.type
    settings = torch.backends.mkldnn.matmul
    before = settings.fp32_precision
    bf16 = device == "cpu" and all(tensor.dtype == torch.bfloat16 for tensor in operands)
    try:
        if bf16:
            settings.fp32_precision = "bf16"
        with torch.autocast(device, enabled=False):
            yield
    finally:
        if bf16:
            settings.fp32_precision = before


def row_chunks(rows: int, bytes_per_row: int, workspace_bytes: int) -> Iterator[slice]:
    """Slices of equal length (±1 chunk remainder) that cover the rows, each within the workspace, but never below one row."""
    if rows == 0:
        return
    limit = max(1, workspace_bytes // bytes_per_row)
    chunks = -(-rows // limit)
    step = -(-rows // chunks)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def head_tiles(head: torch.Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, torch.Tensor]]:
    """The head [V, H] in the given dtype by tiles of rows: views if it has that dtype, else copies in one reused buffer."""
    vocabulary, width = head.shape
    step = min(vocabulary, max(1, TILE_BYTES // (width * dtype.itemsize)))
    buffer = None if head.dtype == dtype else torch.empty(step, width, dtype=dtype, device=head.device)
    for start in range(0, vocabulary, step):
        columns = slice(start, min(start + step, vocabulary))
        tile = head[columns]
        yield columns, tile if buffer is None else buffer[: len(tile)].copy_(tile)


def project(hidden: torch.Tensor, head: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, V] = hidden [R, H] · headᵀ; hidden and out share one dtype, the head may be narrower."""
    for columns, tile in head_tiles(head, out.dtype):
        torch.mm(hidden, tile.T, out=out[:, columns])


def contract(weights: torch.Tensor, head: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, H] = weights [R, V] · head; weights and out share one dtype, the head may be narrower."""
    add_contraction(weights, head, out.zero_())


def add_contraction(weights: torch.Tensor, head: torch.Tensor, out: torch.Tensor) -> None:
    """out [R, H] += weights [R, V] · head; weights and out share one dtype, the head may be narrower."""
    if head.dtype == out.dtype:  # tiles, of which each reads and writes `out`, would gain nothing
        out.addmm_(weights, head)
        return
    for columns, tile in head_tiles(head, out.dtype):
        out.addmm_(weights[:, columns], tile)


def same_matrix(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if both names mean the same elements in memory, so that one read serves both."""
    layout = (first.data_ptr(), first.shape, first.stride(), first.dtype)
    return layout == (second.data_ptr(), second.shape, second.stride(), second.dtype)
