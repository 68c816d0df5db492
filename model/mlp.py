"""The feed-forward part of a decoder layer: SwiGLU, dense or as a mixture of experts. Names are those of the Hugging Face models."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from papergym.model.config import ModelConfig
from papergym.model.linear import Linear


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x))."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(hidden)) * self.up_proj(hidden))


class MixtureOfExperts(nn.Module):
    """Every token passes the k experts that the router likes best, their outputs weighed by the router's probabilities."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.chosen, self.normalise = config.num_experts_per_tok, config.norm_topk_prob
        self.gate = Linear(config.hidden_size, config.num_experts, bias=False)
        self.experts = nn.ModuleList(MLP(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts))

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, -2)  # [N, H]
        probabilities = torch.softmax(self.gate(tokens), dim=-1, dtype=torch.float32)
        weights, experts = probabilities.topk(self.chosen, dim=-1)  # [N, k]
        if self.normalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        by_expert = experts.flatten().argsort(stable=True)  # the N · k pairs of token and expert, those of an expert side by side
        rows = by_expert // self.chosen
        counts = experts.flatten().bincount(minlength=len(self.experts)).tolist()
        inputs = tokens[rows].split(counts)
        outputs = torch.cat([expert(x) for expert, x in zip(self.experts, inputs, strict=True) if len(x)])
        weighted = outputs * weights.to(hidden.dtype).flatten()[by_expert, None]
        return torch.zeros_like(tokens).index_add_(0, rows, weighted).view_as(hidden)


def feed_forward(config: ModelConfig, layer: int) -> MLP | MixtureOfExperts:
    """What a layer of this configuration has."""
    if config.has_experts(layer):
        return MixtureOfExperts(config)
    return MLP(config.hidden_size, config.intermediate_size, config.mlp_bias)
