"""`papergym merge`: an adapter added to its base model, in a directory that transformers and we load."""

import shutil

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from papergym.cli import main
from papergym.model.lora import LoraConfig, apply_lora, lora_parameters, save_adapter
from papergym.model.weights import load_model, save_model


@pytest.fixture
def adapted(tiny_policy, tmp_path):
    """A model with a random adapter, which is saved in tmp_path/adapter."""
    model = apply_lora(load_model(tiny_policy, dtype=torch.float32), LoraConfig(rank=2, alpha=8))
    torch.manual_seed(0)
    for weight in lora_parameters(model):
        torch.nn.init.normal_(weight, std=0.2)
    save_adapter(model, tmp_path / "adapter")
    return model


def merge(*arguments):
    return CliRunner().invoke(main, ["merge", *map(str, arguments)])


def test_a_merged_model_is_the_adapted_one_to_transformers_and_to_us(adapted, tiny_policy, tmp_path):
    out = tmp_path / "merged"
    done = merge("--model", tiny_policy, "--adapter", tmp_path / "adapter", "--out", out, "--dtype", "float32")
    assert done.exit_code == 0, done.output
    ids = torch.arange(40)[None]
    logits = adapted(ids) @ adapted.head_weight.T
    torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(out)(ids).logits, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(load_model(out, dtype=torch.float32)(ids), adapted(ids), rtol=1e-4, atol=1e-4)
    assert AutoTokenizer.from_pretrained(out)("Silo")["input_ids"] == AutoTokenizer.from_pretrained(tiny_policy)("Silo")["input_ids"]


def test_weights_beyond_a_file_go_into_several(adapted, tmp_path):
    save_model(adapted, tmp_path / "shards", shard_bytes=20000)
    save_model(adapted, tmp_path / "whole")
    assert len(list((tmp_path / "shards").glob("model-*-of-*.safetensors"))) > 3
    shards, whole = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("shards", "whole"))
    assert shards.keys() == whole.keys() and all(torch.equal(shards[name], whole[name]) for name in whole)


def test_what_can_not_be_merged_is_said(adapted, tiny_policy, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/config.json").write_text("{}")
    done = merge("--model", tiny_policy, "--adapter", tmp_path / "adapter", "--out", tmp_path / "taken")
    assert done.exit_code == 2 and "taken: already holds files" in done.output
    shutil.rmtree(tmp_path / "adapter")
    done = merge("--model", tiny_policy, "--adapter", tmp_path / "adapter", "--out", tmp_path / "merged")
    assert done.exit_code == 2 and "adapter" in done.output and not (tmp_path / "merged").exists()
