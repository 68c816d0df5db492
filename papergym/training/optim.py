"""The optimizer and its learning rate, which is a function of the step alone, so that a resume has no schedule state to restore."""

import math
from collections.abc import Iterable

import torch

from papergym.training.config import OptimTable


def learning_rate(table: OptimTable, step: int, total_steps: int) -> float:
    """The learning rate of optimizer step `step` (from 1): linear warm-up, then constant, or linear or cosine decay towards 0."""
    if step <= table.warmup_steps:
        return table.lr * step / table.warmup_steps
    progress = (step - 1 - table.warmup_steps) / max(1, total_steps - table.warmup_steps)
    factor = {"constant": 1.0, "linear": 1.0 - progress, "cosine": 0.5 * (1.0 + math.cos(math.pi * progress))}
    return table.lr * factor[table.schedule]


def build_optimizer(table: OptimTable, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter) over the trainable parameters."""
    return torch.optim.AdamW(parameters, lr=table.lr, betas=(table.beta1, table.beta2), eps=table.eps, weight_decay=table.weight_decay)
