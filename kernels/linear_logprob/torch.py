"""The operation in plain PyTorch for any device: rows in chunks through one workspace, the logits recomputed in backward.

Legend: R rows of a chunk, r rows of a block that fits the cache, H hidden width, V vocabulary.

With upstream weights a for the log-prob of the target y and b for the entropy S, the gradient of the scaled logits is
a (δ_jy − q_j) − b q_j (log q_j + S).
"""

from collections.abc import Iterator

import torch
from torch.autograd.function import FunctionCtx, once_differentiable

from papergym.kernels.cpu import pointers, row_library
from papergym.kernels.linear_logprob import LogprobOutput
from papergym.kernels.projection import accumulation_dtype, contract, exact_products, project, row_chunks
from papergym.kernels.rows import BLOCK_BYTES, entropy_, normalise_, row_blocks

WORKSPACE_BYTES = 128 << 20  # beside inputs, gradients and [N] outputs
TEMPORARIES = 2  # of BLOCK_BYTES, alive at once


def linear_logprob(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, temperature: float, workspace_bytes: int = WORKSPACE_BYTES
) -> LogprobOutput:
    """As fused_linear_logprob, on checked arguments, within the given workspace (a single row is always taken)."""
    return LogprobOutput(*_LinearLogprob.apply(hidden, head, targets, temperature, workspace_bytes))


class _LinearLogprob(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, head, targets, temperature, workspace_bytes):
        ctx.set_materialize_grads(False)
        ctx.temperature, ctx.workspace_bytes = temperature, workspace_bytes
        dtype = accumulation_dtype(hidden, head)
        logprob, entropy = (torch.empty(hidden.shape[0], dtype=dtype, device=hidden.device) for _ in range(2))
        with exact_products(hidden, head):
            for chunk, logits, _ in _chunks(hidden, head, workspace_bytes):
                _row_pass(logits, temperature, targets[chunk], logprob[chunk], entropy[chunk])
        ctx.save_for_backward(hidden, head, targets, entropy)
        return logprob, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, logprob_weight, entropy_weight):
        hidden, head, targets, entropy = ctx.saved_tensors
        if logprob_weight is None and entropy_weight is None:
            return None, None, None, None, None
        needs_hidden, needs_head = ctx.needs_input_grad[:2]
        dtype = accumulation_dtype(hidden, head)
        hidden_gradient = torch.empty(hidden.shape, dtype=dtype, device=hidden.device) if needs_hidden else None
        head_gradient = torch.zeros(head.shape, dtype=dtype, device=head.device) if needs_head else None
        with exact_products(hidden, head):
            for chunk, logits, hidden_rows in _chunks(hidden, head, ctx.workspace_bytes):
                weights = (None if weight is None else weight[chunk] for weight in (logprob_weight, entropy_weight))
                _gradient_pass(logits, ctx.temperature, targets[chunk], *weights, entropy[chunk])
                if hidden_gradient is not None:
                    contract(logits, head, out=hidden_gradient[chunk])
                if head_gradient is not None:
                    head_gradient.addmm_(logits.T, hidden_rows)
        hidden_gradient, head_gradient = (
            None if gradient is None else gradient.div_(ctx.temperature).to(like.dtype)
            for gradient, like in ((hidden_gradient, hidden), (head_gradient, head))
        )
        return hidden_gradient, head_gradient, None, None, None


def _chunks(hidden: torch.Tensor, head: torch.Tensor, workspace_bytes: int) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yields (chunk, logits [R, V] before the temperature, hidden [R, H]) in the accumulation dtype; one reused workspace."""
    dtype = accumulation_dtype(hidden, head)
    available = workspace_bytes - TEMPORARIES * BLOCK_BYTES
    workspace = None
    for chunk in row_chunks(hidden.shape[0], head.shape[0] * dtype.itemsize, available):
        if workspace is None:  # the first chunk is the longest
            workspace = torch.empty(chunk.stop - chunk.start, head.shape[0], dtype=dtype, device=hidden.device)
        hidden_rows = hidden[chunk].to(dtype)
        logits = workspace[: len(hidden_rows)]
        project(hidden_rows, head, out=logits)
        yield chunk, logits, hidden_rows


def _row_pass(logits: torch.Tensor, temperature: float, targets: torch.Tensor, logprob: torch.Tensor, entropy: torch.Tensor) -> None:
    """Fills logprob and entropy [R] from raw logits [R, V], which it may overwrite."""
    compiled = row_library(logits)
    if compiled is not None:
        settings = (*logits.shape, temperature, *pointers(targets), torch.get_num_threads())
        compiled.papergym_logprob(*pointers(logits), *settings, *pointers(logprob, entropy))
        return
    for block in row_blocks(logits):
        logprobs, probs = normalise_(logits[block], temperature)
        logprob[block] = logprobs.gather(-1, targets[block, None]).squeeze(-1)
        entropy_(logprobs, probs, out=entropy[block])


def _gradient_pass(
    logits: torch.Tensor,
    temperature: float,
    targets: torch.Tensor,
    logprob_weight: torch.Tensor | None,
    entropy_weight: torch.Tensor | None,
    entropy: torch.Tensor,
) -> None:
    """Overwrites raw logits [R, V] by the gradient of the scaled ones; everything else is [R]."""
    compiled = row_library(logits)
    if compiled is not None:
        weights = [torch.zeros_like(entropy) if w is None else w.to(entropy.dtype).contiguous() for w in (logprob_weight, entropy_weight)]
        settings = (*logits.shape, temperature, *pointers(targets), torch.get_num_threads())
        compiled.papergym_logprob_gradient(*pointers(logits), *settings, *pointers(*weights))
        return
    for block in row_blocks(logits):
        columns = (None if values is None else values[block, None] for values in (logprob_weight, entropy_weight, entropy))
        _logit_gradient_(logits[block], temperature, targets[block, None], *columns)


def _logit_gradient_(
    logits: torch.Tensor,
    temperature: float,
    targets: torch.Tensor,
    logprob_weight: torch.Tensor | None,
    entropy_weight: torch.Tensor | None,
    entropy: torch.Tensor,
) -> None:
    """_gradient_pass on one block in cache; everything but the logits [r, V] is [r, 1]."""
    logprobs, probs = normalise_(logits, temperature)
    if entropy_weight is None:
        torch.mul(probs, logprob_weight, out=logits)
    else:
        factor = logprobs.clamp_(min=-1e4).add_(entropy).mul_(entropy_weight)
        (factor if logprob_weight is None else factor.add_(logprob_weight)).mul_(probs)
    logits.neg_()
    if logprob_weight is not None:
        logits.scatter_add_(-1, targets, logprob_weight)
