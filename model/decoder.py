"""The decoder of Qwen3 (dense or with experts), Qwen2 and Llama in plain PyTorch. Modules and parameters carry Hugging Face names.

Shapes: B batch, T tokens, H hidden_size, V vocab_size, Hq query heads, Hkv key and value heads, D head_dim.
"""

from itertools import pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from papergym.errors import InputError
from papergym.model.attention import Attend, RotaryTable, causal_attention, packed_attention, rotate, torch_varlen
from papergym.model.config import ModelConfig
from papergym.model.linear import Linear
from papergym.model.mlp import feed_forward

# What "selective" checkpointing keeps.
_PRODUCTS = [
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.papergym.linear_through_fp32.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    *([torch.ops.torch_attn._varlen_attn.default] if torch_varlen() is not None else []),
]


class Cache(Protocol):
    """What a sampler gives the decoder: it stores keys and values, and owns the masking."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [B,Hq,T,D], key and value [B,Hkv,T,D], after QK-norm and RoPE -> [B,Hq,T,D]."""


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last dimension, with fp32 statistics."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query self-attention with RoPE, and for Qwen3 an RMSNorm on each query and key head."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.head_dim = layer, config.head_dim
        queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj = Linear(config.hidden_size, queries, bias=config.attention_bias)
        self.k_proj = Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.v_proj = Linear(config.hidden_size, keys, bias=config.attention_bias)
        self.o_proj = Linear(queries, config.hidden_size, bias=config.attention_output_bias)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps) if config.qk_norm else nn.Identity()

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        heads = (*hidden.shape[:2], -1, self.head_dim)
        query = self.q_norm(self.q_proj(hidden).view(heads)).transpose(1, 2)  # [B, Hq, T, D]
        key = self.k_norm(self.k_proj(hidden).view(heads)).transpose(1, 2)  # [B, Hkv, T, D]
        value = self.v_proj(hidden).view(heads).transpose(1, 2)
        attended = attend(self.layer, rotate(query, cos, sin), rotate(key, cos, sin), value)
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP, each added to the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, layer)
        self.mlp = feed_forward(config, layer)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin, attend)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Decoder(nn.Module):
    """Embedding, layers and final norm: what `model.` prefixes in a checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class CausalLM(nn.Module):
    """A decoder with a language-model head that the caller applies, so that [B, T, V] logits need never exist.

    `activation_checkpointing` says what the backward pass recomputes instead of keeping it: "none"; "selective", all of a layer but its
    matrix products and attention; "full", the whole layer.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.activation_checkpointing = "none"
        self.model = Decoder(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._rotary = RotaryTable(config.head_dim, config.rope_theta, config.max_position_embeddings)

    @property
    def head_weight(self) -> Tensor:
        """[V, H]: logits are hidden @ head_weight.T. The embedding's own weight when the head is tied."""
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        cache: Cache | None = None,
        attend: Attend | None = None,
    ) -> Tensor:
        """Hidden states [B, T, H] after the final norm, in the weights' dtype.

        input_ids: [B, T] int64; pad on the right. positions: [B, T], each below max_position_embeddings; 0, 1, … by default.
        cu_seqlens: [n + 1] int boundaries 0 … T of sequences packed into a batch of one: attention stays inside each
        sequence and default positions restart. cache or attend: takes over attention; positions are then required.
        Raises InputError when a sequence is longer than max_position_embeddings, ValueError for arguments that don't fit together.
        """
        if input_ids.dim() != 2 or input_ids.numel() == 0 or input_ids.dtype not in (torch.int64, torch.int32):
            raise InputError(f"input_ids: int64 [B, T] with B and T from 1 is needed, not {input_ids.dtype} {list(input_ids.shape)}")
        if positions is not None and (positions.dim() != 2 or positions.shape[1] != input_ids.shape[1]):
            raise InputError(f"positions: [B, T] = {list(input_ids.shape)} as of input_ids is needed, not {list(positions.shape)}")
        lengths = [input_ids.shape[1]]
        if cache is not None:
            attend = cache.attend
        if attend is not None:
            if positions is None or cu_seqlens is not None:
                raise ValueError("with a cache or attend, positions are required and cu_seqlens is not allowed")
        elif cu_seqlens is not None:
            lengths = _packed_lengths(input_ids, cu_seqlens)
            attend = packed_attention(lengths)
        else:
            attend = causal_attention
        hidden = self.model.embed_tokens(input_ids)  # [B, T, H]
        cos, sin = self._rotary(hidden.device, hidden.dtype)
        if positions is not None:
            cos, sin = F.embedding(positions, cos)[:, None], F.embedding(positions, sin)[:, None]  # [B, 1, T, D]
        elif max(lengths) > self.config.max_position_embeddings:
            raise InputError(
                f"a sequence of {max(lengths)} tokens is longer than the model's context of {self.config.max_position_embeddings}"
            )
        else:
            cos, sin = (torch.cat([table[:length] for length in lengths]) for table in (cos, sin))  # [T, D]
        recompute = self.activation_checkpointing if cache is None and torch.is_grad_enabled() else "none"
        options: dict[str, Any] = {"context_fn": _keep_products} if recompute == "selective" else {}
        for layer in self.model.layers:
            if recompute == "none":
                hidden = layer(hidden, cos, sin, attend)
            else:
                hidden = checkpoint(layer, hidden, cos, sin, attend, use_reentrant=False, **options)
        return self.model.norm(hidden)


def _keep_products() -> tuple[Any, Any]:
    """The pair of contexts, for the forward pass and for computing it again, that `checkpoint` asks for."""
    return create_selective_checkpoint_contexts(_PRODUCTS)


def _packed_lengths(input_ids: Tensor, cu_seqlens: Tensor) -> list[int]:
    """Lengths of the packed sequences; one copy to the host a forward pass."""
    bounds = cu_seqlens.tolist()
    lengths = [end - start for start, end in pairwise(bounds)]
    batch, tokens = input_ids.shape
    if batch != 1 or not lengths or bounds[0] != 0 or bounds[-1] != tokens or min(lengths) < 1:
        raise ValueError(f"cu_seqlens must rise from 0 to the {tokens} tokens of a batch of one, not {bounds} for a batch of {batch}")
    return lengths
