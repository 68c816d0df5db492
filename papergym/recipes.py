"""Recipes: stages in order, evaluation between them, and the report. A recipe that was stopped goes on where it was."""

import dataclasses
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from papergym.config import from_mapping, read_values, to_mapping
from papergym.environment import Environment, read_environments, write_environments
from papergym.errors import InputError
from papergym.files import exclusive, read_json, write_json

PACKAGES = ("papergym", "torch", "numpy", "tokenizers", "safetensors", "gguf")


@dataclasses.dataclass(frozen=True)
class DemoModel:
    path: str = "smollm2-135m"
    dtype: str = "bfloat16"
    device: str = "cpu"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How held-out environments are answered and scored."""

    judge: str = "lexical"
    samples: int = 8  # an environment
    max_tokens: int = 128
    temperature: float = 1.0
    seed: int = 0
    thinking: bool = True


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """The demo's recipe. opsd and grpo are the trainers' own tables; the recipe fills in paths, model and data."""

    opsd: dict[str, Any]
    grpo: dict[str, Any]
    model: DemoModel = dataclasses.field(default_factory=DemoModel)
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    heldout_share: float = 1 / 3  # of the papers whose paper.toml names no split
    seed: int = 0


def run_demo(papers: Path, run_dir: Path, config_path: Path, overrides: Sequence[str] = ()) -> None:
    """The whole path: environments from papers, the base model's evaluation, OPSD, GRPO from there, evaluations, table and report."""
    from papergym.data_pipeline.collection import list_papers
    from papergym.distill.train import OpsdConfig
    from papergym.distill.train import run as train_opsd
    from papergym.report import write_report
    from papergym.report.table import print_table, write_table
    from papergym.rl.train import GrpoConfig
    from papergym.rl.train import run as train_grpo
    from papergym.training.loop import run_lock

    console = Console(stderr=True)
    started = time.monotonic()
    config = from_mapping(DemoConfig, read_values(config_path, overrides))
    opsd_adapter, grpo_adapter = run_dir / "opsd" / "adapter", run_dir / "grpo" / "adapter"
    # Both are built before anything runs, so that a mistake in the last stage's settings is found first.
    opsd = from_mapping(OpsdConfig, _stage(config, config.opsd, run_dir / "opsd", adapter=None), prefix="opsd.")
    grpo = from_mapping(GrpoConfig, _stage(config, config.grpo, run_dir / "grpo", adapter=opsd_adapter), prefix="grpo.")
    with run_lock(run_dir):
        sources = list_papers(papers)
        _write_run_file(run_dir, papers, config, ["opsd", "grpo"])
        console.rule(f"1/5  environments from {len(sources)} papers of {papers}")
        prepare_environments(sources, run_dir / "environments", config.heldout_share, config.seed)
        console.rule("2/5  the base model answers the held-out environments")
        _evaluate_row(config, run_dir, "base", None)
        console.rule(f"3/5  OPSD, {opsd.run.steps} steps: the model learns from itself with the rubric in its prompt")
        if not opsd_adapter.exists():
            train_opsd(opsd, resume=True)
        _evaluate_row(config, run_dir, "opsd", opsd_adapter)
        console.rule(f"4/5  GRPO, {grpo.run.steps} steps: the rubric as reward")
        if not grpo_adapter.exists():
            train_grpo(grpo, resume=True)
        _evaluate_row(config, run_dir, "grpo", grpo_adapter)
        console.rule("5/5  table and report")
        table = write_table(run_dir)
        path = write_report(run_dir)
    print_table(table)
    print(f"{time.monotonic() - started:.0f} s in this call\n{path}")


