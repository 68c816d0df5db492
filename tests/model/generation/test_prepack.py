"""Reordered and joined weights: the same products as the layers themselves, for as long as the block lasts."""

import random

import pytest
import torch
from torch import nn

from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM, RMSNorm
from papergym.model.generation.prepack import _packing, prepacked
from papergym.model.lora import PROJECTIONS, LoraConfig, adapters_disabled, apply_lora, lora_parameters

SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2}


def make(architecture: str, targets: tuple[str, ...], dtype: torch.dtype) -> CausalLM:
    torch.manual_seed(0)
    config = ModelConfig(
        architecture=architecture,
        **SIZES,
        num_hidden_layers=1,
        head_dim=16,
        rms_norm_eps=1e-6,
        max_position_embeddings=32,
        attention_bias=architecture == "qwen2",
    )
    model = CausalLM(config).to(dtype)
    if targets:
        apply_lora(model, LoraConfig(rank=4, alpha=12.0, target_modules=targets))
        for parameter in lora_parameters(model):
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("architecture", "targets"),
    [
        ("qwen3", ()),
        ("qwen3", PROJECTIONS),
        ("qwen2", ("k_proj", "up_proj")),
    ],
)
def test_every_layer_gives_what_it_gave(architecture, targets, dtype):
    """In any order of the layers, for one input after another, with and without the adapters; nothing is left behind."""
    if _packing(torch.zeros(1, dtype=dtype)) is None:
        pytest.skip(f"no compiler here, and no {dtype} products that want another layout")
    model = make(architecture, targets, dtype)
    norms = [name for name, module in model.model.named_modules() if isinstance(module, RMSNorm)]
    with torch.no_grad():
        for name in norms:
            nn.init.uniform_(model.model.get_submodule(name).weight, 0.5, 2.0)
    layers = {name: layer for name, layer in model.model.named_modules() if isinstance(layer, nn.Linear) and "lora" not in name}
    layers |= {name: model.model.get_submodule(name) for name in norms}
    widths = {name: layer.in_features if isinstance(layer, nn.Linear) else len(layer.weight) for name, layer in layers.items()}
    inputs = [{width: torch.randn(3, 1, width).to(dtype) for width in (16, 64, 160)} for _ in range(2)]
    bar = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    with torch.inference_mode():
        expected = [{name: layer(x[widths[name]]) for name, layer in layers.items()} for x in inputs]
        with prepacked(model) as head:
            for seed in range(8):
                for x, wanted in zip(inputs, expected):
                    for name in random.Random(seed).sample(list(layers), len(layers)):
                        torch.testing.assert_close(layers[name](x[widths[name]]), wanted[name], **bar)
            hidden = inputs[0][64]
            torch.testing.assert_close(head(hidden), hidden @ model.head_weight.T, **bar)
        assert all("forward" not in vars(layer) for layer in layers.values())
        if targets:
            with adapters_disabled(model), prepacked(model):
                name = "layers.0.self_attn.k_proj"
                x, layer = inputs[0][64], layers[name]
                base = nn.functional.linear(x, layer.weight, layer.bias)
                torch.testing.assert_close(layer(x), base, **bar)
                assert (expected[0][name] - base).norm() > 0.1 * base.norm()
