"""A model that is sharded over ranks: each reads its own rows, straight from the files, and all together hold what one process reads."""

import pytest
import torch

from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.weights import save_model

READ = """
import sys
import torch
from papergym.model.lora import LoraConfig, apply_lora, initialise_adapters
from papergym.model.weights import load_model
from papergym.training.distributed import full, process_group, shard

small, path = sys.argv[1:]

def peak():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

def prepare(model):
    shard(apply_lora(model, LoraConfig(rank=4)), "cpu")

with process_group("cpu", 60) as ranks:
    load_model(small, prepare=prepare)  # imports what sharding needs
    open("/proc/self/clear_refs", "w").write("5")  # the peak restarts at the memory of now
    before = peak()
    model = load_model(path, prepare=prepare)
    print(f"peak {peak() - before}")
    torch.manual_seed(5)
    initialise_adapters(model)
    alone = load_model(path)
    torch.manual_seed(5)
    apply_lora(alone, LoraConfig(rank=4))
    for (name, ours), (_, theirs) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
        assert ours.to_local().numel() < theirs.numel() or not ranks.first
        assert torch.equal(full(ours.detach()), theirs), name
"""


def write_model(path, layers, vocabulary):
    """A random model in bf16, with a head of its own."""
    config = ModelConfig("qwen3", vocabulary, 768, 2304, layers, 12, 4, 64, 1e-6, 512)
    with torch.device("meta"):
        model = CausalLM(config).bfloat16()
    model = model.to_empty(device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    save_model(model, path, shard_bytes=45 << 20)
    return sum(parameter.nbytes for parameter in model.parameters())


@pytest.mark.slow
def test_no_rank_holds_more_than_its_share(torchrun, tmp_path):
    write_model(tmp_path / "small", layers=1, vocabulary=101)
    size = write_model(tmp_path / "model", layers=14, vocabulary=8001)
    assert size > 200e6 and len(list((tmp_path / "model").glob("*.safetensors"))) > 3
    printed = torchrun(READ, tmp_path / "small", tmp_path / "model")
    peaks = [int(line.split()[1]) for line in printed.splitlines() if line.startswith("peak")]
    assert len(peaks) == 2
    # Half of the weights, one layer's adapters, and of the files one tensor's rows at a time.
    assert all(0.4 * size < peak < 0.5 * size + 20e6 for peak in peaks), (size, peaks)
