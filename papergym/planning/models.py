"""The shapes of the published Qwen3 models, so that a recipe can be planned before its model is at hand."""

from pathlib import Path

from papergym.errors import InputError
from papergym.model.config import ModelConfig
from papergym.model.weights import read_config, resolve_model_path

# name: hidden_size, intermediate_size, layers, query heads, key and value heads, tied head; from the config.json of each
_QWEN3 = {
    "Qwen3-0.6B": (1024, 3072, 28, 16, 8, True),
    "Qwen3-1.7B": (2048, 6144, 28, 16, 8, True),
    "Qwen3-4B": (2560, 9728, 36, 32, 8, True),
    "Qwen3-8B": (4096, 12288, 36, 32, 8, False),
    "Qwen3-14B": (5120, 17408, 40, 40, 8, False),
    "Qwen3-32B": (5120, 25600, 64, 64, 8, False),
    "Qwen3-30B-A3B": (2048, 6144, 48, 32, 4, False),
}
_EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True}


def published(name: str) -> ModelConfig:
    """The configuration of a published Qwen3 model. Raises InputError for another name."""
    if name not in _QWEN3:
        raise InputError(f"model {name!r} is not known by its name: use one of {', '.join(_QWEN3)}, or the path of a model on disk")
    hidden, intermediate, layers, heads, key_heads, tied = _QWEN3[name]
    experts = _EXPERTS if name.endswith("A3B") else {}
    return ModelConfig(
        architecture="qwen3_moe" if experts else "qwen3",
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=128,
        rms_norm_eps=1e-6,
        max_position_embeddings=40960,
        rope_theta=1e6,
        tie_word_embeddings=tied,
        eos_token_ids=(151645, 151643),
        bos_token_id=151643,
        **experts,
    )


def find_model(path: str) -> ModelConfig:
    """The configuration of what `model.path` names: a model on disk, or a published one by the last part of the path."""
    if not Path(path).exists() and Path(path).name in _QWEN3:
        return published(Path(path).name)
    place = resolve_model_path(path)
    if place.is_dir():
        return read_config(place)
    from papergym.model.gguf import read_gguf

    return read_gguf(place)[0]
