"""Real ranks over gloo: what two of them train is what one trains, and what one saved the other goes on from."""

import copy
import json
import runpy
import shutil

import pytest
import torch
from safetensors.torch import load_file

from papergym.environment import write_environments
from papergym.training.distributed import ONE, Ranks, shared_out
from papergym.training.sft import Demonstration

TRAIN = '''
"""Trains as a list of (trainer, configuration) in a JSON file says, on however many ranks."""
import dataclasses, json, sys
from papergym.config import from_mapping
from papergym.distill.train import Opsd, OpsdConfig
from papergym.judge.scoring import Scored
from papergym.rl.train import Grpo, GrpoConfig
from papergym.training.distributed import process_group
from papergym.training.loop import run_training
from papergym.training.sft import Sft, SftConfig

class Masked(Sft):
    """Only the first sample has something supervised: the second rank has nothing."""
    def collect(self, step, phases):
        batch = super().collect(step, phases)
        rest = [dataclasses.replace(sample, completion_ids=()) for sample in batch.samples[1:]]
        return dataclasses.replace(batch, samples=[batch.samples[0], *rest])

class Early:
    """A judge: the share of characters before n."""
    def score(self, items):
        return [Scored((), (), sum(c < "n" for c in plan) / max(1, len(plan))) for _, plan in items]

TRAINERS = {"sft": (SftConfig, Sft), "masked": (SftConfig, Masked), "opsd": (OpsdConfig, Opsd), "grpo": (GrpoConfig, Grpo)}

def train(path):
    for kind, values in json.load(open(path)):
        config, algorithm = TRAINERS[kind]
        run_training(from_mapping(config, values), algorithm, kind, resume=True)

if __name__ == "__main__":
    with process_group("cpu", 300):
        train(sys.argv[1])
'''


@pytest.fixture
def jobs(tmp_path, tiny_policy, environments, monkeypatch, torchrun):
    """jobs.recipe(kind, directory, **tables) -> (kind, configuration); jobs.alone(recipes) and jobs.ranks(recipes) train them."""
    write_environments(tmp_path / "train.jsonl", environments)
    (tmp_path / "early_judge.py").write_text(TRAIN)
    monkeypatch.syspath_prepend(tmp_path)

    class Jobs:
        @staticmethod
        def recipe(kind, directory, **tables):
            values = {
                "run": {"dir": str(tmp_path / directory), "steps": 3, "checkpoint_every": 2},
                "model": {"path": str(tiny_policy), "dtype": "float32"},
                "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 3},
                "lora": {"rank": 4, "alpha": 8},
                "optim": {"lr": 1e-3},
            }
            if kind in ("opsd", "grpo"):
                values["sampling"] = {"max_tokens": 12}
            if kind == "grpo":
                values["grpo"] = {"judge": "early_judge:Early", "group_size": 4, "kl_weight": 0.5, "reference": "initial"}
            for name, table in tables.items():
                values[name] = values.get(name, {}) | table
            return kind, values

        @staticmethod
        def alone(recipes):
            (tmp_path / "alone.json").write_text(json.dumps(recipes))
            runpy.run_path(str(tmp_path / "early_judge.py"))["train"](tmp_path / "alone.json")

        @staticmethod
        def ranks(recipes, code=TRAIN, **options):
            (tmp_path / "ranks.json").write_text(json.dumps(recipes))
            return torchrun(code, tmp_path / "ranks.json", **options)

    return Jobs


def adapter(path):
    return load_file(path / "adapter/adapter_model.safetensors")


def largest_difference(a, b):
    assert a.keys() == b.keys() and max(tensor.abs().max() for name, tensor in a.items() if "lora_B" in name) > 1e-3
    return max((a[name] - b[name]).abs().max().item() for name in a)


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.startswith("time")} for line in lines]


def assert_same_run(one, two):
    """The same losses, samples and adapter to rounding in fp32."""
    assert len(metrics(one)) == 3
    for a, b in zip(metrics(one), metrics(two), strict=True):
        assert {k: v for k, v in a.items() if "mismatch" not in k} == pytest.approx(
            {k: v for k, v in b.items() if "mismatch" not in k}, rel=1e-6, abs=1e-6
        )
    assert largest_difference(adapter(one), adapter(two)) < 1e-6
    records = [[json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()] for path in (one, two)]
    assert records[0] == records[1]


def test_two_ranks_train_what_one_trains(jobs, tmp_path):
    """Whatever the split into micro-batches: here the ranks have different numbers of tokens and of micro-batches, and in one run a rank
    has nothing supervised. Recomputing activations and keeping the weights on the host change nothing either."""
    variants = {
        "sft": {"model": {"activation_checkpointing": "full"}, "distributed": {"cpu_offload": True}},
        "masked": {},
        "opsd": {"model": {"activation_checkpointing": "selective"}},
        "grpo": {},
    }
    jobs.alone([jobs.recipe(kind, f"{kind}-1") for kind in variants])
    jobs.ranks([jobs.recipe(kind, f"{kind}-2", data={"tokens_per_micro_batch": 300}, **tables) for kind, tables in variants.items()])
    for kind in variants:
        assert_same_run(tmp_path / f"{kind}-1", tmp_path / f"{kind}-2")
    rewards = {record["reward"] for record in map(json.loads, (tmp_path / "grpo-1/rollouts.jsonl").read_text().splitlines())}
    assert len(rewards) > 5


