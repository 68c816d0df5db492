"""The command line. Commands import what they need when they run, so that `papergym --help` is instant and needs no torch."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from papergym.bench.commands import bench
from papergym.command_line import PATH, Group
from papergym.errors import InputError


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="papergym")
def main() -> None:
    """Turn research papers into training environments and post-train language models on them.

    Trainers are launched as modules: python -m papergym.distill.train, python -m papergym.rl.train, python -m papergym.training.sft.
    """


@main.command()
@click.argument("papers", nargs=-1, type=PATH, required=True)
@click.option("--out", type=PATH, required=True, help="the environments, JSON lines")
@click.option("--extractor", default="rules", show_default=True, help="a built-in extractor, module:function or a recipe.toml")
@click.option("--domain", default=None, help="cs, physics, econ, …; otherwise paper.toml or the paper's words decide")
@click.option("--limit", default=None, type=click.IntRange(1), help="only the first papers")
@click.option("--max-cost", default=None, type=click.FloatRange(0.0), help="what this call may spend, by the recipe's prices")
@click.option("--engine", default="process", show_default=True, type=click.Choice(["process", "ray"]), help="this process, or Ray Data")
@click.option("--workers", default=None, type=click.IntRange(1), help="of Ray  [default: one a CPU; with a recipe one a machine, or a GPU]")
def build(papers: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Make environments from PAPERS: each one paper, as a directory, .tex, .gz, .tar(.gz) or .zip of LaTeX. Run again to go on."""
    from papergym.data_pipeline.build import build as build_environments
    from papergym.data_pipeline.collection import check_single_papers

    if out.suffix != ".jsonl":
        raise InputError(f"--out {out}: name a .jsonl file to write the environments to")
    check_single_papers(papers)
    summary = build_environments(papers, out, **options)
    left = f", {summary.left} left over at the end of the budget: run again to go on" if summary.left else ""
    click.echo(f"{summary.environments} environments in {summary.out}, {summary.rejected} papers rejected, see {summary.rejects}{left}")
    if summary.report:
        click.echo(summary.report)


@main.command("import")
@click.argument("format_name", metavar="FORMAT")
@click.argument("files", nargs=-1, type=PATH, required=True)
@click.option("--out", type=PATH, required=True, help="the environments, JSON lines; what can't be used goes to OUT.rejects.jsonl")
@click.option("--domain", default=None, help="of all environments, in place of the data set's own")
def import_(format_name: str, files: tuple[Path, ...], out: Path, domain: str | None) -> None:
    """Make environments from FILES of a rubric data set.

    FORMAT: research-plan-gen, researchqa, rubrichub, rar-science, healthbench, papergym (what `papergym export` writes), module:function.
    """
    from papergym.data_pipeline.imports import import_files

    summary = import_files(format_name, files, out, domain=domain)
    click.echo(f"{summary.environments} environments in {summary.out}, {summary.rejected} records rejected, see {summary.rejects}")


@main.command()
@click.argument("environments", nargs=-1, type=PATH, required=True)
@click.option("--out", type=PATH, required=True, help="a .parquet file, or a new folder in the layout of Hugging Face datasets")
def export(environments: tuple[Path, ...], out: Path) -> None:
    """Write ENVIRONMENTS, JSON lines, as parquet."""
    from papergym.data_pipeline.export import export_environments
    from papergym.environment import read_environments

    found = [environment for path in environments for environment in read_environments(path)]
    for path in export_environments(found, out):
        click.echo(path)


