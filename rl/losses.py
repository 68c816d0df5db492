"""Policy losses: a registered loss turns log-probs into per-token terms and per-token metrics, and an aggregation reduces them.

Shapes: [B, T] padded rows of completion tokens, mask True where a token was sampled; advantages [B]. Natural logarithms, nats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from papergym.errors import InputError
from papergym.registry import resolve
from papergym.training.aggregate import BatchCounts, token_weights


@dataclass(frozen=True)
class LossInputs:
    """What a loss may use. Entries outside the mask are 0."""

    logprobs: Tensor  # [B, T] log π_θ, differentiable
    ratio: Tensor  # [B, T] π_θ / π_old, per token or one per sequence, differentiable
    advantages: Tensor  # [B, 1]
    clip_low: float
    clip_high: float
    options: Mapping[str, Any]


Terms = tuple[Tensor, dict[str, Tensor]]  # per-token terms [B, T] to be minimised, per-token metrics [B, T]


def clipped_surrogate(inputs: LossInputs) -> Terms:
    """−min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A), the clipped objective of PPO and equation 3."""
    low, high = 1.0 - inputs.clip_low, 1.0 + inputs.clip_high
    unclipped = inputs.ratio * inputs.advantages
    clipped = inputs.ratio.clamp(low, high) * inputs.advantages
    return -torch.minimum(unclipped, clipped), {"clip_fraction": (clipped < unclipped).float()}


def clipped_weight(inputs: LossInputs) -> Terms:
    """−sg(clip(ρ)) A log π_θ (CISPO): the ratio is a bounded weight, so that no token loses its gradient to the clip."""
    weight = inputs.ratio.detach()
    bounded = weight.clamp(1.0 - inputs.clip_low, 1.0 + inputs.clip_high)
    return -bounded * inputs.advantages * inputs.logprobs, {"clip_fraction": (bounded != weight).float()}


@dataclass(frozen=True)
class PolicyLoss:
    """A loss by name: its terms, how they are reduced, and the options it knows; None where that is its own affair."""

    terms: Callable[[LossInputs], Terms]
    aggregation: str
    options: tuple[str, ...] | None = ()


LOSSES = {
    "grpo": PolicyLoss(clipped_surrogate, "sequence_mean"),
    "token_mean": PolicyLoss(clipped_surrogate, "token_mean"),
    "dr_grpo": PolicyLoss(clipped_surrogate, "constant", ("max_tokens",)),
    "dapo": PolicyLoss(clipped_surrogate, "token_mean"),  # its asymmetric range: clip_high=0.28
    "cispo": PolicyLoss(clipped_weight, "token_mean"),
}

KL_ESTIMATORS = {
    "k1": lambda x: -x,
    "k2": lambda x: x**2 / 2,
    "k3": lambda x: torch.expm1(x) - x,
}  # of x = log π_ref − log π_θ, per token


LARGEST_LOG_RATIO = 60.0


def find_loss(name: str) -> PolicyLoss:
    """A built-in loss, or one given as module:function from LossInputs to terms and metrics, reduced by the token mean."""
    loss = resolve("policy loss", name, LOSSES)
    return loss if isinstance(loss, PolicyLoss) else PolicyLoss(loss, "token_mean", options=None)


def importance_ratio(log_ratio: Tensor, mask: Tensor, kind: str) -> Tensor:
    """π_θ / π_old [B, T] from masked log-ratios [B, T]: each token's own, or its sequence's, which is broadcast to the tokens.

    Bounded by e^±60, so that its products with advantages and their gradients stay finite in float32.
    """
    if kind not in ("token", "sequence", "sequence_mean"):
        raise InputError(f"unknown ratio {kind!r}: use one of token, sequence, sequence_mean")
    if kind != "token":
        log_ratio = log_ratio.sum(dim=1, keepdim=True).expand_as(log_ratio)
    if kind == "sequence_mean":
        log_ratio = log_ratio / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def policy_terms(
    name: str,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ref_logprobs: Tensor | None = None,
    ratio: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl: str = "k3",
    kl_weight: float = 0.0,
    correction: Tensor | None = None,
    **options: Any,
) -> Terms:
    """Per-token terms [B, T], 0 outside the mask, and per-token metrics; see policy_loss for the arguments.

    correction: [B, T] constant weights of the surrogate that make up for a sampler that differs from the trainer.
    """
    _check_shapes(logprobs, old_logprobs, advantages, mask, ref_logprobs)
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    current = torch.where(mask, logprobs, 0.0).to(dtype)
    old = torch.where(mask, old_logprobs.detach(), 0.0).to(dtype)
    ratios = importance_ratio(current - old, mask, ratio)
    inputs = LossInputs(current, ratios, advantages.detach().to(dtype)[:, None], clip_low, clip_high, options)
    loss = find_loss(name)
    if loss.options is not None and (unknown := sorted(set(options) - set(loss.options))):
        allowed = ", ".join(loss.options) or "none"
        raise InputError(f"policy loss {name!r} has no option {unknown[0]!r}: allowed are {allowed}")
    terms, metrics = loss.terms(inputs)
    for label, value in {"terms": terms, **metrics}.items():
        if value.shape != logprobs.shape:
            raise InputError(f"policy loss {name!r}: its {label} have the shape {tuple(value.shape)}, not {tuple(logprobs.shape)}")
    if correction is not None:
        terms = terms * correction.detach().to(dtype)
    metrics = {"ratio": ratios.detach(), **metrics}
    if ref_logprobs is not None:
        estimator = resolve("KL estimator", kl, KL_ESTIMATORS)
        divergence = estimator(torch.where(mask, ref_logprobs.detach(), 0.0).to(dtype) - current)
        if kl_weight:
            terms = terms + kl_weight * divergence
        metrics["kl"] = divergence.detach()
    elif kl_weight:
        raise InputError(f"kl_weight is {kl_weight}, which needs the reference policy's log-probs; pass ref_logprobs or set kl_weight to 0")
    return torch.where(mask, terms, 0.0), {key: torch.where(mask, value, 0.0) for key, value in metrics.items()}


def policy_loss(
    name: str,
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ref_logprobs: Tensor | None = None,
    ratio: str = "token",
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    kl: str = "k3",
    kl_weight: float = 0.0,
    **options: Any,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of one rank's whole batch, normalised as in training, and its metrics as means over the unmasked tokens.

    name: "grpo" (mean over each sequence, then over sequences), "token_mean", "dr_grpo" (divided by a constant: option max_tokens, by
    default T), "dapo", "cispo", or module:function. logprobs, old_logprobs, ref_logprobs: [B, T] nats; advantages: [B]; mask: [B, T] bool.
    ratio: "token", "sequence" or "sequence_mean". kl: "k1", "k2" or "k3" of x = ref − logprob, added per token with kl_weight.
    Computed in at least float32. A sequence without unmasked tokens leaves the denominator; nothing unmasked gives 0 with zero gradient.
    options: the loss's own; a module:function finds them in LossInputs.options.
    Raises InputError on shapes that disagree and on unknown names and options.
    """
    settings = {"ratio": ratio, "clip_low": clip_low, "clip_high": clip_high, "kl": kl, "kl_weight": kl_weight}
    terms, metrics = policy_terms(name, logprobs, old_logprobs, advantages, mask, ref_logprobs=ref_logprobs, **settings, **options)
    counts = BatchCounts.of(mask.sum(dim=1).tolist())
    weights = token_weights(mask, find_loss(name).aggregation, counts, options.get("max_tokens", max(1, logprobs.shape[1])), terms.dtype)
    return (weights * terms).sum(), {key: value.sum() / max(1, counts.tokens) for key, value in metrics.items()}


def truncated_correction(logprobs: Tensor, sampled_logprobs: Tensor, mask: Tensor, cap: float = 2.0) -> Tensor:
    """min(π_trainer / π_sampler, cap) per token [B, T], constant: importance weights for a sampler with slightly other numbers."""
    return torch.where(mask, logprobs.detach() - sampled_logprobs, 0.0).exp().clamp(max=cap)


def _check_shapes(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, ref: Tensor | None) -> None:
    for name, tensor in (("old_logprobs", old), ("mask", mask), ("ref_logprobs", ref)):
        if tensor is not None and tensor.shape != logprobs.shape:
            raise InputError(f"{name} has the shape {tuple(tensor.shape)}, logprobs {tuple(logprobs.shape)}; they must agree")
    if logprobs.dim() != 2 or advantages.shape != logprobs.shape[:1]:
        raise InputError(f"logprobs [B, T] have the shape {tuple(logprobs.shape)} and advantages [B] {tuple(advantages.shape)}")
    if mask.dtype != torch.bool:
        raise InputError(f"mask has the dtype {mask.dtype}; torch.bool is needed")
