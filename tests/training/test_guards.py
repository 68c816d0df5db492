"""Told to stop, a run saves and goes on later; a step that is not finite leaves its batch; a rank that is lost is named."""

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from papergym.config import from_mapping
from papergym.distill.train import Opsd
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.files import read_jsonl, write_jsonl
from papergym.model.lora import adapter_state_dict
from papergym.rl.train import GradedRollout, Grpo
from papergym.training.command import training_command
from papergym.training.loop import load_policy, run_training, train
from papergym.training.rollouts import Rollout
from papergym.training.sft import Demonstration, Sft, SftConfig, run

RUN = '''
import json, os, signal, sys, time
from papergym.config import from_mapping
from papergym.training.loop import run_training
from papergym.training.sft import Sft, SftConfig

class Disturbed(Sft):
    """At its second step the second rank is told to stop, dies or hangs; the first step after a restart is the third."""
    def collect(self, step, phases):
        if step == 2 and os.environ["RANK"] == "1":
            if sys.argv[2] == "stops":
                os.kill(os.getpid(), signal.SIGTERM)
            elif sys.argv[2] == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            elif sys.argv[2] == "hangs":
                time.sleep(600)
        return super().collect(step, phases)

run_training(from_mapping(SftConfig, json.load(open(sys.argv[1]))), Disturbed, "SFT")
'''


@pytest.fixture
def values(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)
    return {
        "run": {"dir": str(tmp_path / "run"), "steps": 4, "checkpoint_every": 100},
        "model": {"path": str(tiny_policy), "dtype": "float32"},
        "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 2},
        "lora": {"rank": 4, "alpha": 8},
        "optim": {"lr": 1e-2},
    }


