"""The two benchmarks of held-out papers, each with one dimension of the rubric (paper, D.3).

PaperGym-Innov asks the environment's question and judges the method alone. PaperGym-Design gives the method away and asks for the
experiment that would test it. Both keep the environment's own criteria of their dimension, as many as there are; with a recipe, language
models elicit criteria of that dimension anew (lm/benchmarks.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from papergym.data_pipeline.compose import ASKS
from papergym.environment import Environment, write_environments
from papergym.errors import InputError
from papergym.files import write_jsonl

DIMENSION = {"PaperGym-Innov": "method", "PaperGym-Design": "experiment"}
_DESIGN_ASK = (
    "Take this approach as given. Design the experiments that would show whether it works: what is measured and on what, against which "
    "baselines and controls, and how the outcome is judged. Do not propose another approach."
)
_ONLY_DESIGN = "Of what is asked above, only the experiments are wanted. "  # after a question whose own words ask for a method too


@dataclass(frozen=True)
class BenchmarkSummary:
    """The number of records in each file; environments left over at the end of the budget, once for each benchmark that lacks them.

    report: what language models were asked and what it cost, sentences for a person; "" without any.
    """

    counts: Mapping[Path, int]
    left: int = 0
    report: str = ""


def innovation(environment: Environment) -> Environment:
    """The environment of PaperGym-Innov, with the criteria about the method that it has. Raises InputError when it has no method stage."""
    return replace(
        environment,
        id=f"{environment.id}-innov",
        reference=_stage(environment, "method"),
        **_common(environment, "PaperGym-Innov"),
    )


def design(environment: Environment) -> Environment:
    """The environment of PaperGym-Design, with the criteria about the experiment that it has.

    Raises InputError when it lacks the stage of the method or of the experiment.
    """
    asked = environment.question.strip()
    problem = asked
    for ask in ASKS:
        problem = problem.removesuffix(ask).rstrip()
    only = _ONLY_DESIGN if problem == asked else ""
    return replace(
        environment,
        id=f"{environment.id}-design",
        question=f"{problem}\n\nProposed approach: {_stage(environment, 'method')}\n\n{only}{_DESIGN_ASK}",
        reference=_stage(environment, "experiment"),
        **_common(environment, "PaperGym-Design"),
    )


BENCHMARKS: dict[str, Callable[[Environment], Environment]] = {"innov": innovation, "design": design}


def write_benchmarks(
    environments: Sequence[Environment], out: Path, *, extractor: str | Path | None = None, max_cost: float | None = None
) -> BenchmarkSummary:
    """Writes OUT/innov.jsonl, OUT/design.jsonl and, for what can't be in them, {"environment", "benchmark", "reason"} to OUT/rejects.jsonl.

    extractor: a recipe, a .toml file, whose models elicit the criteria anew, within max_cost in the recipe's currency; a run that was
    stopped, in whatever way, goes on where it stopped. Raises InputError when a benchmark would be empty.
    """
    if extractor is not None:
        from papergym.data_pipeline.lm.benchmarks import elicit_benchmarks

        return elicit_benchmarks(environments, out, extractor, max_cost)
    if max_cost is not None:
        raise InputError(f"max_cost {max_cost:g}: criteria that an environment has already cost nothing; only --extractor RECIPE.toml does")
    rejects: list[dict[str, str]] = []
    made: dict[str, list[Environment]] = {name: [] for name in BENCHMARKS}
    for name, make in BENCHMARKS.items():
        for environment in environments:
            try:
                made[name].append(_scorable(make(environment), environment.id))
            except InputError as error:
                rejects.append(reject(environment, name, str(error)))
        if not made[name]:
            raise InputError(nothing(name, len(environments), rejects))
    for name, chosen in made.items():
        write_environments(out / f"{name}.jsonl", chosen)
    write_jsonl(out / "rejects.jsonl", rejects)
    return BenchmarkSummary({out / f"{name}.jsonl": len(made[name]) for name in made} | {out / "rejects.jsonl": len(rejects)})


def reject(environment: Environment, benchmark: str, reason: str) -> dict[str, str]:
    """The record of an environment that can't be in a benchmark."""
    return {"environment": environment.id, "benchmark": benchmark, "reason": reason}


def nothing(benchmark: str, environments: int, rejects: Sequence[Mapping[str, str]]) -> str:
    """That a benchmark would be empty, and why, by the first of its rejects."""
    reason = next(record["reason"] for record in rejects if record["benchmark"] == benchmark)
    return f"none of {environments} environments can be in the benchmark {benchmark}: {reason}"


def _scorable(made: Environment, name: str) -> Environment:
    if not any(criterion.weight > 0 for criterion in made.rubric):
        raise InputError(f"environment {name!r}, rubric: no criterion has the dimension {DIMENSION[made.benchmark]!r}")
    return made


def _stage(environment: Environment, name: str) -> str:
    text = (environment.stages or {}).get(name, "").strip()
    if not text:
        raise InputError(f"environment {environment.id!r}, stages.{name}: a text is needed, and there is none")
    return text


def _common(environment: Environment, benchmark: str) -> dict[str, Any]:
    rubric = tuple(criterion for criterion in environment.rubric if criterion.dimension == DIMENSION[benchmark])
    return {"rubric": rubric, "benchmark": benchmark, "split": "heldout", "messages": None}
