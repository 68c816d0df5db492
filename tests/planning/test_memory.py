"""The closed forms beside PyTorch's own accounting of what they describe: fake tensors as on a GPU, over ranks, and for real on a CPU."""

import dataclasses
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from papergym.model import attention, linear
from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.lora import LoraConfig, apply_lora
from papergym.planning.memory import Workload, micro_batch_rows, sampling_bytes, training_bytes
from papergym.planning.models import published
from papergym.training.distributed import gathered, reduce_gradients, shard, with_head
from papergym.training.packing import pack, predicting_hidden

MODEL = ModelConfig(
    architecture="qwen3",
    vocab_size=512,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=2,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    rms_norm_eps=1e-6,
    max_position_embeddings=4096,
    tie_word_embeddings=True,
)
WORK = Workload("sft", MODEL, LoraConfig(64, 128), ranks=1, prompts=1, samples=1, prompt_tokens=64, response_tokens=1000, micro_batch=8192)
HERE = torch.device("cpu")


class Tracker(MemTracker):
    """Totals alone: the hooks that tell modules apart refuse frozen parameters and a module that is called twice."""

    def _no_hook(self, *_):
        pass

    _pre_fw_hook = _post_fw_hook = _pre_bw_hook = _post_bw_hook = _no_hook

    def total(self, which):
        return self.get_tracker_snapshot(which)[HERE]["Total"]


class FusedNorm(torch.autograd.Function):
    """What a GPU's kernel keeps: its input and one number a row."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight, torch.empty(*x.shape[:-1], 1))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, gradient):
        return torch.empty_like(ctx.saved_tensors[0]), None


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(attention, "varlen_kernel", lambda query: attention.torch_varlen())
    monkeypatch.setattr(linear, "_cpu_multiplies_bf16", lambda: True)
    monkeypatch.setattr(F, "rms_norm", lambda x, shape, weight, eps: FusedNorm.apply(x, weight))


def build(work: Workload) -> CausalLM:
    torch.set_default_dtype({2: torch.bfloat16, 4: torch.float32}[work.itemsize])
    try:
        model = CausalLM(work.model)
    finally:
        torch.set_default_dtype(torch.float32)
    apply_lora(model, work.lora).train()
    model.activation_checkpointing = work.checkpointing
    return model


def backward_passes(model: CausalLM, work: Workload, count: int) -> None:
    """As the loop makes them, up to the hidden states."""
    row = micro_batch_rows(work)[0][0]
    group = (work.prompt_tokens, (work.response_tokens - 1,) * work.samples)
    groups = [group] * (row.tokens // (group[0] + sum(group[1])))
    for number in range(count):
        reduce_gradients(model, now=number == count - 1)
        ids = torch.zeros(1, row.tokens, dtype=torch.int64)
        model(ids, torch.zeros_like(ids), attend=attention.shared_prefix_attention(groups)).sum().backward()


def predicted(work: Workload, passes: int) -> float:
    """Without optimizer and loss, which these tests leave out."""
    items = training_bytes(work, micro_batch_rows(work)[0][0], passes)
    assert items["logits workspace"] == 0
    return sum(items.values()) - items["optimizer"]


VARIANTS = {
    "none": {"checkpointing": "none"},
    "selective": {"checkpointing": "selective"},
    "full": {"checkpointing": "full"},
    "group": {"samples": 4, "checkpointing": "full"},
    "two projections": {"lora": LoraConfig(16, 32, ("q_proj", "v_proj"))},
    "dropout": {"lora": LoraConfig(64, 128, dropout=0.1)},
}


@pytest.mark.parametrize("name", ["full", *(pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS if name != "full")])
def test_activations_of_one_gpu(name, as_on_a_gpu):
    if attention.torch_varlen() is None:
        pytest.skip("PyTorch has the kernel from 2.12 on")
    work = dataclasses.replace(WORK, **VARIANTS[name])
    with FakeTensorMode():
        model, tracker = build(work), Tracker()
        tracker.track_external(model)
        with tracker:
            backward_passes(model, work, 2)
    assert predicted(work, 2) == pytest.approx(tracker.total("peak"), rel=0.1)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_bf16_products_through_fp32_keep_what_others_keep(checkpointing, as_on_a_gpu, monkeypatch):
    kept = []
    for instructions in (True, False):
        monkeypatch.setattr(linear, "_cpu_multiplies_bf16", lambda there=instructions: there)
        with FakeTensorMode():
            model, tracker = build(dataclasses.replace(WORK, checkpointing=checkpointing)), Tracker()
            ids = torch.zeros(1, 512, dtype=torch.int64)
            tracker.track_external(model)
            with tracker:
                hidden = model(ids)
                kept.append(tracker.total("current"))
            del hidden
    assert kept[0] == kept[1]


@contextmanager
def fake_ranks(count: int):
    """A process group that moves no numbers, and its mesh, which can't be made in a fake mode."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
    try:
        yield dist.init_device_mesh("cpu", (count,))
    finally:
        dist.destroy_process_group()


