"""Group-relative advantages: each answer's reward against the other answers to the same question (equation 3 of the paper)."""

from collections.abc import Callable

import torch
from torch import Tensor

from papergym.errors import InputError
from papergym.registry import resolve

EPSILON = 1e-6


def standardised(centred: Tensor, scored: Tensor, count: Tensor) -> Tensor:
    """(r − mean) / (std + 1e-6), with the unbiased standard deviation of the scored rewards. All [groups, group_size] or [groups, 1]."""
    variance = (centred**2).sum(dim=1, keepdim=True) / (count - 1).clamp(min=1)
    return centred / (variance.sqrt() + EPSILON)


def centred_only(centred: Tensor, scored: Tensor, count: Tensor) -> Tensor:
    """r − mean, without division by the spread."""
    return centred


ESTIMATORS = {"standardised": standardised, "centred": centred_only}


def find_estimator(name: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A built-in estimator, or module:function from (centred rewards, scored, count of scored) to advantages."""
    return resolve("advantage estimator", name, ESTIMATORS)


def group_advantages(rewards: Tensor, group_size: int, estimator: str = "standardised") -> Tensor:
    """Advantages [B] of rewards [B], at least float32; consecutive runs of group_size answer the same question.

    NaN marks an unscored answer: it does not enter its group's statistics and has advantage 0. A group whose scored rewards are all equal
    (or which has one scored answer) has advantage exactly 0, decided by max == min since float noise would be blown up by the division.
    Raises InputError when B is not a multiple of group_size.
    """
    if group_size < 1 or rewards.dim() != 1 or len(rewards) % group_size:
        raise InputError(f"rewards of shape {tuple(rewards.shape)} can't be cut into groups of {group_size}")
    function = find_estimator(estimator)
    values = rewards.to(torch.promote_types(rewards.dtype, torch.float32)).view(-1, group_size)
    scored = ~values.isnan()
    count = scored.sum(dim=1, keepdim=True)
    filled = values.masked_fill(~scored, 0.0)
    centred = (filled - filled.sum(dim=1, keepdim=True) / count.clamp(min=1)).masked_fill(~scored, 0.0)
    live = scored & ~zero_variance(rewards, group_size)[:, None]
    advantages = function(centred, scored, count)
    if advantages.shape != centred.shape:
        raise InputError(f"advantage estimator {estimator!r}: it returned {tuple(advantages.shape)}, not {tuple(centred.shape)}")
    return torch.where(live, advantages, 0.0).view(-1)


def zero_variance(rewards: Tensor, group_size: int) -> Tensor:
    """[groups] bool: groups whose scored rewards do not differ, which teach nothing."""
    values = rewards.view(-1, group_size)
    highest = values.masked_fill(values.isnan(), -torch.inf).amax(dim=1)
    lowest = values.masked_fill(values.isnan(), torch.inf).amin(dim=1)
    return highest <= lowest
