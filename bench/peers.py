"""The same two operations as other code does them. Each takes hidden states and a frozen head and returns mean losses to call backward on.

divergence: (student [N, H], head [V, H], teacher [N, H], beta) -> mean over the rows. logprob: (hidden [N, H], head [V, H], targets [N]) ->
mean log-probability of the targets. Libraries are optional: what cannot be imported is absent, with the reason.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from papergym.kernels import cpu
from papergym.kernels.gemm import contract, project
from papergym.kernels.linear_jsd import fused_linear_jsd
from papergym.kernels.linear_logprob import fused_linear_logprob
from papergym.kernels.projection import exact_products
from papergym.planning.roofline import ROW_BYTES

GEMMS = "GEMMs alone"
CHUNK = 1024  # rows of Liger's chunked losses, its default
WORKSPACE_BYTES = 512 << 20
OTHER_VALUE = ("Liger GRPO",)  # same gradient, but another loss: at ratio 1 it is constant


def plain_jsd(student: torch.Tensor, head: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    """As a trainer writes it: logits in the inputs' dtype, log-softmax in fp32, the mixture by log-sum-exp."""
    q = F.log_softmax(_logits(student, head), -1)
    with torch.no_grad():
        p = F.log_softmax(_logits(teacher, head), -1)
    if beta in (0, 1):
        first, second = (p, q) if beta == 0 else (q, p)
        return (first.exp() * (first - second)).sum(-1).mean()
    mixture = torch.logsumexp(torch.stack((q + math.log1p(-beta), p + math.log(beta))), 0)
    return (beta * p.exp() * (p - mixture) + (1 - beta) * q.exp() * (q - mixture)).sum(-1).mean()


