"""Recipes: stages in order, evaluation between them, and the report. A recipe that was stopped goes on where it was."""

import ctypes
import dataclasses
import functools
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

from papergym.config import from_mapping, read_values, to_mapping
from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import read_json, read_jsonl, write_json, write_jsonl
from papergym.report.table import format_estimate, print_table, write_table
from papergym.statistics import estimate

PACKAGES = ("papergym", "torch", "numpy", "tokenizers", "safetensors", "gguf")
ALGORITHMS = {
    "opsd": "OPSD: the model learns from itself with the rubric in its prompt",
    "grpo": "GRPO: the rubric as reward",
    "sft": "SFT: imitating the reference",
}


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

    def __post_init__(self) -> None:
        from papergym.training.config import at_least, within

        for name, least in (("samples", 1), ("max_tokens", 1), ("temperature", 0)):
            at_least(self, "evaluation", name, least)
        within(self, "evaluation", "seed", 0, 2**62)


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """The demo's recipe. opsd, grpo and sft are the trainers' own tables; the recipe fills in paths, model and data."""

    opsd: dict[str, Any]
    grpo: dict[str, Any]
    sft: dict[str, Any] = dataclasses.field(default_factory=dict)  # of the long demo
    model: DemoModel = dataclasses.field(default_factory=DemoModel)
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    heldout_share: float = 1 / 3  # of the papers whose paper.toml names no split
    seed: int = 0
    seeds: int = 3  # of the long demo: seed, seed + 1, …

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"key 'seeds' has the value {self.seeds}: at least 1 is needed")
        if not 0 <= self.heldout_share <= 1:
            raise InputError(f"key 'heldout_share' has the value {self.heldout_share}: a number from 0 to 1 is needed")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One training of a recipe. after: the stage whose adapter it goes on from. row: the name of its evaluation, None for none."""

    name: str  # of its directory
    algorithm: str  # opsd, grpo or sft
    steps: int
    after: str | None = None
    row: str | None = None


def run_demo(papers: Path, run_dir: Path, config_path: Path, overrides: Sequence[str] = ()) -> None:
    """The whole path: environments from papers, the base model's evaluation, OPSD, GRPO from there, evaluations, table and report."""
    from papergym.data_pipeline.collection import list_papers
    from papergym.training.loop import run_lock

    started = time.monotonic()
    config = _read_config(config_path, overrides)
    opsd, grpo = config.opsd["run"]["steps"], config.grpo["run"]["steps"]
    stages = [Stage("opsd", "opsd", opsd, row="opsd"), Stage("grpo", "grpo", grpo, after="opsd", row="grpo")]
    with run_lock(run_dir):
        table, page = _run_stages(list_papers(papers), papers, run_dir, config, stages)
    print_table(table)
    print(f"{_reward_change(run_dir / 'grpo')}\n{time.monotonic() - started:.0f} s in this call\n{page}")


def run_long_demo(papers: Path, run_dir: Path, config_path: Path, overrides: Sequence[str] = ()) -> None:
    """Five rows at equal numbers of optimizer steps, for several seeds: base, SFT, OPSD, GRPO, and OPSD then GRPO, which divides them.

    RUN/seed<S> is a run directory for each seed, with a report of its own; RUN's table and report are over the answers of all of them.
    """
    from papergym.data_pipeline.collection import list_papers
    from papergym.report import write_report
    from papergym.training.loop import run_lock

    config = _read_config(config_path, overrides)
    first, second = config.opsd["run"]["steps"], config.grpo["run"]["steps"]
    stages = [
        *(Stage(algorithm, algorithm, first + second, row=algorithm) for algorithm in ("sft", "opsd", "grpo")),
        Stage("opsd_grpo_1", "opsd", first),
        Stage("opsd_grpo_2", "grpo", second, after="opsd_grpo_1", row="opsd_grpo"),
    ]
    sources, directories = list_papers(papers, selected=False), []
    for stage in stages:
        _trainer(config, stage, run_dir)  # a mistake in its settings is found before anything is written
    with run_lock(run_dir):
        _write_run_file(run_dir, papers, config, [])
        for seed in range(config.seed, config.seed + config.seeds):
            evaluation = dataclasses.replace(config.evaluation, seed=config.evaluation.seed + seed)
            directories.append(run_dir / f"seed{seed}")
            _run_stages(sources, papers, directories[-1], dataclasses.replace(config, seed=seed, evaluation=evaluation), stages)
        _join_seeds(run_dir, directories)
        table = write_table(run_dir)
        page = write_report(run_dir)
    print_table(table)
    for directory in directories:
        changes = (f"{stage.name}: {_reward_change(directory / stage.name)}" for stage in stages if stage.algorithm == "grpo")
        print(f"{directory.name}  " + "; ".join(changes))
    print(page)


