"""The operation written plainly: whole logits and autograd, in fp64. For reading, for checking, and for small inputs."""

import torch

from papergym.kernels.linear_logprob import LogprobOutput
from papergym.kernels.projection import accumulation_dtype


def linear_logprob(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, temperature: float) -> LogprobOutput:
    """As fused_linear_logprob, on checked arguments. Memory: about six [N, V] tensors of fp64."""
    dtype = accumulation_dtype(hidden, head)
    logprobs = torch.log_softmax(hidden.double() @ head.double().T / temperature, dim=-1)  # [N, V]
    probs = logprobs.exp()
    entropy = -(probs * logprobs.masked_fill(probs == 0, 0)).sum(-1)
    return LogprobOutput(logprobs.gather(-1, targets[:, None]).squeeze(-1).to(dtype), entropy.to(dtype))
