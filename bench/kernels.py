"""`papergym bench kernels`: the fused operations beside other implementations, checked against fp64 first and timed after.

On a GPU one call takes at most --minutes: N to 32768, V = 151936, the widths of Qwen3 1.7B, 4B and 8B. On a CPU small N by default.
All run in turn, round by round, so that a ratio of two times means something on a machine that others use too; "over GEMMs" is the median
of such ratios to the matrix products alone. Legend: N rows, H hidden width, V vocabulary. The head is frozen, and student and teacher
share it.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from papergym.bench import peers
from papergym.bench.measure import device_name, interleaved_milliseconds, operations, peak_bytes
from papergym.errors import InputError
from papergym.files import write_jsonl
from papergym.planning import roofline

CHECK_ROWS = 64
BETA = 0.5


@dataclass(frozen=True)
class Operation:
    """plain: the formula. flop and seconds: of (rows, width, vocabulary), the latter with the device first."""

    plain: Callable
    flop: Callable
    seconds: Callable


OPERATIONS = {
    "divergence": Operation(peers.plain_jsd, roofline.jsd_flop, roofline.jsd_seconds),
    "logprob": Operation(peers.plain_logprob, roofline.logprob_flop, roofline.logprob_seconds),
    "logprob_forward": Operation(
        peers.plain_logprob, partial(roofline.logprob_flop, backward=False), partial(roofline.logprob_seconds, backward=False)
    ),
}
NOISE = 0.05  # of the teacher's hidden states against the student's: self-distillation, where the divergence is small
BAR = {torch.bfloat16: 5e-3, torch.float32: 1e-4}  # of papergym's gradient; the others are only shown
HEADINGS = (
    *("operation", "implementation", "N", "H", "ms", "over GEMMs", "tokens/s", "TFLOP/s", "FLOP/NHV", "bytes/floor", "peak MiB"),
    *("value error", "gradient error", "model ms"),
)


def report(
    device: str, rows: list[int], widths: list[int], vocabulary: int, dtype: str, only: str, minutes: float, out: Path | None
) -> None:
    """Runs the implementations whose names contain `only` and prints a table; writes JSON lines to `out` and a plot beside it.

    Raises InputError if papergym's own gradient misses its bar.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch sees no GPU here")
    deadline = time.monotonic() + 60 * minutes
    records = list(_measure(device, rows, widths, vocabulary, getattr(torch, dtype), only, deadline))
    _table(records, device)
    if out is not None:
        write_jsonl(out, records)
        _plot(records, out.with_suffix(".png"))
    wrong = [record for record in records if record.get("fault")]
    if wrong:
        raise InputError("; ".join(f"{record['implementation']} at H={record['width']}: {record['fault']}" for record in wrong))


def _measure(
    device: str, rows: list[int], widths: list[int], vocabulary: int, dtype: torch.dtype, only: str, deadline: float
) -> Iterator[dict[str, Any]]:
    environment = _environment(device)
    for operation in OPERATIONS:
        found, absent = getattr(peers, f"{operation}_implementations")(device)
        found = {name: run for name, run in found.items() if only in name}
        for name, reason in absent.items():
            yield environment | {"operation": operation, "implementation": name, "absent": reason}
        for width in widths:
            torch.compiler.reset()  # it compiles a function for eight shapes at most
            head = _normal((vocabulary, width), 1, device).mul_(2 / width**0.5).to(dtype)
            exact = _exact(operation, head, device)
            errors = {name: _errors(operation, run, head, device, *exact) for name, run in found.items()}
            for count in rows:
                shape = {"rows": count, "width": width, "vocabulary": vocabulary, "dtype": str(dtype).removeprefix("torch.")}
                costs = _costs(operation, found, _inputs(operation, count, head, device), device, environment["device"], deadline)
                for name in found:
                    record = environment | {"operation": operation, "implementation": name, **shape, **errors[name]}
                    if name in peers.OTHER_VALUE:
                        record.pop("value_error", None)
                    limit = BAR.get(dtype)
                    if name.startswith("papergym") and limit and not errors[name].get("gradient_error", 0.0) <= limit:
                        record["fault"] = f"gradient {errors[name]['gradient_error']:.1e} off, the bar is {limit:.0e}"
                    yield record | costs[name]
            del head


