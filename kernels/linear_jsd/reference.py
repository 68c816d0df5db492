"""The operation written plainly: whole logits, autograd, one formula, all of it in fp64. For reading, for checking, for small inputs.

In fp32 this very formula loses digits where the distributions nearly agree, which a reference may not.
"""

import math

import torch
from torch.autograd.function import FunctionCtx

from papergym.kernels.linear_jsd import JsdOptions, JsdOutput
from papergym.kernels.linear_jsd.divergences import jsd
from papergym.kernels.projection import accumulation_dtype


def linear_jsd(
    student_hidden: torch.Tensor,
    student_head: torch.Tensor,
    teacher_hidden: torch.Tensor,
    teacher_head: torch.Tensor,
    mask: torch.Tensor | None,
    options: JsdOptions,
) -> JsdOutput:
    """As fused_linear_jsd, on checked arguments. Memory: about ten [N, V] tensors of fp64."""
    rows = slice(None) if mask is None else mask
    dtype = accumulation_dtype(student_hidden, student_head, teacher_hidden, teacher_head)
    student = _logprobs(student_hidden[rows], student_head, options.temperature)
    with torch.no_grad():
        teacher = _logprobs(teacher_hidden[rows], teacher_head, options.temperature)

    entries = _entries(student, teacher, options)
    with torch.no_grad():
        cut = entries > options.element_clip if options.element_clip is not None else torch.zeros_like(entries, dtype=torch.bool)
        top1_agree = student.gather(-1, teacher.argmax(-1, keepdim=True)).squeeze(-1) == student.amax(-1)
    if options.element_clip is not None:
        divergence = entries.masked_fill(cut, options.element_clip).sum(-1)
    else:
        balance = options.divergence.balance(options.beta)
        divergence = (entries + balance * (student.exp() - teacher.exp()).detach()).sum(-1)
    nats = (values.to(dtype) for values in (divergence, _entropy(student.detach()), _entropy(teacher)))
    outputs = (*nats, top1_agree, cut.sum(-1))
    return JsdOutput(*outputs) if mask is None else JsdOutput(*(_scatter(values, mask) for values in outputs))


def _logprobs(hidden: torch.Tensor, head: torch.Tensor, temperature: float) -> torch.Tensor:
    return _LogSoftmax.apply(hidden.double() @ head.double().T / temperature)  # [N, V]


class _LogSoftmax(torch.autograd.Function):
    """log_softmax over the last dimension.

    Its gradient g - q Σ g is also that of g - c q for any c. Here c makes the likeliest token's entry 0: where q is nearly 1 that token's
    own gradient is the sum of the others' tiny ones, which no difference of two numbers near 1 sees.
    """

    @staticmethod
    def forward(ctx, logits):
        logprobs = torch.log_softmax(logits, dim=-1)
        ctx.save_for_backward(logprobs)
        return logprobs

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        q = ctx.saved_tensors[0].exp()
        likeliest = q.argmax(-1, keepdim=True)
        score = gradient.gather(-1, likeliest) / q.gather(-1, likeliest)
        rest = (gradient - score * q).scatter(-1, likeliest, 0)
        return rest - q * rest.sum(-1, keepdim=True)


def _entries(student: torch.Tensor, teacher: torch.Tensor, options: JsdOptions) -> torch.Tensor:
    """f [N, V]. The built-in divergence is written out here once more, so that its fast form has something to be checked against."""
    if options.divergence.entries is jsd:
        return _plain_jsd(student, teacher, options.beta)
    value, derivative, *shift = options.divergence.entries(student.detach(), teacher, options.beta)
    if shift:
        derivative = derivative + shift[0] * student.detach().exp()
    return value + derivative * (student - student.detach())  # equal to value, with its derivative


def _plain_jsd(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    if beta == 0:
        return _times(teacher.exp(), teacher - student)
    if beta == 1:
        return _times(student.exp(), student - teacher)
    mixture = torch.logaddexp(teacher + math.log(beta), student + math.log1p(-beta))
    return beta * _times(teacher.exp(), teacher - mixture) + (1 - beta) * _times(student.exp(), student - mixture)


def _times(probability: torch.Tensor, log_ratio: torch.Tensor) -> torch.Tensor:
    """probability · log_ratio, and 0 with gradient 0 where the probability is 0, whatever the ratio is."""
    absent = probability == 0
    return probability * log_ratio.masked_fill(absent, 0)


def _entropy(logprobs: torch.Tensor) -> torch.Tensor:
    return -_times(logprobs.exp(), logprobs).sum(-1)


def _scatter(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The values [n] of the rows that the mask keeps, at their places in [N], zero elsewhere."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)
