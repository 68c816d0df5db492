import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from papergym.errors import InputError
from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM

QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 28,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}
# Qwen3-30B-A3B, as published.
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}
QWEN2 = QWEN3 | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
LLAMA = QWEN3 | {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 48,
    "llama.feed_forward_length": 80,
    "llama.attention.head_count": 6,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 5e5,
    "llama.vocab_size": 97,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.eot_token_id": 7,
}


def without(mapping, *names):
    return {name: value for name, value in mapping.items() if name not in names}


def test_reads_the_published_configuration_of_qwen3():
    config = ModelConfig.from_hf(QWEN3, {"eos_token_id": [151645, 151643]})
    assert config == ModelConfig(
        architecture="qwen3",
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        rms_norm_eps=1e-6,
        max_position_embeddings=40960,
        rope_theta=1e6,
        tie_word_embeddings=True,
        eos_token_ids=(151645, 151643),
        bos_token_id=151643,
    )
    assert config.qk_norm and not config.attention_output_bias


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5},
        {"rope_theta": 5e5, "rope_scaling": None},
        {"rope_theta": 5e5, "rope_scaling": {"type": "default"}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
        {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 1e4},  # the newer field wins, as in transformers
    ],
)
def test_reads_both_forms_of_the_rotary_base(rope):
    assert ModelConfig.from_hf(without(QWEN3, "rope_theta", "rope_scaling") | rope).rope_theta == 5e5


def test_defaults_are_those_of_transformers():
    bare = ("rope_theta", "rope_scaling", "head_dim", "num_key_value_heads", "tie_word_embeddings", "attention_bias", "architectures")
    llama, qwen3 = ModelConfig.from_hf(without(LLAMA, *bare)), ModelConfig.from_hf(without(QWEN3, *bare) | {"hidden_size": 512})
    assert (llama.rope_theta, llama.head_dim, llama.num_key_value_heads, llama.tie_word_embeddings) == (10000.0, 64, 16, False)
    assert qwen3.head_dim == 128


def test_biases_follow_the_architecture():
    qwen2 = ModelConfig.from_hf(QWEN2)
    assert qwen2.attention_bias and not qwen2.attention_output_bias and not qwen2.mlp_bias
    llama = ModelConfig.from_hf(LLAMA | {"attention_bias": True, "mlp_bias": True})
    assert llama.attention_bias and llama.attention_output_bias and llama.mlp_bias


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [({"eos_token_id": 5}, 2, (5,)), ({"eos_token_id": [5, 6]}, 2, (5, 6)), ({}, [2, 3], (2, 3)), (None, 2, (2,)), (None, None, ())],
)
def test_stop_ids_come_from_the_generation_configuration_first(generation, config, expected):
    assert ModelConfig.from_hf(QWEN3 | {"eos_token_id": config}, generation).eos_token_ids == expected


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM"),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, "num_experts is missing"),
        (EXPERTS | {"num_experts_per_tok": 129}, "num_experts_per_tok is 129"),
        (EXPERTS | {"moe_intermediate_size": 0}, "moe_intermediate_size is 0"),
        ({"architectures": None, "model_type": "gpt2"}, "gpt2"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, "llama3"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}, "4096"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "28"}, "num_hidden_layers is '28'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3"),
        ({"head_dim": 63}, "head_dim is 63"),
    ],
)
def test_names_what_is_not_supported(change, named):
    with pytest.raises(InputError, match=named):
        ModelConfig.from_hf(QWEN3 | change)


ODD_VALUES = ["x", ["x"], {"a": 1}, -1, 1.5, True, float("nan"), [None], [[1]]]


@pytest.mark.parametrize("source", [QWEN3, QWEN3 | EXPERTS, QWEN2])
def test_a_field_of_any_other_kind_is_read_or_refused_by_name(source):
    """Every field of a config.json replaced by values of every JSON type: never another error than the sentence."""
    refused = 0
    for name in (*source, "quantization_config", "rope_parameters", "layer_types", "mlp_only_layers", "bos_token_id"):
        for value in ODD_VALUES:
            try:
                ModelConfig.from_hf(source | {name: value})
            except InputError as error:
                refused += name in str(error) or name in ("architectures", "rope_scaling", "rope_parameters", "layer_types")
    assert refused > 60


def test_a_sliding_window_that_no_layer_uses_is_accepted():
    ModelConfig.from_hf(QWEN2 | {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 28})
    ModelConfig.from_hf(QWEN2 | {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 0})


def test_reads_gguf_metadata():
    config = ModelConfig.from_gguf(GGUF, {"token_embd.weight", "blk.0.attn_q.weight"})
    assert config == ModelConfig("llama", 97, 48, 80, 2, 6, 2, 8, 1e-5, 64, rope_theta=5e5, tie_word_embeddings=True, eos_token_ids=(2, 7))
    other = ModelConfig.from_gguf(GGUF | {"llama.attention.key_length": 24}, {"output.weight", "blk.0.attn_q.bias"})
    assert (other.head_dim, other.tie_word_embeddings, other.attention_bias) == (24, False, True)


