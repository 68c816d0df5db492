"""Fixtures that several folders use."""

import json
import os
import platform
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from papergym.environment import Criterion, Environment
from papergym.kernels import cpu

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # its kernels then run on the CPU; Triton reads this when something imports it


@pytest.fixture
def scripted_server() -> Iterator[Any]:
    """A model server that does what a test tells it to, misbehaviour included: see scripted_server.py."""
    server = runpy.run_path(str(Path(__file__).with_name("scripted_server.py")))["ScriptedServer"]()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory) -> Path:
    """A random two-layer Qwen3 with a byte tokenizer, as a Hugging Face directory: enough to run a trainer for real."""
    from papergym.bench.tiny import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("tiny_policy"))


@pytest.fixture(scope="session")
def environments() -> list[Environment]:
    """Three small environments with references and criteria of both dimensions."""
    topics = ("rod packing in silos", "lossy caches", "school meals")
    return [
        Environment(
            id=f"env-{index}",
            domain="cs",
            question=f"What limits {topic}? How would you find out?",
            rubric=(
                Criterion(f"The plan measures {topic} with a controlled trial.", "experiment", "answer"),
                Criterion(f"The plan models {topic} by a random walk.", "method", "answer"),
            ),
            reference=f"Method: model {topic} by a random walk. Experiment: measure it in a controlled trial.",
        )
        for index, topic in enumerate(topics)
    ]


@pytest.fixture
def torchrun(tmp_path: Path) -> Callable[..., str]:
    """torchrun(code, *arguments, ranks=2, status=0) -> what a script printed that torchrun started on some ranks of this machine."""

    def launch(code: str, *arguments: object, ranks: int = 2, status: int = 0) -> str:
        script = tmp_path / "ranks.py"
        script.write_text(code)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(script)]
        command += [str(value) for value in arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            try:
                printed, _ = process.communicate(timeout=600)
            except BaseException:
                process.terminate()  # it ends its ranks, which a kill would leave behind
                raise
        assert process.returncode == status, printed
        return printed

    return launch


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """tiny_checkpoint(architecture="qwen3", seed=0, **overrides) -> a Hugging Face directory that transformers itself wrote, fp32.

    overrides: fields of the architecture's transformers configuration. Every weight is random, biases and norms included.
    Directories are shared by the session: read them, don't write into them.
    """
    made: dict[str, Path] = {}

    def make(architecture: str = "qwen3", seed: int = 0, **overrides: Any) -> Path:
        key = json.dumps([architecture, seed, overrides], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp(architecture)
            _write_checkpoint(made[key], architecture, seed, overrides)
        return made[key]

    return make


def _write_checkpoint(path: Path, architecture: str, seed: int, overrides: dict[str, Any]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    fields: dict[str, Any] = {
        "vocab_size": 160,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if architecture == "qwen3":
        fields["head_dim"] = 12
    with torch.random.fork_rng(devices=[]):  # building draws from the global generator
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **fields | overrides), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = 0.2 if "embed" in name or weight.ndim == 1 else 1.5 * weight.shape[1] ** -0.5
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale + ("norm" in name))
    model.save_pretrained(path)


@pytest.fixture(scope="module", params=["native", "x86-64-v3", "x86-64"])
def registers(request):
    """The CPU's library for this machine, and as processors with AVX2 alone (eight floats a vector) and with none of it (four) run it."""
    if request.param != "native" and (platform.machine() != "x86_64" or cpu.library() is None):
        pytest.skip("needs a C++ compiler for x86-64")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "FLAGS", tuple(flag.replace("native", request.param) for flag in cpu.FLAGS))
        cpu.library.cache_clear()
        yield request.param
    cpu.library.cache_clear()
