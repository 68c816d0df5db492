"""The training stages of a run directory, or of the seeds below it: metrics, rollouts, and which stage went on from which."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from papergym.errors import InputError
from papergym.files import read_jsonl
from papergym.report.records import Answer, integer, read_answer, read_object

Metrics = Sequence[Mapping[str, float | None]]


@dataclass(frozen=True)
class Stage:
    """A training stage. metrics: one mapping a step, ascending, numbers only (None where the value was not finite).

    after: the stage whose adapter it went on from, "" for none. seeds: the metrics of each seed where there are several; metrics are then
    their means.
    """

    name: str
    metrics: Metrics
    rollouts: Sequence[Answer]
    after: str = ""
    seeds: Mapping[str, Metrics] = field(default_factory=dict)


def read_stages(directory: Path, named: Sequence[str], rubrics: Mapping[str, int], notes: list[str]) -> list[Stage]:
    folders = {path.parent for name in ("metrics.jsonl", "rollouts.jsonl") for path in directory.glob(f"*/{name}")}
    stages = []
    for folder in folders:
        metrics = _metrics(folder / "metrics.jsonl", directory, notes)
        rollouts = _rollouts(folder / "rollouts.jsonl", directory, rubrics, notes)
        if metrics or rollouts:
            stages.append(Stage(folder.name, metrics, rollouts))

    names = {stage.name for stage in stages}
    stages = [replace(stage, after=after) if (after := _predecessor(directory / stage.name)) in names else stage for stage in stages]

    def order(stage: Stage) -> tuple[int, float, str]:
        place = list(named).index(stage.name) if stage.name in named else len(named)
        start = stage.metrics[0].get("time") if stage.metrics else None
        return (place, start if start is not None else float("inf"), stage.name)

    return sorted(stages, key=order)


def _predecessor(folder: Path) -> str:
    """Name of the stage whose adapter this one started from."""
    model = read_object(folder / "config.json").get("model")
    adapter = model.get("adapter") if isinstance(model, Mapping) else None
    return Path(adapter).parent.name if isinstance(adapter, str) else ""


def read_seed_stages(directory: Path, rubrics: Mapping[str, int], notes: list[str]) -> list[Stage]:
    """The stages of a run over several seeds, RUN/seed<S>/<stage>: metrics are means over the seeds that have the step."""
    found: dict[str, dict[str, Stage]] = {}
    for folder in sorted(directory.glob("seed*")):
        for stage in read_stages(folder, read_object(folder / "run.json").get("stages") or (), rubrics, notes):
            found.setdefault(stage.name, {})[folder.name] = stage
    return [
        Stage(
            name,
            _mean_metrics([stage.metrics for stage in seeds.values()]),
            [replace(rollout, seed=seed) for seed, stage in seeds.items() for rollout in stage.rollouts],
            next(iter(seeds.values())).after,
            {seed: stage.metrics for seed, stage in seeds.items()},
        )
        for name, seeds in found.items()
    ]


def _mean_metrics(seeds: Sequence[Metrics]) -> list[dict[str, float | None]]:
    steps: dict[int, list[Mapping[str, float | None]]] = {}
    for record in chain.from_iterable(seeds):
        steps.setdefault(int(record["step"] or 0), []).append(record)
    return [
        {name: fmean(known) if (known := [v for r in records if (v := r.get(name)) is not None]) else None for name in chain(*records)}
        for _, records in sorted(steps.items())
    ]


def _metrics(path: Path, directory: Path, notes: list[str]) -> list[dict[str, float | None]]:
    steps: dict[int, dict[str, float | None]] = {}
    repeated = 0
    for number, record in _appended(path, directory, notes):
        step = integer(record, "step", f"{path}, line {number}")
        repeated += step in steps
        steps[step] = {key: value for key, value in record.items() if value is None or isinstance(value, int | float)}
    if repeated:
        notes.append(f"{path.relative_to(directory)}: {_steps(repeated)} recorded twice, as after a resume; the later record is shown.")
    return [steps[step] for step in sorted(steps)]


def _rollouts(path: Path, directory: Path, rubrics: Mapping[str, int], notes: list[str]) -> list[Answer]:
    rollouts: dict[tuple[int, str, int], Answer] = {}
    for number, record in _appended(path, directory, notes):
        answer = read_answer(record, path.parent.name, where := f"{path}, line {number}", rubrics, step=integer(record, "step", where))
        rollouts[answer.step or 0, answer.environment, answer.sample] = answer
    return sorted(rollouts.values(), key=lambda answer: answer.step or 0)


def _steps(count: int) -> str:
    return "1 step was" if count == 1 else f"{count} steps were"


def _appended(path: Path, directory: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records of a file that training appends to: a last line without an end that can't be read is what a kill leaves."""
    if not path.exists():
        return
    try:
        yield from read_jsonl(path)
    except InputError as error:
        data = path.read_bytes()
        last = data[data.rfind(b"\n") + 1 :]
        lines = data.count(b"\n") + 1
        if not last or not str(error).startswith(f"{path}, line {lines}:") or _parses(last):
            raise
        notes.append(
            f"{path.relative_to(directory)}: the last line ({lines}) is cut off, as after a kill or in a run under way; it is left out."
        )


def _parses(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True
