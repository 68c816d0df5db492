"""Rotary position embeddings and the masks of training: causal, packed sequences, and groups of completions that share their prompt.

Shapes: B batch, T tokens, Hq query heads, Hkv key and value heads, D head_dim.
"""

from collections.abc import Callable, Sequence

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


def shared_prefix_attention(groups: Sequence[tuple[int, Sequence[int]]]) -> Attend:
    """Attention over groups that lie one after the other in a batch of one, each a prompt and then its completions.

    groups: (prompt tokens, tokens of each completion). A completion sees the whole prompt and itself causally, no other completion, so that
    the prompt of a group is computed once. Positions of every completion go on from its prompt: the caller passes them.
    """
    parts = [length for prompt, completions in groups for length in (prompt, *completions)]

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sequences = zip(query.split(parts, dim=2), key.split(parts, dim=2), value.split(parts, dim=2))
        outputs = []
        for _, completions in groups:
            prompt_query, prompt_key, prompt_value = next(sequences)
            outputs.append(causal_attention(layer, prompt_query, prompt_key, prompt_value))
            for _ in completions:
                q, k, v = next(sequences)
                mask = _behind_prefix(q.shape[2], prompt_key.shape[2], q.device)
                keys, values = torch.cat((prompt_key, k), dim=2), torch.cat((prompt_value, v), dim=2)
                outputs.append(F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True))
        return torch.cat(outputs, dim=2)

    return attend


def _behind_prefix(tokens: int, prefix: int, device: torch.device) -> Tensor:
    """[tokens, prefix + tokens] bool: token t sees the prefix and the tokens up to itself."""
    return torch.ones(tokens, prefix + tokens, dtype=torch.bool, device=device).tril_(diagonal=prefix)