def elsewhere(values, directory):
    return values | {"run": values["run"] | {"dir": directory}}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_told_to_stop_it_saves_and_the_same_command_goes_on(values, tmp_path, capfd, number, code):
    class Stopped(Sft):
        def collect(self, step, phases):
            if step == 2:
                signal.raise_signal(number)
            return super().collect(step, phases)

    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    undisturbed = run_training(from_mapping(SftConfig, elsewhere(values, str(tmp_path / "whole"))), Sft, "SFT")
    config = from_mapping(SftConfig, values)
    with pytest.raises(SystemExit) as stopped:
        run_training(config, Stopped, "SFT")
    assert stopped.value.code == code and "saved at step 2, the same command goes on" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step_00000002"]
    assert not (tmp_path / "run/adapter").exists()
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    ours, theirs = (load_file(path / "adapter_model.safetensors") for path in (run_training(config, Sft, "SFT"), undisturbed))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_second_ctrl_c_ends_at_once_and_an_ignored_one_stays_ignored():
    code = """
from signal import SIG_IGN, SIGINT, raise_signal, signal
from papergym.training.guards import stop_requests
before = signal(SIGINT, SIG_IGN)
with stop_requests() as has_come:
    raise_signal(SIGINT)
    print(has_come(SIGINT))
signal(SIGINT, before)
with stop_requests() as has_come:
    raise_signal(SIGINT)
    print(has_come(SIGINT), flush=True)
    raise_signal(SIGINT)
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "False\nTrue\n")
    assert done.stderr == "\nCtrl-C: this step ends and is saved; once more ends the run at once, without saving\n"


def test_a_step_that_is_not_finite_leaves_its_batch_and_adapter(values):
    config = from_mapping(SftConfig, values)
    policy = load_policy(config)
    algorithm = Sft(config, policy)

    class Poisoned:
        collect = algorithm.collect

        def loss(self, samples, counts):
            self.adapter = {name: tensor.clone() for name, tensor in adapter_state_dict(policy.model).items()}
            loss, sums = algorithm.loss(samples, counts)
            self.steps = getattr(self, "steps", 0) + 1
            return loss * (torch.nan if self.steps == 2 else 1), sums

    poisoned = Poisoned()
    with pytest.raises(FloatingPointError, match=r"step 2: loss nan.*the batch and the adapter are in .*failed/step_00000002"):
        train(config, policy, poisoned, "SFT")
    place = Path(config.run.dir) / "failed/step_00000002"
    samples = [json.loads(line) for line in (place / "batch.jsonl").read_text().splitlines()]
    assert [sample["completion_ids"] for sample in samples] == [list(s.completion_ids) for s in algorithm.collect(2, None).samples]
    stored = load_file(place / "adapter_model.safetensors")
    assert all(torch.equal(stored[f"base_model.model.{name}"], tensor) for name, tensor in poisoned.adapter.items())
    assert any(tensor.abs().max() > 0 for name, tensor in stored.items() if "lora_B" in name)


class Overflowing(Sft):
    """The logarithm of zero, from the second step on, for the last sample of the batch."""

    def loss(self, samples, counts):
        loss, sums = super().loss(samples, counts)
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps >= 2 and samples[-1].completion_ids == self.poison:
            loss = loss + torch.log(loss * 0)
        return loss, sums

    def collect(self, step, phases):
        batch = super().collect(step, phases)
        self.poison = batch.samples[-1].completion_ids
        return batch


def test_a_failed_step_is_replayed_by_a_command(values, tmp_path, capsys):
    values = values | {"data": values["data"] | {"tokens_per_micro_batch": 1}}  # a sample a micro-batch
    config = from_mapping(SftConfig, values)
    with pytest.raises(FloatingPointError, match="failed/step_0000000"):
        run_training(config, Overflowing, "SFT")
    [place] = (tmp_path / "run/failed").iterdir()

    class Again(Overflowing):
        def sample_from(self, fields):
            self.steps, self.poison = 2, fields["completion_ids"]  # of the last sample, when all are read
            return super().sample_from(fields)

    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    capsys.readouterr()
    assert run_training(config, Again, "SFT", replay=place) == place
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("micro-batch 1, samples 0 to 0: loss ") and "nan" not in first and "inf" not in first
    assert second.startswith("micro-batch 2, samples 1 to 1: loss -inf")
    assert "returned nan values" in second or "is not finite" in second
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    (tmp_path / "recipe.toml").write_text("".join(f"[{name}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items())
                                                   for name, table in values.items()))  # fmt: skip
    command, options = training_command(SftConfig, run, ""), ["--config", str(tmp_path / "recipe.toml"), "--replay"]
    done = CliRunner().invoke(command, [*options, str(place)])
    assert done.exit_code == 0 and done.stdout.count("micro-batch") == 2 and "not finite" not in done.stdout, done.output
    done = CliRunner().invoke(command, [*options, str(tmp_path)])
    assert done.exit_code == 2 and "not a failed step" in done.stderr
    for batch, words in (
        ('{"rollout": {}, "advantage": 1.0}', "line 1, advantage: this field is unknown"),
        ('{"prompt_ids": [1], "completion_ids": [99999999]}', "line 1: prompt_ids and completion_ids are not tokens of this model"),
        ("", "holds no samples"),
    ):
        (place / "batch.jsonl").write_text(batch)
        done = CliRunner().invoke(command, [*options, str(place)])
        assert done.exit_code == 2 and f"batch.jsonl{', ' if 'line' in words else ': '}{words}" in done.stderr


@pytest.fixture
def samples(environments):
    """(trainer, a sample of it) for each trainer; the trainers know their environments and nothing else."""
    rollout = Rollout(environments[0], 0, 3, [1, 2], [5, 6, 7], [-0.5, -1.0, -0.25], "stop", "text")
    opsd = object.__new__(Opsd)
    opsd._stream = SimpleNamespace(environments=environments)
    return [(opsd, rollout), (object.__new__(Grpo), GradedRollout(rollout, -0.75)), (object.__new__(Sft), Demonstration([1, 2], [3]))]


def test_a_sample_survives_the_file(tmp_path, samples):
    for algorithm, sample in samples:
        write_jsonl(tmp_path / "batch.jsonl", [sample])
        [(_, fields)] = read_jsonl(tmp_path / "batch.jsonl")
        assert algorithm.sample_from(fields) == sample
    write_jsonl(tmp_path / "batch.jsonl", [replace(samples[1][1], advantage=math.nan)])
    [(_, fields)] = read_jsonl(tmp_path / "batch.jsonl")
    assert math.isnan(samples[1][0].sample_from(fields).advantage)  # what went wrong stays wrong


def test_a_sample_of_another_trainer_and_odd_fields_are_named(tmp_path, samples):
    for index, (algorithm, sample) in enumerate(samples):
        write_jsonl(tmp_path / "batch.jsonl", [sample])
        [(_, fields)] = read_jsonl(tmp_path / "batch.jsonl")
        for other, (stranger, _) in enumerate(samples):
            if other != index:
                with pytest.raises(InputError, match=r"this field is (missing|unknown); those of a "):
                    stranger.sample_from(fields)
        rollout = fields.get("rollout", fields)
        odd = [{"completion_ids": "abc"}, {"completion_ids": [1.5]}, {"prompt_ids": [True]}]
        if "index" in rollout:
            odd += [
                {"environment": 1},
                {"environment": {}},
                {"sampled_logprobs": [0.5]},
                {"response": None},
                {"sampled_logprobs": ["a"] * 3},
            ]
        if "index" in fields:
            odd += [{"index": 1}, {"index": 3}, {"index": -3}]
        for change in odd:
            with pytest.raises(InputError):
                algorithm.sample_from(fields | {"rollout": rollout | change} if "rollout" in fields else rollout | change)
        if "rollout" in fields:
            for change in ({"rollout": 1}, {"advantage": "high"}):
                with pytest.raises(InputError, match=next(iter(change))):
                    algorithm.sample_from(fields | change)


@pytest.fixture
def disturbed(torchrun, values, tmp_path):
    def launch(how, status, **tables):
        (tmp_path / "values.json").write_text(json.dumps(values | tables))
        return torchrun(RUN, tmp_path / "values.json", how, status=status)

    return launch


@pytest.mark.slow
def test_one_rank_is_told_to_stop_and_all_save(disturbed, values, tmp_path):
    assert "saved at step 2" in disturbed("stops", 0)
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step_00000002"]
    disturbed("goes on", 0)
    alone = run_training(from_mapping(SftConfig, elsewhere(values, str(tmp_path / "alone"))), Sft, "SFT")
    ours, theirs = (load_file(path / "adapter_model.safetensors") for path in (tmp_path / "run/adapter", alone))
    assert max((ours[name] - theirs[name]).abs().max() for name in theirs) < 1e-5


@pytest.mark.slow
def test_a_dead_rank_ends_the_job_and_is_named(disturbed):
    printed = disturbed("dies", 1)
    assert "rank      : 1 (local_rank: 1)\n  exitcode  : -9" in printed


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_job_and_is_named(disturbed, values):
    start = time.monotonic()
    printed = disturbed("hangs", 1, distributed={"timeout": 20})
    assert "Ranks 1 failed to pass monitoredBarrier in 20000 ms" in printed
    assert time.monotonic() - start < 200  # not the ten minutes that it hangs
