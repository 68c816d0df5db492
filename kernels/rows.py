"""What happens to rows of logits between two GEMMs, in blocks of whole rows small enough to stay in the CPU's cache.

Shapes: R rows of a chunk, r rows of a block, V vocabulary. Eager operations that work in place on such a block cost 0.1 to 0.8 ns
an element and core; over whole chunks they cost several times that, all of it memory traffic.
"""

from collections.abc import Iterator

import torch

BLOCK_BYTES = 2 << 20  # of one [r, V] temporary


def row_blocks(logits: torch.Tensor) -> Iterator[slice]:
    """Slices of rows of [R, V] whose bytes are about BLOCK_BYTES; two rows at least, one for each of two cores."""
    rows, vocabulary = logits.shape
    step = max(2, BLOCK_BYTES // (vocabulary * logits.dtype.itemsize))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def normalise_(logits: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Turns logits [r, V] into log-probabilities in place; returns these and the probabilities.

    torch.log_softmax sums a coarser exponential on CPUs, which leaves every log-probability 5e-7 off: where terms of either
    sign are summed and clipped, ten times the error of this. It is also slower than these steps and an exponential after it.
    """
    logits.sub_(logits.amax(-1, keepdim=True))  # first, because the temperature would round the whole logit
    if temperature != 1:
        logits.mul_(1 / temperature)
    probs = logits.exp()
    total = probs.sum(-1, keepdim=True)
    return logits.sub_(total.log()), probs.div_(total)


def entropy_(logprobs: torch.Tensor, probs: torch.Tensor, out: torch.Tensor) -> None:
    """out [r] = −Σ q log q, where an entry of −inf counts 0. Overwrites the log-probabilities."""
    torch.sum(logprobs.clamp_(min=-1e4).mul_(probs), -1, out=out).neg_()


def row_argmax(values: torch.Tensor) -> torch.Tensor:
    """First index of each row's maximum, [R] for values [R, V]: tile maxima first, which vectorise; torch.argmax on a CPU does not."""
    columns = values.shape[1]
    tile = 512
    if columns < 4 * tile:
        return values.argmax(-1)
    whole = columns // tile * tile
    maxima = values[:, :whole].unflatten(-1, (-1, tile)).amax(-1)
    if whole < columns:
        maxima = torch.cat((maxima, values[:, whole:].amax(-1, keepdim=True)), -1)
    start = maxima.argmax(-1).mul_(tile).clamp_(max=columns - tile)[:, None]
    return (start + values.gather(-1, start + torch.arange(tile, device=values.device)).argmax(-1, keepdim=True)).squeeze(-1)
