"""What a run saves and how it goes on: in the background or not, with generators of any kind, and with the best adapter kept."""

import dataclasses
import json
import random
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file

from papergym.bench.same_files import differing_files
from papergym.checkpoint import load_checkpoint
from papergym.config import from_mapping
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.training import saving
from papergym.training.loop import run_training
from papergym.training.sft import Sft, SftConfig


class PowerCut(Exception):
    pass


class Drawing(Sft):
    """Draws from every global generator, as a judge of one's own may, and scores by the wish of a test."""

    rewards = (0.5, 0.9, 0.1, 0.3, 0.2, 0.4)

    def collect(self, step, phases):
        batch = super().collect(step, phases)
        draws = {"python": random.random(), "numpy": float(numpy.random.rand()), "torch": torch.rand(()).item()}
        return dataclasses.replace(batch, metrics={**batch.metrics, **draws, "reward": self.rewards[step - 1]})


def cut_at(last: int):
    class Cut(Drawing):
        def collect(self, step, phases):
            if step == last:
                raise PowerCut
            return super().collect(step, phases)

    return Cut


@pytest.fixture
def recipe(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)

    def make(name, **run):
        values = {
            "run": {"dir": str(tmp_path / name), "steps": 6, "checkpoint_every": 2, **run},
            "model": {"path": str(tiny_policy), "dtype": "float32"},
            "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 2},
            "lora": {"rank": 4, "alpha": 8, "dropout": 0.1},
            "optim": {"lr": 1e-2},
        }
        return from_mapping(SftConfig, values)

    return make


def without_config(path: Path) -> Path:
    (path / "config.json").unlink()  # the directories' names are in it
    return path


def test_a_resumed_run_draws_what_an_undisturbed_one_draws(recipe, tmp_path):
    settings = {"best_by": "reward", "keep_checkpoints": 1}
    run_training(recipe("whole", **settings), Drawing, "")
    resumed = recipe("resumed", checkpoint_in_background=True, **settings)
    for step in (4, 6):
        with pytest.raises(PowerCut):
            run_training(resumed, cut_at(step), "")
    run_training(resumed, Drawing, "")
    files, differing = differing_files(without_config(tmp_path / "whole"), without_config(tmp_path / "resumed"))
    assert differing == [] and files > 10
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert all(len({line[name] for line in lines}) == 6 for name in ("python", "numpy", "torch"))


def test_the_best_adapter_is_the_one_of_the_best_checkpoint(recipe, tmp_path):
    run_training(recipe("run", best_by="reward", keep_checkpoints=1), Drawing, "")
    kept = sorted((tmp_path / "run/checkpoints").iterdir())
    assert [path.name for path in kept] == ["step_00000002", "step_00000006"]  # means 0.7, 0.2, 0.3
    best, state = load_file(tmp_path / "run/best/adapter_model.safetensors"), load_checkpoint(kept[0], {})["adapter"]
    assert all(torch.equal(best[f"base_model.model.{name}"], tensor) for name, tensor in state.items())
    assert not all(torch.equal(tensor, load_checkpoint(kept[1], {})["adapter"][name]) for name, tensor in state.items())


def test_what_is_killed_before_the_best_adapter_is_written_is_made_good(recipe, tmp_path, monkeypatch):
    config = recipe("run", best_by="reward")
    monkeypatch.setattr(saving.Saver, "_keep_best", lambda *_: None)
    with pytest.raises(PowerCut):
        run_training(config, cut_at(3), "")
    assert not (tmp_path / "run/best").exists()
    monkeypatch.undo()
    with pytest.raises(PowerCut):
        run_training(config, cut_at(3), "")
    assert (tmp_path / "run/best/adapter_model.safetensors").exists()


@pytest.mark.parametrize("name", ["-rewrad", "", "-"])
def test_a_metric_that_is_none_is_named(recipe, name):
    with pytest.raises(InputError, match=rf"run\.best_by' has the value '{name}': the metrics of this run are loss, .*reward"):
        run_training(recipe("run", best_by=name), Drawing, "")


@pytest.mark.parametrize("background", [False, True])
def test_a_checkpoint_that_fails_ends_the_run(recipe, tmp_path, monkeypatch, background):
    def full(*_):
        raise InputError("no room")

    monkeypatch.setattr(saving, "save_checkpoint", full)
    with pytest.raises(InputError, match="no room"):
        run_training(recipe("run", checkpoint_in_background=background), Drawing, "")
    assert not (tmp_path / "run/adapter").exists()


def test_the_copy_is_of_the_step_that_is_saved(recipe, tmp_path, monkeypatch):
    """However long writing takes, and whatever the next steps do meanwhile."""
    late = []
    write = saving.save_checkpoint
    monkeypatch.setattr(saving, "save_checkpoint", lambda *arguments: late.append(arguments) or write(*arguments))
    run_training(recipe("run", checkpoint_in_background=True, keep_checkpoints=3), Drawing, "")
    assert [arguments[1] for arguments in late] == [2, 4, 6]
    for _, step, state, *_ in late:
        stored = load_checkpoint(tmp_path / f"run/checkpoints/step_{step:08d}", {})
        assert all(torch.equal(stored["adapter"][name], tensor) for name, tensor in state["adapter"].items())
    assert not torch.equal(*(next(iter(state["adapter"].values())) for _, _, state, *_ in late[:2]))
