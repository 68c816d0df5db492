"""Reordered and joined weights: the same products as the layers themselves, for as long as the block lasts."""

import itertools

import pytest
import torch
from torch import nn

from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.generation.prepack import _worthwhile, prepacked
from papergym.model.lora import PROJECTIONS, LoraConfig, adapters_disabled, apply_lora, lora_parameters

SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2}


def make(architecture: str, targets: tuple[str, ...]) -> CausalLM:
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
    model = CausalLM(config).bfloat16()
    if targets:
        apply_lora(model, LoraConfig(rank=4, alpha=12.0, target_modules=targets))
        for parameter in lora_parameters(model):
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


@pytest.mark.skipif(not _worthwhile(torch.zeros(1, dtype=torch.bfloat16)), reason="this processor has no bf16 products")
@pytest.mark.parametrize(
    ("architecture", "targets"),
    [
        ("qwen3", ()),
        ("qwen3", PROJECTIONS),
        ("qwen2", ("k_proj", "up_proj")),
    ],
)
def test_every_layer_gives_what_it_gave(architecture, targets):
    """In any order of the layers, for one input after another, with and without the adapters; nothing is left behind."""
    model = make(architecture, targets)
    layers = {name: layer for name, layer in model.model.named_modules() if isinstance(layer, nn.Linear) and "lora" not in name}
    inputs = [{width: torch.randn(3, 1, width).bfloat16() for width in (64, 160)} for _ in range(2)]
    with torch.inference_mode():
        expected = [{name: layer(x[layer.in_features]) for name, layer in layers.items()} for x in inputs]
        with prepacked(model) as head:
            for order in itertools.islice(itertools.permutations(layers), 0, 5040, 719):
                for x, wanted in zip(inputs, expected):
                    for name in order:
                        torch.testing.assert_close(layers[name](x[layers[name].in_features]), wanted[name], rtol=2e-2, atol=2e-2)
            hidden = inputs[0][64]
            torch.testing.assert_close(head(hidden), hidden @ model.head_weight.T, rtol=2e-2, atol=2e-2)
        assert all("forward" not in vars(layer) for layer in layers.values())
        if targets:
            with adapters_disabled(model), prepacked(model):
                name = "layers.0.self_attn.k_proj"
                x, layer = inputs[0][64], layers[name]
                base = nn.functional.linear(x, layer.weight, layer.bias)
                torch.testing.assert_close(layer(x), base, rtol=2e-2, atol=2e-2)
                assert (expected[0][name] - base).norm() > 0.1 * base.norm()