@main.command()
@click.argument("environments", type=PATH)
@click.option("--train", type=PATH, required=True, help="where to write the environments to train on")
@click.option("--heldout", type=PATH, required=True, help="where to write the others")
@click.option("--share", default=1 / 3, show_default="1/3", type=click.FloatRange(0.0, 1.0), help="of the papers to hold out")
@click.option("--after", type=click.DateTime(["%Y-%m-%d"]), default=None, help="hold out the papers from this day on instead")
@click.option("--per-domain", type=click.IntRange(1), default=None, help="hold out that many papers of each domain")
@click.option("--similarity", type=float, default=None, help="near-duplicates, alike this far, count as one paper; 0.5 is a good value")
@click.option("--domain", "domains", multiple=True, help="use these domains only")
@click.option("--subset", "subsets", multiple=True, type=int, help="write TRAIN-N.jsonl too: N of them, nested, balanced over domains")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
def split(environments: Path, train: Path, heldout: Path, domains: tuple[str, ...], subsets: tuple[int, ...], **rule: Any) -> None:
    """Split ENVIRONMENTS by paper. Without --after, one whose `split` is "train" or "heldout" already keeps its side.

    What can be on neither side goes to TRAIN.left_out.jsonl, each with a reason.
    """
    from papergym.data_pipeline.split import SplitRule, write_split
    from papergym.data_pipeline.subsets import of_domains
    from papergym.environment import read_environments

    chosen = of_domains(read_environments(environments), domains)
    rule["after"] = rule["after"] and rule["after"].date()
    found, files = write_split(chosen, train, heldout, SplitRule(**rule), subsets, environments)
    for path, side in ((train, found.train), (heldout, found.heldout)):
        click.echo(f"{len(side)} environments in {path}")
    for path in files:
        click.echo(path)
    if found.left_out:
        click.echo(f"{len(found.left_out)} on neither side, see {train.with_name(train.stem + '.left_out.jsonl')}")


@main.command()
@click.argument("heldout", type=PATH)
@click.option("--out", type=PATH, required=True, help="a folder for innov.jsonl, design.jsonl and rejects.jsonl")
@click.option("--extractor", type=PATH, default=None, help="a recipe.toml, whose models elicit the criteria anew; else they are reused")
@click.option("--limit", default=None, type=click.IntRange(1), help="only the first environments")
@click.option("--max-cost", default=None, type=click.FloatRange(0.0), help="what this call may spend, by the recipe's prices")
def benchmark(heldout: Path, out: Path, extractor: Path | None, limit: int | None, max_cost: float | None) -> None:
    """Make PaperGym-Innov and PaperGym-Design, which test method and experiment apart, of HELDOUT environments. Run again to go on."""
    from papergym.data_pipeline.benchmarks import write_benchmarks
    from papergym.environment import read_environments

    summary = write_benchmarks(read_environments(heldout)[:limit], out, extractor=extractor, max_cost=max_cost)
    for path, count in summary.counts.items():
        click.echo(f"{count} in {path}")
    if summary.left:
        click.echo(f"{summary.left} left over at the end of the budget: run again to go on")
    if summary.report:
        click.echo(summary.report)


@main.command()
@click.argument("files", nargs=-1, type=PATH, required=True)
@click.option("--out", type=PATH, required=True, help="a directory for tables, pictures, JSON and sheets")
@click.option("--judge", default=None, help="a .toml file of kind llm, whose model looks for leakage and sorts the criteria")
@click.option(
    "--sample", default=1000, show_default=True, type=click.IntRange(1), help="environments of each file that the model is asked about"
)
@click.option(
    "--papers", type=PATH, default=None, help="the folder that the environments were built from: checks that what they quote is there"
)
@click.option("--sheet", is_flag=True, help="write a sheet for a person to label instead")
@click.option("--rubrics", default=20, show_default=True, type=click.IntRange(1), help="of each file that go on the sheet")
@click.option(
    "--answers", multiple=True, type=PATH, help="RUN/eval/ROW.jsonl: the judge's verdicts are labelled, or compared with labels, too"
)
@click.option("--labels", multiple=True, type=PATH, help="a sheet that was labelled, .json or .csv; may be repeated")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="of the samples")
def audit(files: tuple[Path, ...], out: Path, sheet: bool, rubrics: int, **options: Any) -> None:
    """Measure rubric data sets: FILES of environments, JSON lines, beside each other. Leakage, composition, duplicates, faithfulness."""
    from papergym.data_pipeline.audits.command import run_audit

    click.echo(run_audit(files, out, sheet=rubrics if sheet else 0, **options))