def prepare_environments(
    papers: Sequence[Path], directory: Path, heldout_share: float, seed: int
) -> tuple[list[Environment], list[Environment]]:
    """Builds environments from papers and writes directory/{all,train,heldout}.jsonl, unless they are there already."""
    from papergym.data_pipeline.build import build
    from papergym.data_pipeline.split import split_environments

    train_path, heldout_path = directory / "train.jsonl", directory / "heldout.jsonl"
    if not heldout_path.exists():  # written last
        summary = build(papers, directory / "all.jsonl", rejects=directory / "rejects.jsonl")
        print(f"{summary.environments} environments, {summary.rejected} papers rejected", file=sys.stderr)
        train, heldout = split_environments(read_environments(directory / "all.jsonl"), heldout_share, seed)
        write_environments(train_path, train)
        write_environments(heldout_path, heldout)
    return read_environments(train_path), read_environments(heldout_path)


def evaluate_model(
    *,
    model_path: str,
    adapter: Path | None,
    environments: Path,
    out: Path,
    judge: str,
    samples: int,
    max_tokens: int,
    temperature: float,
    seed: int,
    thinking: bool,
    dtype: str,
    device: str,
) -> dict[str, Any]:
    """Loads a model, answers the environments, scores the answers; writes OUT.jsonl and OUT.json and returns the summary."""
    from papergym.judge.evaluation import evaluate
    from papergym.judge.scoring import open_judge
    from papergym.model.generation import SamplingParams, TorchEngine
    from papergym.model.lora import load_adapter
    from papergym.model.prompts import student_messages
    from papergym.model.tokenizer import Tokenizer
    from papergym.model.weights import load_model
    from papergym.training.data import encode_prompts
    from papergym.training.loop import DTYPES

    scorer, records = open_judge(judge), read_environments(environments)
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    model, tokenizer = load_model(model_path, dtype=DTYPES[dtype], device=device), Tokenizer(model_path)
    if adapter is not None:
        load_adapter(model, adapter)
    context = model.config.max_position_embeddings
    encode_prompts(tokenizer, records, student_messages, thinking=thinking, room=1, context=context, role="student")
    with exclusive(out.with_name(f".{out.name}.lock"), f"{out}: another process is writing this evaluation; wait for it"):
        _, summary = evaluate(
            TorchEngine(model),
            tokenizer,
            records,
            scorer,
            out=out,
            model=model_path,
            adapter=adapter,
            judge_spec=judge,
            samples=samples,
            sampling=sampling,
            thinking=thinking,
        )
    return summary


def _stage(config: DemoConfig, values: Mapping[str, Any], directory: Path, adapter: Path | None) -> dict[str, Any]:
    """A trainer's configuration with what the recipe decides: where to write, which model, which data."""
    tables = {name: dict(table) if isinstance(table, Mapping) else table for name, table in values.items()}
    decided = {
        "run": {"dir": str(directory), "seed": config.seed},
        "model": to_mapping(config.model) | {"adapter": None if adapter is None else str(adapter)},
        "data": {"train": str(directory.parent / "environments" / "train.jsonl")},
    }
    return tables | {name: tables.get(name, {}) | table for name, table in decided.items()}


def _evaluate_row(config: DemoConfig, run_dir: Path, row: str, adapter: Path | None) -> None:
    evaluate_model(
        **to_mapping(config.evaluation),
        model_path=config.model.path,
        dtype=config.model.dtype,
        device=config.model.device,
        adapter=adapter,
        environments=run_dir / "environments" / "heldout.jsonl",
        out=run_dir / "eval" / row,
    )


def _write_run_file(run_dir: Path, papers: Path, config: DemoConfig, stages: list[str]) -> None:
    """Writes run.json, or checks that an earlier call in this directory was the same recipe."""
    from papergym.judge.general import load_general

    path = run_dir / "run.json"
    settings = to_mapping(config) | {"papers": str(papers)}
    if path.exists():
        before = read_json(path)["config"]
        if differing := [name for name in settings if before.get(name) != settings[name]]:
            raise InputError(f"{path}: this directory holds a run with another {differing[0]!r}; choose another --run or remove {run_dir}")
        return
    write_json(
        path,
        {
            "command": " ".join(["papergym", *sys.argv[1:]]),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
            "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "model": config.model.path,
            "judge": config.evaluation.judge,
            "general_criteria": [criterion.name for criterion in load_general()],
            "stages": stages,
            "config": settings,
        },
    )
