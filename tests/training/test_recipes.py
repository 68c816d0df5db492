"""Every recipe in configs/ runs for two steps, cut down in size and with all else as it says."""

import json
import math
from importlib import import_module
from pathlib import Path

import pytest
from safetensors.torch import load_file

from papergym.config import read_values
from papergym.environment import write_environments
from papergym.planning.plan import load_recipe

CONFIGS = Path(__file__).parent.parent.parent / "configs"
RECIPES = sorted(path.stem for path in CONFIGS.glob("*.toml") if not path.name.startswith("demo"))
TRAINERS = {"opsd": "papergym.distill.train", "grpo": "papergym.rl.train", "sft": "papergym.training.sft"}
QUICK = ("grpo_qwen3_8b", "opsd_qwen3_8b", "sft_qwen3_8b")


def flat(tables):
    return {f"{table}.{key}": value for table, values in tables.items() for key, value in (values or {}).items()}


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES])
def test_two_steps(name, tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)
    sizes = {
        "run.dir": str(tmp_path / "run"),
        "run.steps": 2,
        "model.path": str(tiny_policy),
        "model.device": "cpu",
        "data.train": str(tmp_path / "train.jsonl"),
        "data.prompts_per_step": 2,
    }
    stage = name.partition("_")[0]
    if stage != "sft":
        sizes["sampling.max_tokens"] = 6
    config = load_recipe(CONFIGS / f"{name}.toml", [f"{key}={value}" for key, value in sizes.items()])
    adapter = import_module(TRAINERS[stage]).run(config)

    written = flat(json.loads((tmp_path / "run/config.json").read_text()))
    asked = flat(read_values(CONFIGS / f"{name}.toml")) | sizes
    assert {key: written[key] for key in asked} == asked
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2] and all(math.isfinite(line["loss"]) for line in lines)
    assert (tmp_path / "run/checkpoints/step_00000002/manifest.json").exists()
    moved = max(tensor.abs().max().item() for key, tensor in load_file(adapter / "adapter_model.safetensors").items() if "lora_B" in key)
    if stage == "grpo":  # a random model earns no reward to learn from
        answers = (tmp_path / "run/rollouts.jsonl").read_text().splitlines()
        assert len(answers) == 2 * 2 * asked["grpo.group_size"] and "kl" in lines[-1]
    else:
        assert moved == pytest.approx(2 * asked["optim.lr"], rel=0.2)  # two steps of AdamW in one direction


def test_recipes_of_every_stage_and_size():
    assert {f"{stage}_qwen3_{size}" for stage in TRAINERS for size in ("1.7b", "4b", "8b")} <= set(RECIPES)
    assert {"grpo_debug_1gpu", "opsd_tiny_cpu"} <= set(RECIPES)