def _costs(operation: str, found: dict[str, Callable], inputs: tuple, device: str, chip: str, deadline: float) -> dict[str, dict[str, Any]]:
    """Time, memory and what the roofline says of each implementation; or why it was skipped."""
    costs: dict[str, dict[str, Any]] = {}
    steps: dict[str, Callable[[], None]] = {}
    (rows, width), (vocabulary, _) = inputs[0].shape, inputs[1].shape
    for name, run in found.items():
        if time.monotonic() > deadline:
            costs[name] = {"skipped": "out of time"}
            continue
        step = partial(_step, run, inputs)
        try:
            step()  # compiles, and grows the allocator
            costs[name] = _work(operation, name, step, device, inputs[1].dtype, rows, width, vocabulary)
            costs[name]["peak_bytes"] = peak_bytes(step, device)
            steps[name] = step
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            costs[name] = {"skipped": "out of memory"}
    taken = interleaved_milliseconds(steps, device)
    inputs[0].grad = None
    flop = OPERATIONS[operation].flop(rows, width, vocabulary)
    known = roofline.find_device(chip)
    predicted = 1e3 * OPERATIONS[operation].seconds(known, rows, width, vocabulary) if known else None
    for name, times in taken.items():
        median = statistics.median(times)
        costs[name] |= {
            "milliseconds": median,
            "shortest": min(times),
            "longest": max(times),
            "rounds": len(times),
            "tokens_per_second": 1e3 * rows / median,
            "flop": flop,
            "tflop_per_second": flop / median / 1e9,
            "predicted_milliseconds": predicted if name.startswith("papergym") else None,
        }
        if peers.GEMMS in taken:
            costs[name]["over_gemms"] = statistics.median(time / least for time, least in zip(times, taken[peers.GEMMS]))
    return costs


def _step(run: Callable, inputs: tuple) -> None:
    inputs[0].grad = None
    loss = run(*inputs)
    if loss is not None:
        loss.backward()


def _work(
    operation: str, name: str, step: Callable[[], None], device: str, dtype: torch.dtype, rows: int, width: int, vocabulary: int
) -> dict[str, float]:
    """Products over N H V, and memory traffic over the floor: inputs read once, the gradient written. Nothing for code that is not seen."""
    hidden = peers.unseen_bytes(operation, name, device)
    if hidden is None:
        return {}
    flop, moved = operations(step)
    floor = roofline.least_bytes(rows, width, vocabulary, dtype.itemsize, sides=2 if operation == "divergence" else 1)
    return {"flop_per_nhv": flop / (rows * width * vocabulary), "bytes_over_floor": (moved + hidden * rows * vocabulary) / floor}


