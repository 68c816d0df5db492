"""GGUF files of the Llama, Qwen2 and Qwen3 architectures, dequantised in memory with the `gguf` package.

llama.cpp rotates neighbouring pairs of dimensions in its Llama graph, so its converter reorders the rows of q and k of that
architecture (dimension i and i + D/2 become 2i and 2i + 1). They are put back here; Qwen files keep the Hugging Face order.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from torch import Tensor

from papergym.errors import InputError
from papergym.model.config import ModelConfig
from papergym.model.tensors import StoredTensor

_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def open_gguf(path: Path) -> GGUFReader:
    """Maps the file and parses its header. Raises InputError for a file that isn't GGUF or is cut off."""
    with open(path, "rb") as file:
        if (magic := file.read(4)) != b"GGUF":
            raise InputError(f"{path}: not a GGUF file (it starts with {magic!r})")
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError) as error:  # what reading past the end of the mapped file raises
        raise InputError(f"{path}: a damaged or incomplete GGUF file ({error}); fetch it again") from error


def read_metadata(reader: GGUFReader) -> dict[str, Any]:
    """The file's key-value pairs as Python values; arrays as lists."""
    return {name: field.contents() for name, field in reader.fields.items()}


def read_gguf(path: Path) -> tuple[ModelConfig, list[StoredTensor]]:
    """The configuration and the tensors, under their Hugging Face names and in the Hugging Face row order.

    Raises InputError naming the file and what it holds that isn't supported.
    """
    reader = open_gguf(path)
    try:
        config = ModelConfig.from_gguf(read_metadata(reader), {tensor.name for tensor in reader.tensors})
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return config, [_stored_tensor(tensor, config, path) for tensor in reader.tensors]


def _stored_tensor(tensor: ReaderTensor, config: ModelConfig, path: Path) -> StoredTensor:
    shape = tuple(int(size) for size in reversed(tensor.shape))  # GGUF lists the fastest-changing dimension first
    return StoredTensor(_hf_name(tensor.name), shape, path, _reader_of(tensor, config, path))


def _reader_of(tensor: ReaderTensor, config: ModelConfig, path: Path) -> Callable[..., Tensor]:
    def read(rows: slice = slice(None)) -> Tensor:
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise InputError(f"{path}: tensor {tensor.name!r} is quantised as {tensor.tensor_type.name}, which is not supported") from error
        weight = torch.from_numpy(np.require(values, np.float32, "W"))  # copies what is still the read-only map
        kind = tensor.name.split(".")[-2]
        if config.architecture == "llama" and kind in ("attn_q", "attn_k"):
            weight = unpermute(weight, config.num_attention_heads if kind == "attn_q" else config.num_key_value_heads)
        return weight[rows]

    return read


def unpermute(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head from interleaved rotary order (2i, 2i + 1) to half-rotation order (i, i + D/2). weight [heads · D, ...]."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _hf_name(name: str) -> str:
    """The Hugging Face name, or the name itself where there is none (it is reported as having no place)."""
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name):
        layer, kind, suffix = match.groups()
        return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}" if kind in _LAYER_NAMES else name
    kind, _, suffix = name.rpartition(".")
    return f"{_NAMES[kind]}.{suffix}" if kind in _NAMES else name
