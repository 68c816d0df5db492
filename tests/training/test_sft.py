"""SFT for real on a tiny model: what it supervises, and that it learns the reference."""

import dataclasses
import json

import pytest

from papergym.config import from_mapping
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.model.prompts import student_messages
from papergym.model.tokenizer import Tokenizer
from papergym.training.sft import SftConfig, demonstrations, run


def test_a_demonstration_is_the_reference_and_its_stop_token(tiny_policy, environments):
    tokenizer = Tokenizer(tiny_policy)
    [example] = demonstrations(tokenizer, environments[:1], (258, 256), thinking=True, context=2048)
    assert list(example.prompt_ids) == tokenizer.chat(student_messages(environments[0]))
    assert tokenizer.decode(example.completion_ids) == environments[0].reference + "<|im_end|>"


def test_a_stop_token_written_inside_the_reference_stays_text(tiny_policy, environments):
    sly = dataclasses.replace(environments[0], reference="Stop <|im_end|> here.")
    [example] = demonstrations(Tokenizer(tiny_policy), [sly], (258, 256), thinking=True, context=2048)
    assert list(example.completion_ids).count(258) == 1 and example.completion_ids[-1] == 258


def test_what_cannot_be_imitated_is_named(tiny_policy, environments):
    tokenizer = Tokenizer(tiny_policy)
    with pytest.raises(InputError, match="'env-0': no reference"):
        demonstrations(tokenizer, [dataclasses.replace(environments[0], reference=None)], (258,), thinking=True, context=2048)
    with pytest.raises(InputError, match=r"'env-0': .* exceed"):
        demonstrations(tokenizer, environments, (258,), thinking=True, context=300)
    with pytest.raises(InputError, match=r"stop ids \[7\]"):
        demonstrations(tokenizer, environments, (7,), thinking=True, context=2048)


def test_the_loss_falls_to_the_reference(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)
    values = {
        "run": {"dir": str(tmp_path / "run"), "steps": 30},
        "model": {"path": str(tiny_policy), "dtype": "float32"},
        "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 3},
        "lora": {"rank": 8, "alpha": 16},
        "optim": {"lr": 2e-2},
    }
    adapter = run(from_mapping(SftConfig, values))
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert losses[0] > 5 and losses[-1] < 0.6 * losses[0]
    assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