@pytest.mark.slow
def test_resume_at_the_same_and_at_another_number_of_ranks(jobs, tmp_path):
    """Two ranks to two: bit for bit. Two to one and one to two: to rounding."""
    for kind in ("sft", "grpo"):
        jobs.alone([jobs.recipe(kind, f"{kind}-1-then-2", run={"steps": 2})])
    begun = [jobs.recipe(kind, f"{kind}-2-then", run={"steps": 2}) for kind in ("sft", "grpo")]
    jobs.ranks([*begun, *(jobs.recipe(kind, f"{kind}-2") for kind in ("sft", "grpo"))])
    for kind in ("sft", "grpo"):
        assert (tmp_path / f"{kind}-2-then/checkpoints/step_00000002/shards/.metadata").exists()
        shutil.copytree(tmp_path / f"{kind}-2-then", tmp_path / f"{kind}-2-then-1")
        jobs.alone([jobs.recipe(kind, f"{kind}-2-then-1")])
    jobs.ranks([jobs.recipe(kind, f"{kind}-{name}") for kind in ("sft", "grpo") for name in ("2-then", "1-then-2")])
    for kind in ("sft", "grpo"):
        whole = tmp_path / f"{kind}-2"
        assert largest_difference(adapter(whole), adapter(tmp_path / f"{kind}-2-then")) == 0
        assert metrics(whole) == metrics(tmp_path / f"{kind}-2-then")
        for name in ("2-then-1", "1-then-2"):
            assert_same_run(whole, tmp_path / f"{kind}-{name}")


@pytest.mark.slow
def test_a_damaged_shard_is_named(jobs, tmp_path):
    jobs.ranks([jobs.recipe("sft", "run", run={"steps": 2})])
    shard = next((tmp_path / "run/checkpoints/step_00000002/shards").glob("*.distcp"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{shard.name}: content and checksum disagree; delete .*step_00000002"):
        jobs.alone([jobs.recipe("sft", "run")])
    shard.unlink()
    with pytest.raises(ValueError, match=rf"{shard.name}: this file is missing"):
        jobs.alone([jobs.recipe("sft", "run")])


@pytest.mark.slow
def test_two_ranks_in_bf16(jobs, tmp_path):
    """Gathered and computed in bf16, summed and stepped in fp32: the loss goes as that of one rank."""
    settings = {"model": {"dtype": "bfloat16"}, "optim": {"lr": 1e-2}, "run": {"steps": 10}}
    jobs.alone([jobs.recipe("sft", "1", **settings)])
    jobs.ranks([jobs.recipe("sft", "2", data={"tokens_per_micro_batch": 300}, **settings)])
    one, two = ([line["loss"] for line in metrics(tmp_path / name)] for name in "12")
    assert one == pytest.approx(two, rel=5e-3) and one[-1] < 0.97 * one[0]
    assert all(tensor.dtype == torch.float32 for tensor in adapter(tmp_path / "2").values())


def test_samples_are_shared_out_whole_and_evenly():
    samples = [Demonstration((0,) * prompt, (1,) * answer) for prompt, answer in ((5, 1), (1, 1), (1, 7), (2, 2), (3, 1), (1, 4))]
    for size in (1, 2, 3, 8):
        parts = [shared_out(samples, 9, Ranks(rank, size)) for rank in range(size)]
        assert len({len(part) for part in parts}) == 1  # as many backward passes on every rank
        assert [sample for part in parts for batch, factor in part if factor for sample in batch] == samples
        loads = [sum(len(s.prompt_ids) + len(s.completion_ids) for batch, factor in part if factor for s in batch) for part in parts]
        assert max(loads) <= 29 / size + 8  # half a sample at either end
    shortest = [batch for batch, factor in shared_out(samples[:1] + samples[1:2], 9, Ranks(7, 8)) if not factor]
    assert shortest in ([], [[samples[1]]])


def test_one_process_asks_nobody():
    values = {"a": 0.1, "b": float("nan")}
    assert ONE.gather(items := [1, 2]) is items and ONE.share(5) == slice(0, 5) and ONE.on_first(lambda: 3) == 3
    assert copy.copy(ONE.sum(values))["a"] == 0.1 and not torch.distributed.is_initialized()
    assert [Ranks(rank, 3).share(5) for rank in range(3)] == [slice(0, 1), slice(1, 3), slice(3, 5)]


@pytest.mark.slow
def test_ranks_save_in_the_background_and_keep_the_best(jobs, tmp_path):
    table = {"best_by": "-loss", "keep_checkpoints": 1, "checkpoint_every": 1, "checkpoint_in_background": True}
    jobs.alone([jobs.recipe("sft", "1", run=table)])
    jobs.ranks([jobs.recipe("sft", "2-then", run=table | {"steps": 2})])
    jobs.ranks([jobs.recipe("sft", "2-then", run=table)])
    assert_same_run(tmp_path / "1", tmp_path / "2-then")
    best = [load_file(tmp_path / name / "best/adapter_model.safetensors") for name in ("1", "2-then")]
    assert largest_difference(*best) < 1e-6
    kept = [sorted(path.name for path in (tmp_path / name / "checkpoints").iterdir()) for name in ("1", "2-then")]
    assert kept[0] == kept[1]


@pytest.mark.slow
def test_a_full_disk_is_a_sentence_on_every_rank(jobs, tmp_path):
    small = TRAIN.replace("    with process_group", "    limit_files()\n    with process_group").replace(
        "def train(path)",
        "def limit_files():\n    import resource, signal\n    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n\ndef train(path)",
    )
    printed = jobs.ranks([jobs.recipe("sft", "run", run={"checkpoint_every": 1})], code=small, status=1)
    assert "step_00000001: can't be written (" in printed and "make room" in printed
    assert not list((tmp_path / "run/checkpoints").iterdir())
