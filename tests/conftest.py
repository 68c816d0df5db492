"""Fixtures that several folders' tests share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """tiny_checkpoint(architecture="qwen3", seed=0, **overrides) -> a Hugging Face directory that transformers itself wrote, fp32.

    overrides: fields of the architecture's transformers configuration. Every weight is random, biases and norms included.
    Directories are shared by the session: read them, don't write into them.
    """
    made: dict[str, Path] = {}

    def make(architecture: str = "qwen3", seed: int = 0, **overrides: Any) -> Path:
        key = json.dumps([architecture, seed, overrides], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp(architecture)
            _write_checkpoint(made[key], architecture, seed, overrides)
        return made[key]

    return make


def _write_checkpoint(path: Path, architecture: str, seed: int, overrides: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields: dict[str, Any] = {
        "vocab_size": 160,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if architecture == "qwen3":
        fields["head_dim"] = 12
    with torch.random.fork_rng(devices=[]):  # building draws from the global generator
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **fields | overrides), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 0.2 if "embed" in name or weight.ndim == 1 else 1.5 * weight.shape[1] ** -0.5
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale + ("norm" in name))
    model.save_pretrained(path)