def _sampling(command: Callable[..., None]) -> Callable[..., None]:
    """The options of what answers environments, and how."""
    options = (
        click.option("--environments", multiple=True, type=PATH, required=True, help="JSON lines; repeated, one benchmark a file"),
        click.option("--out", type=PATH, required=True, help="DIR/ROW: DIR/ROW.jsonl; of several benchmarks DIR/BENCHMARK/ROW.jsonl"),
        click.option("--adapter", type=PATH, default=None, help="a LoRA adapter in PEFT layout"),
        click.option("--engine", type=PATH, default=None, help='a .toml file: kind = "vllm", "http" or module:function, and its options'),
        click.option("--samples", default=8, show_default=True, type=click.IntRange(1), help="answers an environment"),
        click.option("--max-tokens", default=1024, show_default=True, type=click.IntRange(1), help="of an answer, its thinking included"),
        click.option("--thinking-budget", default=None, type=click.IntRange(1), help="tokens after which a thinking block is closed"),
        click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(0.0)),
        click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**63 - 1)),
        click.option("--thinking/--no-thinking", default=True, show_default=True),
        click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"])),
        click.option("--device", default="cpu", show_default=True),
        click.option(
            "--batch-size", default=4, show_default=True, type=click.IntRange(1), help="environments answered, and kept, together"
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _run_benchmarks(model_path: str | None, out: Path, options: dict[str, Any], **scoring: Any) -> None:
    from papergym.judge.benchmarks import evaluate_benchmarks
    from papergym.recipes import engine_loader, evaluate_model

    if not out.name:
        raise InputError(f"--out {out}: name the row, as in runs/eval/base; its files get the endings .jsonl and .json")
    answer = None
    if model_path is not None:
        load = engine_loader(model_path, *(options[name] for name in ("adapter", "dtype", "device", "engine")))
        answer = partial(evaluate_model, model_path=model_path, load=load, **options)
    click.echo(evaluate_benchmarks(answer, out=out, **scoring))


@main.command()
@click.option("--model", "model_path", required=True, help='Hugging Face directory, .gguf or "smollm2-135m"')
@_sampling
def generate(model_path: str, environments: tuple[Path, ...], out: Path, **options: Any) -> None:
    """Answer environments and score nothing; `papergym eval --answers` and `papergym judge` do. Run again to go on where it stopped."""
    _run_benchmarks(model_path, out, options, environments=environments, judge=None)


@main.command()
@click.option("--model", "model_path", default=None, help='Hugging Face directory, .gguf or "smollm2-135m"')
@click.option("--answers", multiple=True, type=PATH, help="in place of a model: written answers, a file for each of the environments")
@click.option("--judge", default="lexical", show_default=True, help="a built-in judge, module:function or a .toml file")
@click.option("--base", "bases", multiple=True, help='the row that others are compared with  [default: "base"]; repeated, a section each')
@_sampling
def eval(model_path: str | None, out: Path, **options: Any) -> None:
    """Answer environments and score the answers: mean rubric reward, and a table of rubric coverage over benchmarks and all rows in DIR.

    With intervals and differences to a base row, as DIR/coverage.txt, .md, .tex and .json. Run again to go on where it stopped.
    """
    scoring = {name: options.pop(name) for name in ("environments", "answers", "judge", "bases")}
    _run_benchmarks(model_path, out, options, **scoring)


@main.command()
@click.argument("answers", nargs=-1, type=PATH)
@click.option("--environments", type=PATH, required=True, help="what the answers answer, JSON lines")
@click.option("--judge", "judges", multiple=True, required=True, help="a built-in judge, module:function or a .toml file; may be repeated")
@click.option("--out", type=PATH, required=True, help="a directory for the verdicts and what follows from them")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1), help="how often each judge scores everything")
@click.option("--agreement", is_flag=True, help="compare each judge with itself over the runs, and with the others")
@click.option("--probe", is_flag=True, help="measure what plans that only look good gain over honest ones; needs no ANSWERS")
def judge(
    answers: tuple[Path, ...], environments: Path, judges: tuple[str, ...], out: Path, runs: int, agreement: bool, probe: bool
) -> None:
    """Score ANSWERS, files such as RUN/eval/*.jsonl, with one judge or several. Run again to go on where it stopped."""
    from papergym.judge.command import run_judges

    click.echo(run_judges(answers, environments, judges, out, runs=runs, agree=agreement, probing=probe))


@main.command()
@click.option("--model", required=True, help='Hugging Face directory, .gguf or "smollm2-135m"')
@click.option("--adapter", type=PATH, required=True, help="a LoRA adapter of that model, in PEFT layout")
@click.option("--out", type=PATH, required=True, help="a new directory")
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
def merge(model: str, adapter: Path, out: Path, dtype: str) -> None:
    """Add an adapter to its base model: a Hugging Face directory that transformers and vLLM load."""
    import torch

    from papergym.model.convert import convert_model

    click.echo(convert_model(model, out, adapter=adapter, dtype=getattr(torch, dtype)))