def plain_logprob(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-softmax in fp32 of logits in the inputs' dtype, then a gather."""
    return F.log_softmax(_logits(hidden, head), -1).gather(-1, targets[:, None]).mean()


def _logits(hidden: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """Rounded to the inputs' dtype, then at least fp32."""
    return (hidden @ head.T).to(torch.promote_types(hidden.dtype, torch.float32))


def gemms_alone(student: torch.Tensor, head: torch.Tensor, teacher: torch.Tensor, beta: float) -> None:
    """The three products that papergym's divergence needs, chunk by chunk. Nothing to call backward on."""
    rows, vocabulary, narrow = len(student), len(head), student.dtype
    step = max(1, min(rows, WORKSPACE_BYTES // (8 * vocabulary) // 128 * 128))
    logits = torch.empty(2 * step, vocabulary, dtype=torch.float32, device=head.device)
    gradient = torch.empty(rows, head.shape[1], dtype=torch.float32, device=head.device)
    with torch.no_grad(), exact_products(student, head):
        for start in range(0, rows, step):
            part = torch.cat((student[start : start + step], teacher[start : start + step]))
            count = len(part) // 2
            project(part, head, out=logits[: len(part)])
            slopes = logits[:count].view(narrow)[:, :vocabulary] if student.is_cuda else logits[:count]
            contract(slopes, head, out=gradient[start : start + count])


def logprob_gemms_alone(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> None:
    """The three products of the log-probability and its gradient: the logits, again in backward, and the contraction."""
    _logprob_gemms(hidden, head, backward=True)


def logprob_forward_gemm_alone(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor) -> None:
    _logprob_gemms(hidden, head, backward=False)


def _logprob_gemms(hidden: torch.Tensor, head: torch.Tensor, backward: bool) -> None:
    step = max(1, WORKSPACE_BYTES // (4 * len(head)))
    logits = torch.empty(min(step, len(hidden)), len(head), dtype=torch.float32, device=head.device)
    gradient = torch.empty(hidden.shape, dtype=torch.float32, device=head.device)
    with torch.no_grad(), exact_products(hidden, head):
        for part, out in zip(hidden.split(step), gradient.split(step)):
            project(part, head, out=logits[: len(part)])
            if backward:
                project(part, head, out=logits[: len(part)])
                slopes = logits[: len(part)].view(hidden.dtype)[:, : len(head)] if hidden.is_cuda else logits[: len(part)]
                contract(slopes, head, out=out)


def divergence_implementations(device: str) -> tuple[dict[str, Callable], dict[str, str]]:
    """Implementations by name, and why others are absent."""
    found: dict[str, Callable] = {}
    absent: dict[str, str] = {}
    for backend in ("triton", "torch") if device == "cuda" else ("torch",):
        found[f"papergym ({backend})"] = _ours_jsd(backend)
    found[GEMMS] = gemms_alone
    found["eager"] = plain_jsd
    found["torch.compile"] = torch.compile(plain_jsd, dynamic=False, fullgraph=True)  # fails where it would fall back to eager
    try:
        from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
        from liger_kernel.ops.fused_linear_jsd import LigerFusedLinearJSDFunction
    except ImportError as error:
        absent["Liger-Kernel"] = str(error)
    else:

        def liger_chunked(student, head, teacher, beta):
            loss = LigerFusedLinearJSDLoss(0.0, 1.0, beta=beta, compiled=device == "cuda", chunk_size=CHUNK)
            labels = torch.zeros(len(student), dtype=torch.long, device=student.device)
            return loss(student, head, teacher, head, labels)

        found["Liger chunked"] = liger_chunked
        if device == "cuda":
            found["Liger fused"] = lambda s, w, t, beta: LigerFusedLinearJSDFunction.apply(s, w, t, w, None, beta)
        else:
            absent["Liger fused"] = "its kernel needs a GPU"
    try:
        from trl.experimental.gkd import GKDTrainer
    except (ImportError, RuntimeError) as error:  # transformers' lazy imports raise RuntimeError
        absent["TRL"] = str(error).splitlines()[0]
    else:

        def trl(student, head, teacher, beta):
            with torch.no_grad():
                teacher_logits = _logits(teacher, head)[None]
            return GKDTrainer.generalized_jsd_loss(_logits(student, head)[None], teacher_logits, beta=beta) / len(student)

        found["TRL"] = trl
    return found, absent


def logprob_implementations(device: str) -> tuple[dict[str, Callable], dict[str, str]]:
    """As divergence_implementations. Liger's GRPO loss at ratio 1 and advantage −1 has the gradient of the mean log-probability."""
    found: dict[str, Callable] = {}
    absent: dict[str, str] = {}
    for backend in ("triton", "torch") if device == "cuda" else ("torch",):
        found[f"papergym ({backend})"] = _ours_logprob(backend)
    found[GEMMS] = logprob_gemms_alone
    found["eager"] = plain_logprob
    found["torch.compile"] = torch.compile(plain_logprob, dynamic=False, fullgraph=True)
    try:
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
    except ImportError as error:
        absent["Liger GRPO"] = str(error)
    else:

        def liger(hidden, head, targets):
            loss = LigerFusedLinearGRPOLoss(beta=0.0, compiled=device == "cuda", use_ref_model=False, loss_type="bnpo")
            sequences = len(hidden) // CHUNK if len(hidden) % CHUNK == 0 else 1
            ids = targets.view(sequences, -1)
            mask, advantages = torch.ones_like(ids), -torch.ones(sequences, device=hidden.device)
            return loss(hidden.view(*ids.shape, -1), head, ids, mask, advantages)[0]

        found["Liger GRPO"] = liger
    return found, absent


def logprob_forward_implementations(device: str) -> tuple[dict[str, Callable], dict[str, str]]:
    """Without gradient, as for old, reference and teacher passes. Nothing to call backward on."""

    def without_gradient(run: Callable) -> Callable:
        @torch.no_grad()
        def forward(hidden, head, targets):
            run(hidden, head, targets)

        return forward

    found, _ = logprob_implementations(device)
    others = {name: without_gradient(run) for name, run in found.items() if name != GEMMS and not name.startswith("Liger")}
    return others | {GEMMS: logprob_forward_gemm_alone}, {}


def unseen_bytes(operation: str, name: str, device: str) -> float | None:
    """Bytes an entry of the logits that an implementation moves outside PyTorch's operations; None where that is not known.

    The compiled row passes on a CPU: logits from memory once, since a row stays in cache, then what takes their place.
    """
    online = name == "papergym (triton)" and operation != "divergence"
    if name == "torch.compile" or (name.startswith("Liger") and device == "cuda") or online:
        return None
    if name == "papergym (triton)":
        return ROW_BYTES + 2.0
    if name == "papergym (torch)" and device == "cpu" and cpu.library() is not None:
        return {"divergence": 16.0, "logprob": 12.0, "logprob_forward": 4.0}[operation]
    return 0.0


def _ours_jsd(backend: str) -> Callable:
    return lambda student, head, teacher, beta: fused_linear_jsd(student, head, teacher, head, beta=beta, backend=backend).divergence.mean()


def _ours_logprob(backend: str) -> Callable:
    return lambda hidden, head, targets: fused_linear_logprob(hidden, head, targets, backend=backend).logprob.mean()
