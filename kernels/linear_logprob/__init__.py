"""Log-probability of given tokens and entropy of their distributions, straight from hidden states and the language-model head.

Legend: N token positions (rows), H hidden width, V vocabulary.
"""

from dataclasses import dataclass

from torch import Tensor  # `torch` here is the backend's submodule

from papergym.kernels.checks import check_positive, check_projection, check_rows, check_targets, find_backend

BACKENDS = {
    "reference": "papergym.kernels.linear_logprob.reference:linear_logprob",
    "torch": "papergym.kernels.linear_logprob.torch:linear_logprob",
    "triton": "papergym.kernels.linear_logprob.triton:linear_logprob",
}


@dataclass(frozen=True)
class LogprobOutput:
    """logprob [N] = log q(target), entropy [N] = −Σ q log q; fp32 (fp64 for fp64 inputs), nats, both differentiable, also jointly."""

    logprob: Tensor
    entropy: Tensor


def fused_linear_logprob(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    *,
    temperature: float = 1.0,
    backend: str = "auto",
) -> LogprobOutput:
    """log q(target) and entropy of q = softmax(hidden · headᵀ / temperature), row by row.

    hidden [N, H], head [V, H]: fp32, bf16, fp16 or fp64, any strides, one device. targets [N]: an integer dtype, each in [0, V).
    Gradients reach hidden and head, each only if it requires one; backward recomputes the logits, so forward keeps nothing of width V.
    backend: "triton" (GPU), "torch" (row-chunked), "reference" (autograd on the whole [N, V]), "auto" (triton if it can run, else torch).

    Raises InputError, a ValueError, if shapes, dtypes, devices or targets do not fit.
    """
    check_projection("hidden", hidden, "head", head)
    check_rows("hidden", hidden, "targets", targets)
    check_targets("targets", targets, "head", head)
    check_positive("temperature", temperature)
    run = find_backend(backend, BACKENDS, hidden, head)
    return run(hidden, head, targets.long(), float(temperature))
