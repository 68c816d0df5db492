"""What `papergym plan` says of the paper's six recipes at three lengths of their answers: a table, and JSON lines.

    python -m papergym.bench.plans --out bench/results/plans.jsonl

OPSD and GRPO of Qwen3 1.7B and 4B on four GPUs of 48 GB and of 8B on four of 96 GB, section 4.1 of the paper; prompts of 512 tokens.
"""

from pathlib import Path

import click

from papergym.errors import exit_on_input_error
from papergym.files import write_jsonl
from papergym.planning.plan import Plan, load_recipe, make_plan, workload
from papergym.planning.roofline import DEVICES

RECIPES = {"1.7b": "a6000", "4b": "a6000", "8b": "pro6000"}
LENGTHS = (4096, 8192, 16384)
PROMPT_TOKENS = 512


def records(configs: Path) -> list[dict[str, object]]:
    """One record a recipe and length: GiB by item in each phase, and seconds of a step."""
    found: list[dict[str, object]] = []
    for size, gpu in RECIPES.items():
        for stage in ("opsd", "grpo"):
            config = load_recipe(configs / f"{stage}_qwen3_{size}.toml")
            for length in LENGTHS:
                plan = make_plan(workload(config, 4, PROMPT_TOKENS, length), DEVICES[gpu])
                found.append({"recipe": f"{stage}_qwen3_{size}", "gpus": 4, "gpu": gpu, "response_tokens": length, **_figures(plan)})
    return found


def _figures(plan: Plan) -> dict[str, object]:
    phases = {phase: {name: round(size / 2**30, 2) for name, size in items.items()} for phase, items in plan.phases.items()}
    return {
        "GiB": phases,
        "peak": round(plan.peak / 2**30, 1),
        "fits": plan.fits,
        "seconds": {k: round(v, 1) for k, v in plan.seconds.items()},
    }


@click.command(help="Plan the paper's six recipes at three lengths of their answers.")
@click.option("--configs", type=click.Path(path_type=Path), default=Path("configs"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="results, JSON lines")
def main(configs: Path, out: Path) -> None:
    with exit_on_input_error():
        found = records(configs)
        write_jsonl(out, found)
        click.echo(
            "| recipe | GPUs | answer tokens | training, GiB | sampling, GiB | fits | seconds a step |\n|---|---|---|---|---|---|---|"
        )
        for record in found:
            totals = " | ".join(f"{sum(items.values()):.1f}" for items in record["GiB"].values())  # type: ignore[attr-defined]
            seconds = sum(record["seconds"].values())  # type: ignore[attr-defined]
            device, fits = DEVICES[str(record["gpu"])].name, "yes" if record["fits"] else "no"
            click.echo(f"| {record['recipe']} | 4 × {device} | {record['response_tokens']} | {totals} | {fits} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
