"""Recipes with numbers that no run can use and functions that no trainer can call: each is one sentence before a model is loaded."""

import pytest

from papergym.config import from_mapping
from papergym.distill.train import OpsdConfig
from papergym.errors import InputError
from papergym.rl.train import GrpoConfig
from papergym.training.loop import load_policy
from papergym.training.sft import SftConfig

ODD = """
def nothing():
    return None

def one(inputs):
    return None

number = 3
"""


def recipe(config, key, value):
    values = {"run": {"dir": "run", "steps": 2}, "model": {"path": "model"}, "data": {"train": "train.jsonl"}}
    table, name = key.split(".")
    return from_mapping(config, values | {table: values.get(table, {}) | {name: value}})


@pytest.mark.parametrize(
    ("config", "key", "value", "words"),
    [
        (SftConfig, "optim.lr", 1e300, "from 1e-30 to 1000"),
        (SftConfig, "optim.lr", 1001.0, "from 1e-30 to 1000"),
        (SftConfig, "optim.lr", 1e-300, "from 1e-30 to"),
        (SftConfig, "optim.eps", 1e300, "from 1e-30 to"),
        (SftConfig, "optim.max_grad_norm", 1e300, "from 1e-30 to"),
        (SftConfig, "lora.alpha", 1e308, "to 1e"),
        (SftConfig, "lora.rank", 10**12, "from 1 to 65536"),
        (GrpoConfig, "lora.alpha", 1e308, "to 1e"),
        (SftConfig, "model.device", "meta", "holds no numbers"),
        (SftConfig, "model.device", "meta:0", "holds no numbers"),
        (SftConfig, "model.path", "a\0b", "the character NUL"),
        (SftConfig, "run.dir", "a\0b", "the character NUL"),
        (SftConfig, "data.prompts_per_step", 10**12, "from 1 to 1e"),
        (SftConfig, "distributed.timeout", 1e300, "from 0.001 to"),
        (OpsdConfig, "opsd.samples_per_prompt", 10**12, "from 1 to 1e"),
        (OpsdConfig, "opsd.temperature", 1e-300, "from 1e-30 to"),
        (OpsdConfig, "opsd.element_clip", 1e300, "from 1e-30 to"),
        (
            OpsdConfig,
            "opsd.teacher",
            "odd_parts:nothing",
            "teacher 'odd_parts:nothing': it takes (), where a function of (model) is needed",
        ),
        (OpsdConfig, "opsd.teacher", "odd_parts:number", "teacher 'odd_parts:number': it is of the type int"),
        (
            OpsdConfig,
            "opsd.divergence",
            "odd_parts:one",
            "divergence 'odd_parts:one': it takes (inputs), where a function of (student_logprobs",
        ),
        (GrpoConfig, "grpo.group_size", 10**12, "from 1 to 1e"),
        (GrpoConfig, "grpo.correction_cap", 1e300, "from 1e-30 to"),
        (GrpoConfig, "grpo.clip_high", 1e300, "from 0 to 1e+30"),
        (GrpoConfig, "grpo.kl_weight", 1e300, "from 0 to 1e+30"),
        (GrpoConfig, "grpo.loss", "odd_parts:nothing", "policy loss 'odd_parts:nothing': it takes (), where a function of (inputs)"),
        (GrpoConfig, "grpo.loss", "odd_parts:number", "policy loss 'odd_parts:number': it is of the type int"),
        (GrpoConfig, "grpo.loss", ":one", "unknown policy loss ':one'"),
        (GrpoConfig, "grpo.loss", "..odd_parts:one", "unknown policy loss"),
        (GrpoConfig, "grpo.advantage", "odd_parts:one", "advantage estimator 'odd_parts:one': it takes (inputs), where"),
    ],
)
def test_what_no_run_can_use_is_named(tmp_path, monkeypatch, config, key, value, words):
    (tmp_path / "odd_parts.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as error:
        recipe(config, key, value)
    assert words in str(error.value) and (key in str(error.value) or "odd_parts" in str(error.value) or "policy loss" in str(error.value))


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (SftConfig, "optim.lr", 1e-5),
        (SftConfig, "lora.alpha", 128),
        (SftConfig, "model.device", "cuda:1"),
        (OpsdConfig, "opsd.element_clip", 1e-6),
        (GrpoConfig, "grpo.clip_high", 0),
        (GrpoConfig, "grpo.loss", "odd_parts:one"),
    ],
)
def test_what_a_run_can_use_is_taken(tmp_path, monkeypatch, config, key, value):
    (tmp_path / "odd_parts.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)
    table, name = key.split(".")
    assert getattr(getattr(recipe(config, key, value), table), name) == value


def test_an_adapter_of_absurd_scale_is_named(tmp_path, tiny_policy):
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 1e300, "target_modules": ["q_proj"]}')
    config = recipe(SftConfig, "model.adapter", str(tmp_path))
    with pytest.raises(InputError, match=r"lora\.alpha' has the value 1e\+300"):
        load_policy(config)
