"""The two benchmarks of held-out papers, each with one dimension of the rubric (paper, D.3).

PaperGym-Innov asks the environment's question and judges the method alone. PaperGym-Design gives the method away and asks for the
experiment that would test it. Both keep the environment's own criteria of their dimension, as many as there are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from papergym.data_pipeline.compose import ASKS
from papergym.environment import Environment, write_environments
from papergym.errors import InputError
from papergym.files import write_jsonl

_DESIGN_ASK = (
    "Take this approach as given. Design the experiments that would show whether it works: what is measured and on what, against which "
    "baselines and controls, and how the outcome is judged. Do not propose another approach."
)


def innovation(environment: Environment) -> Environment:
    """The environment of PaperGym-Innov. Raises InputError when the environment has no method stage or no criterion about it."""
    return replace(
        environment,
        id=f"{environment.id}-innov",
        reference=_stage(environment, "method"),
        **_common(environment, "method", "PaperGym-Innov"),
    )


def design(environment: Environment) -> Environment:
    """The environment of PaperGym-Design. Raises InputError when it lacks method, experiment, or a criterion about the experiment."""
    problem = environment.question.strip()
    for ask in ASKS:
        problem = problem.removesuffix(ask).rstrip()
    return replace(
        environment,
        id=f"{environment.id}-design",
        question=f"{problem}\n\nProposed approach: {_stage(environment, 'method')}\n\n{_DESIGN_ASK}",
        reference=_stage(environment, "experiment"),
        **_common(environment, "experiment", "PaperGym-Design"),
    )


BENCHMARKS: dict[str, Callable[[Environment], Environment]] = {"innov": innovation, "design": design}


def write_benchmarks(environments: Sequence[Environment], out: Path) -> dict[Path, int]:
    """Writes OUT/innov.jsonl, OUT/design.jsonl and, for what can't be in them, {"environment", "benchmark", "reason"} to OUT/rejects.jsonl.

    Returns the number in each file. Raises InputError when a benchmark would be empty.
    """
    rejects: list[dict[str, str]] = []
    made: dict[Path, list[Environment]] = {}
    for name, make in BENCHMARKS.items():
        chosen = made[out / f"{name}.jsonl"] = []
        for environment in environments:
            try:
                chosen.append(make(environment))
            except InputError as error:
                rejects.append({"environment": environment.id, "benchmark": name, "reason": str(error)})
        if not chosen:
            raise InputError(f"none of {len(environments)} environments can be in the benchmark {name}: {rejects[-1]['reason']}")
    for path, chosen in made.items():
        write_environments(path, chosen)
    write_jsonl(out / "rejects.jsonl", rejects)
    return {path: len(chosen) for path, chosen in made.items()} | {out / "rejects.jsonl": len(rejects)}


def _stage(environment: Environment, name: str) -> str:
    text = (environment.stages or {}).get(name, "").strip()
    if not text:
        raise InputError(f"environment {environment.id!r}, stages.{name}: a text is needed, and there is none")
    return text


def _common(environment: Environment, dimension: str, benchmark: str) -> dict:
    rubric = tuple(criterion for criterion in environment.rubric if criterion.dimension == dimension)
    if not any(criterion.weight > 0 for criterion in rubric):
        raise InputError(f"environment {environment.id!r}, rubric: no criterion has the dimension {dimension!r}")
    return {"rubric": rubric, "benchmark": benchmark, "split": "heldout", "messages": None}