def _read_config(path: Path, overrides: Sequence[str]) -> DemoConfig:
    """The configuration, checked as far as it can be before anything is written. Raises InputError naming the key."""
    from papergym.judge.scoring import open_judge
    from papergym.model.weights import check_device, resolve_model_path

    config = from_mapping(DemoConfig, read_values(path, overrides))
    for algorithm in ALGORITHMS:
        for name, table in getattr(config, algorithm).items():
            if name in ("run", "model", "data") and not isinstance(table, Mapping):
                raise InputError(f"key '{algorithm}.{name}' is a table, not {table!r}")
    for key, check, value in (
        ("evaluation.judge", open_judge, config.evaluation.judge),
        ("model.path", resolve_model_path, config.model.path),
        ("model.device", check_device, config.model.device),
    ):
        try:
            check(value)
        except InputError as error:
            raise InputError(f"key '{key}': {error}") from error
    for algorithm in ("opsd", "grpo"):
        steps = getattr(config, algorithm).get("run", {}).get("steps")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise InputError(f"key '{algorithm}.run.steps' has the value {steps!r}: a whole number from 1 is needed")
    return config


def _run_stages(
    sources: Sequence[Path], papers: Path, run_dir: Path, config: DemoConfig, stages: Sequence[Stage]
) -> tuple[list[dict[str, Any]], Path]:
    """Environments, the base model's evaluation, each stage and its evaluation, table and report; what is there already is kept."""
    from papergym.model.lora import check_adapter
    from papergym.report import write_report

    console = Console(stderr=True)
    # All are built before anything runs, so that a mistake in the last stage's settings is found first.
    trainers = [_trainer(config, stage, run_dir) for stage in stages]
    _write_run_file(run_dir, papers, config, [stage.name for stage in stages])
    console.rule(f"environments from {len(sources)} papers of {papers}")
    prepare_environments(sources, run_dir / "environments", config.heldout_share, config.seed)
    console.rule("the base model answers the held-out environments")
    _evaluate_row(config, run_dir, "base", None)
    for number, (stage, train) in enumerate(zip(stages, trainers), start=1):
        console.rule(f"training {number} of {len(stages)}: {stage.name}, {stage.steps} steps of {ALGORITHMS[stage.algorithm]}")
        adapter = run_dir / stage.name / "adapter"
        if adapter.exists():
            check_adapter(adapter)
        else:
            train()
            _return_freed_memory()
        if stage.row is not None:
            _evaluate_row(config, run_dir, stage.row, adapter)
    console.rule("table and report")
    return write_table(run_dir), write_report(run_dir)


def prepare_environments(
    papers: Sequence[Path], directory: Path, heldout_share: float, seed: int
) -> tuple[list[Environment], list[Environment]]:
    """Builds environments from papers and writes directory/{all,train,heldout}.jsonl, unless they are there already."""
    from papergym.data_pipeline.build import build
    from papergym.data_pipeline.split import SplitRule, write_split

    train_path, heldout_path = directory / "train.jsonl", directory / "heldout.jsonl"
    if not heldout_path.exists():  # written last
        summary = build(papers, directory / "all.jsonl", rejects=directory / "rejects.jsonl")
        print(f"{summary.environments} environments, {summary.rejected} papers rejected", file=sys.stderr)
        write_split(read_environments(directory / "all.jsonl"), train_path, heldout_path, SplitRule(heldout_share, seed))
    return read_environments(train_path), read_environments(heldout_path)


