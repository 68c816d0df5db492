"""`papergym bench …`. Each command imports what it needs when it runs."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from papergym.command_line import PATH, Group
from papergym.files import check_replaceable


def _out(text: str = "JSON lines") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """--out, refused at once where no file can be written: measuring takes minutes."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--out", type=PATH, default=None, help=text)
        @wraps(command)
        def checked(*arguments: Any, out: Path | None, **options: Any) -> None:
            if out is not None:
                check_replaceable(out)
            command(*arguments, out=out, **options)

        return checked

    return decorate


@click.group(cls=Group)
def bench() -> None:
    """Measure what kernels, judges and the data pipeline cost."""


@bench.command()
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--rows", multiple=True, type=click.IntRange(1), help="N  [default: 128, 512 on a CPU; 1024, 4096, 8192, 32768 on a GPU]")
@click.option("--width", "widths", multiple=True, type=click.IntRange(1), help="H  [default: 1024 on a CPU; 2048, 2560, 4096 on a GPU]")
@click.option("--vocabulary", default=151936, show_default=True, type=click.IntRange(2))
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), help="[default: float32 on a CPU, bfloat16 on a GPU]")
@click.option("--only", default="", help="implementations whose name contains this")
@click.option("--minutes", default=9.0, show_default=True, help="what has not begun by then is skipped")
@_out("JSON lines; a plot goes beside it")
def kernels(
    device: str,
    rows: tuple[int, ...],
    widths: tuple[int, ...],
    vocabulary: int,
    dtype: str | None,
    only: str,
    minutes: float,
    out: Path | None,
) -> None:
    """Check the fused operations against fp64, then time them beside eager PyTorch, torch.compile, Liger-Kernel and TRL."""
    from papergym.bench.kernels import report

    large = device == "cuda"
    rows = rows or ((1024, 4096, 8192, 32768) if large else (128, 512))
    widths = widths or ((2048, 2560, 4096) if large else (1024,))
    report(device, list(rows), list(widths), vocabulary, dtype or ("bfloat16" if large else "float32"), only, minutes, out)


@bench.command()
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["float32", "bfloat16"]))
@click.option("--hidden", default=512, show_default=True, type=click.IntRange(128))
@click.option("--layers", default=8, show_default=True, type=click.IntRange(1))
@click.option("--vocabulary", default=151936, show_default=True, type=click.IntRange(2))
@click.option("--sequences", default=8, show_default=True, type=click.IntRange(1), help="of a training step")
@click.option("--tokens", default=256, show_default=True, type=click.IntRange(2), help="of each")
@click.option("--groups", multiple=True, type=click.IntRange(1), default=(1, 8), show_default=True, help="of 8 samples, drawn together")
@click.option("--sampled", default=128, show_default=True, type=click.IntRange(1), help="tokens of each sample")
@click.option("--phase", "phases", multiple=True, type=click.Choice(["training", "sampling", "GRPO"]), help="[default: all]")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--only", default="", help="beside papergym, implementations whose name contains this")
@click.option("--vllm-python", default=None, help="the interpreter of an installation that has vLLM and papergym: samples beside it")
@click.option("--profile", type=PATH, default=None, help="instead: a Chrome trace of a GRPO step and its dearest operators, in this folder")
@click.option("--memory-snapshot", type=PATH, default=None, help="instead: the operators that allocate most; on a GPU every allocation")
@_out()
def step(
    device: str,
    dtype: str,
    phases: tuple[str, ...],
    repeats: int,
    only: str,
    vllm_python: str | None,
    profile: Path | None,
    memory_snapshot: Path | None,
    out: Path | None,
    **shape: Any,
) -> None:
    """Time a training step, sampling and a GRPO step beside Hugging Face with PEFT, TRL and vLLM, on the same weights and tokens."""
    from papergym.bench.step import PHASES, Shape, report, trace

    if profile or memory_snapshot:
        trace(Shape(**shape), device, dtype, profile, memory_snapshot)
    else:
        report(Shape(**shape), device, dtype, phases or PHASES, repeats, only, vllm_python, out)


@bench.command("compile")
@click.option("--chip", "chips", multiple=True, type=int, default=(80, 86, 89, 90, 120), show_default=True, help="compute capability")
@click.option("--only", default="", help="kernels whose name contains this")
@_out()
def compile_(chips: tuple[int, ...], only: str, out: Path | None) -> None:
    """Compile every Triton kernel for named chips and show registers, spills, shared memory and matrix instructions. Needs no GPU."""
    from papergym.bench.compile import report

    report(list(chips), only, out)


@bench.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="a Hugging Face directory, .gguf or a name")
@click.option("--plans", default=50, show_default=True, type=click.IntRange(1), help="with about 17 criteria each")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="that the plans are judged in, each by every way")
@click.option("--concurrency", default=32, show_default=True, type=click.IntRange(1), help="requests under way")
@click.option("--dtype", default="bfloat16", show_default=True, type=click.Choice(["bfloat16", "float32"]))
@click.option("--context", default=8192, show_default=True, type=click.IntRange(1), help="tokens")
@click.option("--cache", default=2.0, show_default=True, type=click.FloatRange(0.0, min_open=True), help="GiB of the server's cache")
@click.option("--eager", is_flag=True, help="vLLM compiles nothing: for a CPU")
@click.option("--python", default=None, help="the interpreter of an installation that has vLLM  [default: this one]")
@_out()
def judging(**options: Any) -> None:
    """Judge plans by the three ways and by a plain client on one vLLM server: plans a second, tokens, agreement."""
    from papergym.bench.judging import report

    report(**options)


@bench.command()
@click.argument("papers", nargs=-1, type=PATH, required=True)
@click.option("--fixtures", type=PATH, envvar="PAPERGYM_FIXTURES", help="the folder of real papers that the tests know the content of")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="in which the loaders take turns")
@_out()
def latex(papers: tuple[Path, ...], **options: Any) -> None:
    """Load PAPERS, folders, by papergym, pylatexenc, pandoc and arxiv-to-prompt: papers a second, and what each reads wrongly."""
    from papergym.bench.latex import report

    report(papers, **options)


@bench.command()
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1), default=(10, 100, 1000, 10000), show_default=True, help="papers")
@click.option("--asked", "asked_sizes", multiple=True, type=click.IntRange(1), default=(10, 100, 1000), show_default=True, help="by model")
@click.option("--papers", type=PATH, default=Path("examples/papers"), show_default=True, help="a folder of samples to copy")
@_out()
def build(**options: Any) -> None:
    """Build environments of ever more papers, by rules and by a scripted model: memory, papers a second, and calls that the cache saves."""
    from papergym.bench.build_scale import report

    report(**options)