def _exact(operation: str, head: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and hidden gradient of the plain formula in fp64, on the rounded inputs."""
    inputs = _inputs(operation, CHECK_ROWS, head, device)
    wide = [value.detach().double() if torch.is_tensor(value) and value.is_floating_point() else value for value in inputs]
    wide[0].requires_grad_()
    value = OPERATIONS[operation].plain(*wide)
    value.backward()
    return value.detach(), wide[0].grad


def _errors(
    operation: str, run: Callable, head: torch.Tensor, device: str, exact: torch.Tensor, exact_gradient: torch.Tensor
) -> dict[str, float]:
    """Relative error of value and hidden gradient; none if there is nothing to compare or it does not fit."""
    inputs = _inputs(operation, CHECK_ROWS, head, device)
    try:
        loss = run(*inputs)
        if loss is None:
            return {}
        loss.backward()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {}
    return {
        "value_error": float((loss.detach().double() - exact).abs() / exact.abs()),
        "gradient_error": float((inputs[0].grad.double() - exact_gradient).norm() / exact_gradient.norm()),
    }


def _normal(size: tuple[int, ...], seed: int, device: str) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator(device).manual_seed(seed), device=device)


def _inputs(operation: str, rows: int, head: torch.Tensor, device: str) -> tuple:
    """What an implementation takes: the first tensor requires a gradient."""
    hidden = _normal((rows, head.shape[1]), 2, device)
    student = hidden.to(head.dtype).requires_grad_()
    if operation == "divergence":
        return student, head, (hidden + NOISE * _normal(tuple(hidden.shape), 3, device)).to(head.dtype), BETA
    targets = torch.randint(0, head.shape[0], (rows,), generator=torch.Generator(device).manual_seed(4), device=device)
    return student, head, targets


def _environment(device: str) -> dict[str, Any]:
    """Where and with what a record was made."""
    from importlib.metadata import PackageNotFoundError, version

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    versions = {name: installed(name) for name in ("torch", "triton", "liger-kernel", "trl")}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "device": device_name(device),
        "versions": {"python": sys.version.split()[0], **versions},
    }


def _commit() -> str | None:
    """The checkout's commit, with a + where tracked files differ from it; None outside a checkout."""

    def git(*arguments: str) -> str | None:
        done = subprocess.run(("git", "-C", str(Path(__file__).parent), *arguments), capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    name = git("rev-parse", "--short", "HEAD")
    return name and name + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def _table(records: list[dict[str, Any]], device: str) -> None:
    table = Table(*HEADINGS, title=f"β = {BETA}, {records[0]['device']}, commit {records[0]['commit']}")
    for record in records:
        if "absent" in record:
            table.add_row(record["operation"], record["implementation"], "", "", f"absent: {record['absent']}")
            continue
        cells = [record["operation"], record["implementation"], str(record["rows"]), str(record["width"])]
        if "skipped" in record:
            table.add_row(*cells, record["skipped"])
            continue
        predicted = record["predicted_milliseconds"] if record["implementation"] == "papergym (triton)" else None
        table.add_row(
            *cells,
            f"{record['milliseconds']:.1f}",
            f"{record['over_gemms']:.2f}" if "over_gemms" in record else "",
            f"{record['tokens_per_second']:.0f}",
            f"{record['tflop_per_second']:.2f}",
            *(f"{record[name]:.1f}" if name in record else "" for name in ("flop_per_nhv", "bytes_over_floor")),
            f"{record['peak_bytes'] / 2**20:.0f}",
            *(f"{record[name]:.1e}" if name in record else "" for name in ("value_error", "gradient_error")),
            "" if predicted is None else f"{predicted:.1f}",
        )
    Console(width=None if sys.stdout.isatty() else 190).print(table)


def _plot(records: list[dict[str, Any]], path: Path) -> None:
    """Time and memory against N for each operation at the first width."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(OPERATIONS), 2, figsize=(10, 10), squeeze=False)
    names = dict.fromkeys(record["implementation"] for record in records if "milliseconds" in record)
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    for row, operation in zip(axes, OPERATIONS):
        measured = [record for record in records if record["operation"] == operation and "milliseconds" in record]
        measured = [record for record in measured if record["width"] == measured[0]["width"]]
        for axis, field, unit in zip(row, ("milliseconds", "peak_bytes"), (1.0, 2.0**20)):
            for name in dict.fromkeys(record["implementation"] for record in measured):
                points = [(record["rows"], record[field] / unit) for record in measured if record["implementation"] == name]
                points = [(count, max(value, 0.1)) for count, value in points]  # a log axis has no 0
                axis.plot(*zip(*points), marker="o", markersize=3, color=colours[name], label=name)
            axis.set(xscale="log", yscale="log", xlabel="rows N", title=f"{operation}: {'ms' if unit == 1 else 'peak MiB above inputs'}")
            axis.grid(alpha=0.3)
        if measured:
            row[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