def evaluate_model(
    *,
    model_path: str,
    adapter: Path | None,
    environments: Path,
    out: Path,
    judge: str | None,
    samples: int,
    max_tokens: int,
    temperature: float,
    seed: int,
    thinking: bool,
    dtype: str,
    device: str,
    engine: Path | None = None,
    thinking_budget: int | None = None,
    batch_size: int = 4,
    load: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Loads a model, answers the environments, scores the answers; writes OUT.jsonl and OUT.json and returns the summary.

    judge: None only answers. engine: a TOML file that names another engine than the built-in one. load: gives an engine that may be there.
    """
    from papergym.judge.evaluation import evaluate
    from papergym.judge.scoring import open_judge
    from papergym.model.generation import SamplingParams
    from papergym.model.prompts import student_messages
    from papergym.model.tokenizer import Tokenizer
    from papergym.model.weights import weights_fingerprint
    from papergym.training.data import encode_prompts

    scorer, records = None if judge is None else open_judge(judge), read_environments(environments)
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    tokenizer = Tokenizer(model_path)
    load = load or engine_loader(model_path, adapter, dtype, device, engine)

    def open_engine() -> Any:
        opened = load()
        if hasattr(opened, "model"):  # others say by themselves what they can't hold
            context = opened.model.config.max_position_embeddings
            encode_prompts(tokenizer, records, student_messages, thinking=thinking, room=1, context=context, role="student")
        if thinking_budget is None:
            return opened
        from papergym.model.generation.thinking_budget import ThinkingBudget

        return ThinkingBudget(opened, tokenizer, thinking_budget)

    further: dict[str, Any] = {"engine": None if engine is None else read_values(engine), "thinking_budget": thinking_budget}
    if engine is None:
        further |= {"weights_sha256": weights_fingerprint(model_path), "dtype": dtype}
    _, summary = evaluate(
        open_engine,
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
        batch_size=batch_size,
        recorded={name: value for name, value in further.items() if value is not None},
    )
    return summary


def engine_loader(model_path: str, adapter: Path | None, dtype: str, device: str, spec: Path | None) -> Callable[[], Any]:
    """A function that loads the engine at its first call. Raises InputError when an adapter is given to an engine that is not ours."""
    if adapter is not None and spec is not None:
        raise InputError(f"--adapter {adapter}: only the built-in engine loads one; serve it, and name it in {spec}, or merge it")

    @functools.cache
    def load() -> Any:
        from papergym.model.generation import TorchEngine, open_engine
        from papergym.model.lora import load_adapter
        from papergym.model.weights import load_model
        from papergym.training.loop import DTYPES

        if spec is not None:
            return open_engine(read_values(spec))
        model = load_model(model_path, dtype=DTYPES[dtype], device=device)
        return TorchEngine(model if adapter is None else load_adapter(model, adapter))

    return load


def _trainer(config: DemoConfig, stage: Stage, run_dir: Path) -> Callable[[], Path]:
    """The training of a stage, with its configuration checked: where to write, which model and which data are the recipe's to say."""
    from papergym.distill.train import OpsdConfig
    from papergym.distill.train import run as train_opsd
    from papergym.rl.train import GrpoConfig
    from papergym.rl.train import run as train_grpo
    from papergym.training.sft import SftConfig
    from papergym.training.sft import run as train_sft

    settings, train = {"opsd": (OpsdConfig, train_opsd), "grpo": (GrpoConfig, train_grpo), "sft": (SftConfig, train_sft)}[stage.algorithm]
    given = {name: dict(table) if isinstance(table, Mapping) else table for name, table in getattr(config, stage.algorithm).items()}
    decided = {
        "run": {"dir": str(run_dir / stage.name), "seed": config.seed, "steps": stage.steps},
        "model": to_mapping(config.model) | {"adapter": str(run_dir / stage.after / "adapter") if stage.after else None},
        "data": {"train": str(run_dir / "environments" / "train.jsonl")},
    }
    values = given | {name: given.get(name, {}) | table for name, table in decided.items()}
    return functools.partial(train, from_mapping(settings, values, prefix=f"{stage.algorithm}."), resume=True)


def _join_seeds(run_dir: Path, directories: Sequence[Path]) -> None:
    """Writes RUN/environments and RUN/eval from the runs of several seeds, whose samples are numbered on."""
    for path in (directories[0] / "environments").glob("*.jsonl"):
        write_jsonl(run_dir / "environments" / path.name, (record for _, record in read_jsonl(path)))
    for path in (directories[0] / "eval").glob("*.jsonl"):
        answers = []
        for number, directory in enumerate(directories):
            records = [record for _, record in read_jsonl(directory / "eval" / path.name)]
            samples = 1 + max(record["sample"] for record in records)
            answers += [record | {"sample": number * samples + record["sample"], "seed": directory.name} for record in records]
        write_jsonl(run_dir / "eval" / path.name, answers)


def _return_freed_memory() -> None:
    """Hands freed memory back to the system: glibc keeps it, in pieces, and every stage adds to them; gigabytes after a few."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in every C library
    if trim is not None:
        trim(0)


def _reward_change(stage_dir: Path) -> str:
    """How the reward of the training environments changed: mean of each one's first and last group, and the paired difference."""
    groups: dict[str, dict[int, list[float]]] = {}
    for _, record in read_jsonl(stage_dir / "rollouts.jsonl"):
        if record["reward"] is not None:
            groups.setdefault(record["environment"], {}).setdefault(record["step"], []).append(record["reward"])
    visits = [[mean(rewards) for _, rewards in sorted(steps.items())] for steps in groups.values()]
    again = [means for means in visits if len(means) > 1]
    if not again:
        return f"training reward {format_estimate(estimate([means[0] for means in visits]))}, no environment was drawn twice"
    first, last = mean(means[0] for means in again), mean(means[-1] for means in again)
    change = format_estimate(estimate([means[-1] - means[0] for means in again]), "{:+.3f}")
    return f"training reward of {len(again)} environments, first group {first:.3f}, last group {last:.3f}, change {change}"


def _evaluate_row(config: DemoConfig, run_dir: Path, row: str, adapter: Path | None) -> None:
    from papergym.judge.evaluation import read_row
    from papergym.model.weights import weights_fingerprint

    if (run_dir / "eval" / f"{row}.json").exists():  # written last; run.json has vouched for the settings
        read_row(run_dir / "eval" / row, {"weights_sha256": weights_fingerprint(config.model.path)})
        return
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