def check_sharded(work: Workload, passes: int, monkeypatch) -> None:
    with fake_ranks(work.ranks) as mesh, FakeTensorMode():
        monkeypatch.setattr(dist, "init_device_mesh", lambda *_: mesh)
        model, tracker = shard(build(work), "cpu"), Tracker()
        tracker.track_external(model)
        with tracker:
            with gathered(model):
                whole = tracker.total("current")
            with with_head(model):
                backward_passes(model, work, passes)
    sampling = sampling_bytes(work)
    assert sampling["weights"] + sampling["LoRA"] == pytest.approx(whole, rel=0.02)
    peak = max(predicted(work, passes), sampling["weights"] + sampling["LoRA"])
    assert peak == pytest.approx(tracker.total("peak"), rel=0.1)


@pytest.mark.parametrize("checkpointing", ["none", pytest.param("full", marks=pytest.mark.slow)])
def test_four_ranks(checkpointing, as_on_a_gpu, monkeypatch):
    if attention.torch_varlen() is None:
        pytest.skip("PyTorch has the kernel from 2.12 on")
    check_sharded(dataclasses.replace(WORK, ranks=4, prompts=4, checkpointing=checkpointing, response_tokens=3000), 2, monkeypatch)


@pytest.mark.slow
def test_qwen3_8b_on_four_ranks(as_on_a_gpu, monkeypatch):
    work = dataclasses.replace(WORK, model=published("Qwen3-8B"), ranks=4, prompts=4, checkpointing="full", response_tokens=8192)
    check_sharded(work, 2, monkeypatch)


SMALL = dataclasses.replace(
    MODEL, hidden_size=256, intermediate_size=768, num_attention_heads=8, num_key_value_heads=4, head_dim=32, vocab_size=16384
)
REAL = dataclasses.replace(WORK, model=SMALL, lora=LoraConfig(16, 32), response_tokens=200, samples=4, itemsize=4, gpu=False)


def test_the_built_in_sampler():
    work = dataclasses.replace(REAL, prompts=3, response_tokens=130, model=dataclasses.replace(SMALL, vocab_size=2048))
    model, tracker = build(work), Tracker()
    tracker.track_external(model)
    prompts = [[index] * work.prompt_tokens for index in range(work.prompts)]
    with tracker:
        completions = TorchEngine(model).generate(prompts, SamplingParams(n=work.samples, max_tokens=work.response_tokens, seed=0))
    assert {len(c.token_ids) for group in completions for c in group} == {work.response_tokens}
    items = sampling_bytes(work)
    assert sum(items.values()) - items["optimizer"] == pytest.approx(tracker.total("peak"), rel=0.1)


def loss_of(work: Workload, model: CausalLM) -> torch.Tensor:
    """The trainers' losses, as they make them."""
    from papergym.kernels.linear_jsd import fused_linear_jsd
    from papergym.kernels.linear_logprob import fused_linear_logprob

    completions = [[index] * work.response_tokens for index in range(work.samples)]
    packed = pack([([1] * work.prompt_tokens, completion) for completion in completions], HERE)
    if work.algorithm == "opsd":
        with torch.no_grad():
            teacher = predicting_hidden(model, packed)
        out = fused_linear_jsd(predicting_hidden(model, packed), model.head_weight, teacher, model.head_weight)
        return out.divergence.sum()
    return fused_linear_logprob(predicting_hidden(model, packed), model.head_weight, packed.targets).logprob.sum()


@pytest.mark.parametrize(
    ("algorithm", "checkpointing"),
    [("grpo", "full"), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("grpo", "none"), ("opsd", "full"), ("opsd", "none")))],
)
def test_a_whole_micro_batch_on_a_cpu(algorithm, checkpointing):
    work = dataclasses.replace(REAL, algorithm=algorithm, checkpointing=checkpointing)
    model, tracker = build(work), Tracker()
    tracker.track_external(model)
    with tracker:
        for _ in range(2):
            loss_of(work, model).backward()
    [[row]] = micro_batch_rows(work)
    items = training_bytes(work, row, 2)
    if (algorithm, checkpointing) == ("opsd", "full"):  # elsewhere the fullest moment is in the last layer's backward pass
        assert items["logits workspace"] > 0.2 * sum(items.values())
    assert sum(items.values()) - items["optimizer"] == pytest.approx(tracker.total("peak"), rel=0.1)


@pytest.mark.slow
def test_the_process_itself_on_a_cpu(tmp_path):
    """Resident memory as the system counts it, weights apart, of a whole micro-batch in a fresh process."""
    script = tmp_path / "peak.py"
    script.write_text(Path(__file__).read_text() + "\n\nif __name__ == '__main__':\n    print(*resident())\n")
    # The C library gives back what is freed, so that it is not counted twice.
    settings = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=os.environ | settings)
    assert done.returncode == 0, done.stderr
    measured, expected = map(float, done.stdout.split())
    assert expected == pytest.approx(measured, rel=0.1)


def resident() -> tuple[float, float]:
    """Measured and predicted growth, bytes."""
    from papergym.bench.measure import peak_bytes

    work = dataclasses.replace(REAL, algorithm="grpo", response_tokens=400, model=dataclasses.replace(SMALL, num_hidden_layers=4))
    model, small = build(work), dataclasses.replace(work, response_tokens=4)
    loss_of(small, model).backward()  # libraries and the gradients' own memory come first
    [[row]] = micro_batch_rows(work)
    items = training_bytes(work, row, 2)
    return peak_bytes(lambda: loss_of(work, model).backward(), "cpu"), items["activations"] + items["logits workspace"]
