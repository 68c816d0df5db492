"""The loop's guards: one process a run, no step on a number that is not finite, and files that a kill cannot spoil."""

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from papergym.config import from_mapping
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.model.lora import adapter_state_dict
from papergym.training.loop import load_policy, run_lock, train
from papergym.training.sft import Sft, SftConfig, run


@pytest.fixture
def recipe(tmp_path, tiny_policy, environments) -> SftConfig:
    write_environments(tmp_path / "train.jsonl", environments)
    return from_mapping(
        SftConfig,
        {
            "run": {"dir": str(tmp_path / "run"), "steps": 6, "checkpoint_every": 2},
            "model": {"path": str(tiny_policy), "dtype": "float32"},
            "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 2},
            "lora": {"rank": 4, "alpha": 8},
            "optim": {"lr": 1e-2},
        },
    )


def test_a_run_directory_belongs_to_one_process(tmp_path):
    code = f"""if True:
        import time, pathlib
        from papergym.training.loop import run_lock
        with run_lock(pathlib.Path({str(tmp_path)!r})):
            print("in", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "in\n"
        with pytest.raises(InputError, match="another process is writing this run"), run_lock(tmp_path):
            pass
        os.kill(other.pid, signal.SIGKILL)
    with run_lock(tmp_path):
        pass


@pytest.mark.parametrize("broken", ["loss", "gradient"])
def test_nothing_is_stepped_on_a_number_that_is_not_finite(recipe, broken):
    policy = load_policy(recipe)
    algorithm = Sft(recipe, policy)
    before = {name: tensor.clone() for name, tensor in adapter_state_dict(policy.model).items()}

    class Poisoned:
        collect = algorithm.collect

        def loss(self, samples, counts):
            loss, sums = algorithm.loss(samples, counts)
            return (loss * torch.nan if broken == "loss" else loss + 0 * loss.sqrt().mul(0).rsqrt()), sums

    with pytest.raises(FloatingPointError, match=r"step 1: loss .*stopped before the optimizer step"):
        train(recipe, policy, Poisoned(), "broken")
    after = adapter_state_dict(policy.model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_changed_seed_changes_the_run_and_the_same_seed_repeats_it(recipe):
    def trained(directory: str, seed: int) -> dict[str, torch.Tensor]:
        table = dataclasses.replace(recipe.run, dir=f"{recipe.run.dir}-{directory}", seed=seed)
        return load_file(run(dataclasses.replace(recipe, run=table)) / "adapter_model.safetensors")

    first, again, other = trained("a", 1), trained("b", 1), trained("c", 2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.slow
def test_a_killed_run_ends_as_an_undisturbed_one(recipe, tmp_path):
    """SIGKILL at several moments of a run in its own process; each restart resumes; the files end the same."""
    undisturbed = run(dataclasses.replace(recipe, run=dataclasses.replace(recipe.run, dir=str(tmp_path / "whole"), steps=12)))
    command = textwrap.dedent(
        f"""
        from papergym.config import from_mapping
        from papergym.training.sft import SftConfig, run
        from papergym.config import to_mapping
        values = {dataclasses.asdict(recipe)!r}
        values["run"]["steps"] = 12
        run(from_mapping(SftConfig, values), resume=True)
        """
    )
    for delay in (3.0, 4.0, 5.0, 6.0):
        process = subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
    subprocess.run([sys.executable, "-c", command], check=True)
    ended = Path(recipe.run.dir)
    a, b = (load_file(path / "adapter_model.safetensors") for path in (undisturbed, ended / "adapter"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    steps = [line.split(b",")[0] for line in (ended / "metrics.jsonl").read_bytes().splitlines()]
    assert steps == [f'{{"step":{step}'.encode() for step in range(1, 13)]