@pytest.mark.parametrize(
    ("change", "tensors", "named"),
    [
        ({"general.architecture": "gemma3"}, (), "gemma3"),
        ({"llama.rope.scaling.type": "yarn"}, (), "yarn"),
        ({"llama.rope.dimension_count": 4}, (), "rope.dimension_count 4"),
        ({"split.count": 3}, (), "split.count 3"),
        ({"llama.expert_count": 8}, (), "expert_count 8"),
        ({"llama.attention.head_count": [6, 4]}, (), r"head_count is \[6, 4\]"),
        ({"llama.block_count": None}, (), "llama.block_count is missing"),
        ({}, ("rope_freqs.weight",), "rope_freqs.weight"),
    ],
)
def test_names_what_is_not_supported_in_gguf(change, tensors, named):
    with pytest.raises(InputError, match=named):
        ModelConfig.from_gguf(GGUF | change, tensors)


MIXED = QWEN3 | EXPERTS | {"num_hidden_layers": 5, "num_experts": 16, "decoder_sparse_step": 2, "mlp_only_layers": [3]}


@pytest.mark.parametrize("source", [QWEN3, QWEN2, LLAMA | {"attention_bias": True, "mlp_bias": True}, QWEN3 | EXPERTS, MIXED])
def test_the_written_configuration_reads_back_the_same(source):
    config = ModelConfig.from_hf(source)
    assert ModelConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize("source", [QWEN3, QWEN2, LLAMA | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}, MIXED])
def test_counts_parameters_as_the_module_has_them(source):
    config = ModelConfig.from_hf(source)
    with torch.device("meta"):
        model = CausalLM(config)
    assert config.num_parameters() == sum(weight.numel() for weight in model.parameters())
    inside = [weight.numel() for name, weight in model.named_parameters() if "embed_tokens" not in name and "lm_head" not in name]
    assert config.num_parameters(embeddings=False) == sum(inside)


@pytest.mark.parametrize(
    ("shape", "tied", "total", "without_embeddings"),  # the last two as the model cards say them, in billions
    [
        ((1024, 3072, 28, 16), True, 0.6, 0.44),
        ((2048, 6144, 28, 16), True, 1.7, 1.4),
        ((2560, 9728, 36, 32), True, 4.0, 3.6),
        ((4096, 12288, 36, 32), False, 8.2, 6.95),
        ((5120, 17408, 40, 40), False, 14.8, 13.2),
        ((5120, 25600, 64, 64), False, 32.8, 31.2),
    ],
)
def test_the_published_sizes_of_qwen3(shape, tied, total, without_embeddings):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    config = ModelConfig.from_hf(QWEN3 | dict(zip(names, shape)) | {"tie_word_embeddings": tied})
    with torch.device("meta"):
        model = CausalLM(config)
    assert sum(weight.numel() for weight in model.parameters()) == config.num_parameters()
    assert round(config.num_parameters() / 1e9, 1) == total
    assert config.num_parameters(embeddings=False) / 1e9 == pytest.approx(without_embeddings, abs=0.051)


def test_the_published_sizes_of_the_mixture():
    config = ModelConfig.from_hf(QWEN3 | EXPERTS)
    assert round(config.num_parameters() / 1e9, 1) == 30.5
    assert round(config.num_parameters(embeddings=False) / 1e9, 1) == 29.9
    assert config.flops_per_token(1) / 2e9 == pytest.approx(3.3 - 151936 * 2048 / 1e9, abs=0.1)  # 3.3 with the embedding
    with torch.device("meta"):
        layer = CausalLM(dataclasses.replace(config, num_hidden_layers=1))
    assert sum(weight.numel() for weight in layer.parameters()) == dataclasses.replace(config, num_hidden_layers=1).num_parameters()


def test_counts_flops_as_torch_counts_them():
    config = dataclasses.replace(ModelConfig.from_hf(QWEN3), num_hidden_layers=2)
    tokens = 32
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = CausalLM(config)
        model(torch.zeros(1, tokens, dtype=torch.int64)) @ model.head_weight.T
    # torch counts attention over the whole square; a causal token sees (T + 1) / 2 tokens on average.
    unseen = 2 * 4 * 16 * 128 * (tokens - (tokens + 1) / 2)
    assert config.flops_per_token(tokens) + unseen == counter.get_total_flops() / tokens
    assert config.flops_per_token(tokens) - config.flops_per_token(tokens, head=False) == 2 * 151936 * 1024


@pytest.mark.parametrize("generation", [[1], {"eos_token_id": "a"}, {"eos_token_id": [151645, "a"]}])
def test_stop_ids_that_are_no_ids_are_refused(generation):
    with pytest.raises(InputError, match=r"JSON object|eos_token_id 'a'"):
        ModelConfig.from_hf(QWEN3, generation)