@main.command()
@click.argument("model")
@click.option("--out", type=PATH, required=True, help="a new directory")
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
def convert(model: str, out: Path, dtype: str) -> None:
    """Write MODEL, a .gguf file, a Hugging Face directory or "smollm2-135m", as a directory that transformers and vLLM load."""
    import torch

    from papergym.model.convert import convert_model

    click.echo(convert_model(model, out, dtype=getattr(torch, dtype)))


@main.command()
@click.argument("answers", nargs=-1, type=PATH, required=True)
@click.option("--environments", type=PATH, required=True, help="what the answers answer, JSON lines")
@click.option("--judge", "judges", multiple=True, required=True, help="a .toml file of kind llm; may be repeated, the majority decides")
@click.option("--tie-breaker", default=None, help="a further judge, which votes where the others are split")
@click.option("--out", type=PATH, required=True, help="a directory for the ballots and the win rates")
@click.option("--pairs", is_flag=True, help="every two models by themselves, with ties, instead of all ranked at once")
@click.option("--orders", default=1, show_default=True, type=click.IntRange(1), help="arrangements of each question's plans to show")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="of the arrangements")
def compare(answers: tuple[Path, ...], environments: Path, judges: tuple[str, ...], out: Path, **options: Any) -> None:
    """Win rates of the models whose answers are in ANSWERS, a file each. Run again to go on where it stopped."""
    from papergym.judge.compare import compare_answers

    click.echo(compare_answers(answers, environments, judges, out, **options))


@main.command()
@click.argument("run", type=PATH)
def report(run: Path) -> None:
    """Write RUN/report.html, one self-contained file, from the files of a run directory."""
    from papergym.report import write_report

    click.echo(write_report(run))


@main.command()
@click.option("--papers", type=PATH, default=Path("examples/papers"), show_default=True, help="a folder of papers")
@click.option("--run", "run_dir", type=PATH, default=Path("runs/demo"), show_default=True, help="where everything is written")
@click.option("--config", type=PATH, default=None, help="the recipe  [default: configs/demo.toml, or configs/demo_long.toml with --long]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="override the recipe, e.g. grpo.run.steps=40")
@click.option("--long", is_flag=True, help="all papers; five rows at equal numbers of steps, three seeds: two to three hours on two cores")
@click.argument("more", nargs=-1, metavar="[KEY=VALUE]…")  # --set takes several: --set a=1 b=2
def demo(papers: Path, run_dir: Path, config: Path | None, overrides: tuple[str, ...], long: bool, more: tuple[str, ...]) -> None:
    """Run the whole path on a small model: papers, environments, OPSD, GRPO, evaluation, report. Run again to go on where it stopped."""
    from papergym.recipes import run_demo, run_long_demo

    if long:
        run_long_demo(papers, run_dir, config or Path("configs/demo_long.toml"), overrides + more)
    else:
        run_demo(papers, run_dir, config or Path("configs/demo.toml"), overrides + more)


@main.command()
@click.option("--config", "path", type=PATH, required=True, help="a TOML recipe of a trainer, see configs/")
@click.option("--gpus", default=1, show_default=True, type=click.IntRange(1))
@click.option("--gpu", required=True, help="a6000, pro6000, h100 or h200")
@click.option("--prompt-tokens", default=512, show_default=True, type=click.IntRange(1), help="of every prompt")
@click.option("--response-tokens", default=None, type=click.IntRange(2), help="of every response  [default: sampling.max_tokens]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="override the recipe, e.g. sampling.max_tokens=8192")
@click.argument("more", nargs=-1, metavar="[KEY=VALUE]…")  # --set takes several: --set a=1 b=2
def plan(
    path: Path, gpus: int, gpu: str, prompt_tokens: int, response_tokens: int | None, overrides: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """Predict memory and seconds a step of a recipe on some GPUs, and what to change when it does not fit. Needs no GPU and no model."""
    from papergym.planning.plan import report as report_plan

    click.echo(report_plan(path, gpus, gpu, prompt_tokens, response_tokens, overrides + more))


main.add_command(bench)

if __name__ == "__main__":
    main()
