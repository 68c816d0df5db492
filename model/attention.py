"""Rotary position embeddings and the two masks of training: causal, and causal inside each sequence of a packed batch.

Shapes: B batch, T tokens, Hq query heads, Hkv key and value heads, D head_dim.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# attend(layer index, query [B,Hq,T,D], key [B,Hkv,T,D], value [B,Hkv,T,D]) -> [B,Hq,T,D]; query and key after QK-norm and RoPE
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class RotaryTable:
    """cos and sin of every position, computed in fp32 once per device and dtype.

    Not a buffer: a buffer would be rounded with the model's weights and stay rounded after a cast back, and it would have to
    be filled by hand in a model that was built on the meta device.
    """

    def __init__(self, head_dim: int, theta: float, max_positions: int) -> None:
        self.head_dim, self.theta, self.max_positions = head_dim, theta, max_positions
        self._tables: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __call__(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin, each [max_positions, D]. The first half of sin is negated, ready for `rotate`."""
        if (device, dtype) not in self._tables:
            # A table made in inference mode, by a sampler, could not be used in training.
            with torch.inference_mode(False), torch.no_grad():
                self._tables[device, dtype] = self._compute(device, dtype)
        return self._tables[device, dtype]

    def _compute(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        angles = torch.outer(torch.arange(self.max_positions, dtype=torch.float32, device=device), 1.0 / self.theta**exponents)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in the half-rotation layout of the Hugging Face models: dimension i turns with dimension i + D/2. x [B,H,T,D]."""
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)


def causal_attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every token sees itself and those before it. A batch padded on the right needs no mask: padding comes after every real token."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def packed_attention(lengths: list[int]) -> Attend:
    """Causal attention inside each of the sequences that lie one after the other in a batch of one."""

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sequences = zip(query.split(lengths, dim=2), key.split(lengths, dim=2), value.split(lengths, dim=2))
        return torch.cat([causal_attention(layer, q, k, v) for q, k, v in sequences], dim=2)

    return attend
