"""The divergence on a part of the vocabulary: the k likeliest tokens of the teacher or of the student, alone or with all others as one.

Legend: N token positions, r rows of a block, V vocabulary, K entries that are compared: k, or k + 1 with the tail.

Both distributions restricted to the support are again softmaxes of logits: those of the support, and for the tail the log-sum-exp
of its members. So the divergence and its gradient in these K logits are the ordinary ones, and the tail's share is passed on to its
members in proportion to their probability. The whole logits are formed in any case: the support and the tail depend on them.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from papergym.kernels.checks import require
from papergym.kernels.linear_jsd import JsdOutput, check_operands, check_options
from papergym.kernels.linear_jsd.torch import linear_jsd


def topk_linear_jsd(
    student_hidden: Tensor,
    student_head: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    *,
    k: int,
    support: Literal["teacher", "student"] = "teacher",
    tail: Literal["bucket", "renormalise"] = "bucket",
    beta: float = 0.5,
    temperature: float = 1.0,
    element_clip: float | None = None,
    mask: Tensor | None = None,
    vocab_size: int | None = None,
    divergence: str = "jsd",
    workspace_bytes: int = 512 << 20,
) -> JsdOutput:
    """fused_linear_jsd with the vocabulary of each token reduced to the k likeliest tokens of one side.

    tail: "bucket" keeps the probabilities and adds one entry that stands for all other tokens, so D is at most the unrestricted
    one (a coarser look tells less); "renormalise" scales both sides to sum to 1 on the support and ignores the rest, so D may be
    larger, and no gradient reaches the logits outside. The choice of the support is constant: no gradient passes through it.
    All else, and the other outputs (of the whole distributions), as in fused_linear_jsd. Raises InputError, a ValueError.
    """
    options = check_options(beta, temperature, element_clip, divergence, workspace_bytes)
    student_head, teacher_head = check_operands(student_hidden, student_head, teacher_hidden, teacher_head, mask, vocab_size)
    vocabulary = student_head.shape[0]
    require(isinstance(k, int) and 1 <= k <= vocabulary, f"k is {k}, the vocabulary is {vocabulary}: k must lie in 1 to {vocabulary}")
    require(support in ("teacher", "student"), f"support is {support!r}: use teacher or student")
    require(tail in ("bucket", "renormalise"), f"tail is {tail!r}: use bucket or renormalise")
    restricted = replace(options, restriction=TopK(k, support == "teacher", tail == "bucket"))
    return linear_jsd(student_hidden, student_head, teacher_hidden.detach(), teacher_head.detach(), mask, restricted)


@dataclass(frozen=True)
class Support:
    """Log-probabilities [r, K] of both sides on the support, and how a gradient in these K logits reaches all V."""

    student: Tensor
    teacher: Tensor
    ids: Tensor  # [r, k]
    tail: Tensor | None  # [r, 1], student probability outside

    def spread(self, gradient: Tensor, probs: Tensor, out: Tensor) -> None:
        """out [r, V] = the gradient [r, K] passed on to the student logits, whose probabilities [r, V] are given."""
        if self.tail is None:
            out.zero_()
        else:
            share = torch.where(self.tail > 0, gradient[:, -1:] / self.tail, 0)
            torch.mul(probs, share, out=out)
        out.scatter_(-1, self.ids, gradient[:, : self.ids.shape[1]])


@dataclass(frozen=True)
class TopK:
    """What topk_linear_jsd does to a block of rows."""

    k: int
    of_teacher: bool
    bucket: bool

    def __call__(self, student: Tensor, teacher: Tensor, student_probs: Tensor, teacher_probs: Tensor) -> Support:
        """From log-probabilities and probabilities [r, V] of the whole vocabulary."""
        ids = (teacher if self.of_teacher else student).topk(self.k, dim=-1).indices
        inside = [logprobs.gather(-1, ids) for logprobs in (student, teacher)]
        if not self.bucket:
            return Support(*(logprobs.log_softmax(-1) for logprobs in inside), ids, None)
        # Summed, not 1 − Σ inside: a small tail keeps its digits.
        tails = [probs.scatter(-1, ids, 0).sum(-1, keepdim=True) for probs in (student_probs, teacher_probs)]
        return Support(*(torch.cat((logprobs, mass.log()), -1) for logprobs, mass in zip(inside, tails)), ids, tails[0])
