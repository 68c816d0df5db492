"""The loop's guards: one process a run, no step on a number that is not finite, and files that a kill cannot spoil."""

import dataclasses
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from papergym.bench.same_files import differing_files
from papergym.config import from_mapping
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.model.lora import adapter_state_dict, lora_parameters
from papergym.training.loop import load_policy, run_lock, run_training, train
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


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def changed(recipe: SftConfig, table: str, **values) -> SftConfig:
    return dataclasses.replace(recipe, **{table: dataclasses.replace(getattr(recipe, table), **values)})


def test_the_same_command_goes_on_and_then_has_nothing_to_do(recipe, tmp_path, environments, capsys):
    class PowerCut(Exception):
        pass

    class Stopped(Sft):
        def collect(self, step, phases):
            if step == 4:
                raise PowerCut
            return super().collect(step, phases)

    whole = changed(recipe, "run", dir=str(tmp_path / "whole"))
    run(whole)
    with pytest.raises(PowerCut):
        run_training(recipe, Stopped, "stopped")
    capsys.readouterr()
    adapter = run(recipe)
    assert "SFT 2/6" in capsys.readouterr().err  # from the checkpoint on, which is not the last step
    (tmp_path / "run/config.json").write_bytes((tmp_path / "whole/config.json").read_bytes())  # they differ in run.dir alone
    assert differing_files(tmp_path / "whole", tmp_path / "run")[1] == []
    before = files(tmp_path / "whole")
    assert run(whole) == tmp_path / "whole" / "adapter" and adapter == tmp_path / "run" / "adapter"
    assert files(tmp_path / "whole") == before
    assert "this run is finished" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"already holds a run; add --resume .*its optim\.lr is 0\.01, not 0\.1"):
        run(changed(whole, "optim", lr=0.1))
    checkpoints = tmp_path / "whole" / "checkpoints"
    checkpoints.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="its checkpoints are gone"):
        run(changed(whole, "run", steps=8), resume=True)
    (tmp_path / "elsewhere").rename(checkpoints)
    write_environments(Path(recipe.data.train), environments[:2])  # a finished run of other data is not this run
    with pytest.raises(InputError, match=r"content of data\.train was "):
        run(whole)
    assert files(tmp_path / "whole") == before


def test_a_run_whose_files_were_changed_by_hand_is_refused_and_stays_as_it_is(recipe):
    run(changed(recipe, "run", steps=2))
    place, longer = Path(recipe.run.dir), changed(recipe, "run", steps=3)
    metrics, config = place / "metrics.jsonl", place / "config.json"
    lines = metrics.read_bytes().splitlines(keepends=True)
    for path, content, words in (
        (metrics, lines[1], r"metrics\.jsonl: step 1 is missing, though the checkpoint is of step 2"),
        (config, b"[]", r"config\.json: not the tables of a run's configuration"),
        (config, b"null", r"config\.json: not the tables"),
        (config, b'{"run": 1}', r"config\.json: not the tables"),
    ):
        whole = path.read_bytes()
        path.write_bytes(content)
        before = files(place)
        with pytest.raises(InputError, match=words):
            run(longer, resume=True)
        assert files(place) == before  # the adapter of the two steps too
        path.write_bytes(whole)
    run(longer, resume=True)
    assert [json.loads(line)["step"] for line in metrics.read_bytes().splitlines()] == [1, 2, 3]


def test_a_broken_adapter_is_not_a_finished_run(recipe):
    adapter = run(changed(recipe, "run", steps=2))
    before = files(adapter)
    config, weights = adapter / "adapter_config.json", adapter / "adapter_model.safetensors"
    for path, content in ((config, b"{}"), (config, b"{"), (weights, b""), (weights, before[weights.name][:-1]), (weights, None)):
        for name, whole in before.items():
            (adapter / name).write_bytes(whole)
        path.write_bytes(content) if content is not None else path.unlink()
        with pytest.raises(InputError, match=r"adapter.*; remove .*run/adapter, and the training writes it again"):
            run(changed(recipe, "run", steps=2))
    shutil.rmtree(adapter)
    assert files(run(changed(recipe, "run", steps=2))) == before


def test_a_longer_run_is_not_taken_for_finished_before_it_is(recipe):
    run(changed(recipe, "run", steps=2))
    longer = changed(recipe, "run", steps=3)
    policy = load_policy(longer)
    with pytest.raises(FloatingPointError), run_lock(Path(longer.run.dir)):
        algorithm = Sft(longer, policy)
        algorithm.loss = lambda samples, counts: (sum(p.sum() for p in lora_parameters(policy.model)) * torch.nan, {})
        train(longer, policy, algorithm, "broken")
    assert not (Path(longer.run.dir) / "adapter").exists()  # the one of 2 steps would pass for the one of 3
    run(longer)
    assert (Path(longer.run.dir) / "adapter").exists()


def test_a_retrained_adapter_to_start_from_is_noticed(recipe, tmp_path):
    first = run(changed(recipe, "run", dir=str(tmp_path / "first"), steps=1))
    second = dataclasses.replace(changed(recipe, "model", adapter=str(first)), lora=None)
    run(changed(second, "run", steps=1))
    weights = {name: tensor + 1 for name, tensor in load_file(first / "adapter_model.safetensors").items()}
    save_file(weights, first / "adapter_model.safetensors")
    for steps, resume in ((1, False), (2, True)):
        with pytest.raises(InputError, match=r"content of adapter_model\.safetensors in model\.adapter was "):
            run(changed(second, "run", steps=steps), resume=resume)


def test_a_profile_holds_the_phases_of_the_steps_asked_for(recipe):
    plain, profiled = (changed(recipe, "run", dir=f"{recipe.run.dir}-{steps}", steps=3, profile=steps) for steps in (0, 1))
    adapters = [load_file(run(config) / "adapter_model.safetensors") for config in (plain, profiled)]
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])
    assert not (Path(plain.run.dir) / "profile").exists()
    with gzip.open(Path(profiled.run.dir) / "profile" / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    phases = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert phases.count("step") == phases.count("train") == 1
    assert "aten::mm" in (Path(profiled.run.dir) / "profile" / "operators.txt").read_text()
    with pytest.raises(InputError, match=r"run\.profile' has the value 3: a number from 0 to 2"):
        changed(recipe, "run", steps=3, profile=3)
