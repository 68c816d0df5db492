"""`papergym bench compile`: registers, spills, shared memory and matrix instructions of every Triton kernel, chip by chip; needs no GPU."""

import sys
from pathlib import Path

from papergym.errors import InputError

HEADINGS = ("kernel", "chip", "registers", "spills", "shared KiB", "occupancy", "matrix instructions", "instructions")


def report(capabilities: list[int], only: str, out: Path | None) -> None:
    """Compiles every kernel whose name contains `only`, prints a table and writes JSON lines. Raises InputError if a budget is broken."""
    import triton
    from rich.console import Console
    from rich.table import Table

    from papergym.files import write_jsonl
    from papergym.kernels.compilation import CHIPS, compile_variant, variants, violations
    from papergym.kernels.triton_tiles import interpreted

    if interpreted():
        raise InputError("TRITON_INTERPRET=1 makes Triton interpret kernels instead of compiling them: unset it")

    unknown = sorted(set(capabilities) - set(CHIPS))
    if unknown:
        raise InputError(f"--chip {unknown[0]}: use one of {', '.join(map(str, CHIPS))}")
    table = Table(*HEADINGS, title=f"Triton {triton.__version__}")
    records, broken = [], []
    for capability in capabilities:
        for variant in variants():
            if only not in variant.name:
                continue
            record = compile_variant(variant, capability)
            faults = violations(record, variant.uses_matrix_units)
            broken += [f"{variant.name} on sm_{capability}: {fault}" for fault in faults]
            records.append(record | {"triton": triton.__version__})
            matrix = " ".join(f"{name} {count}" for name, count in record["matrix_instructions"].items())
            cells = (record["registers"], record["spills"], f"{record['shared_bytes'] / 1024:.1f}", f"{record['occupancy']:.0%}", matrix)
            table.add_row(variant.name, f"sm_{capability} {record['chip']}", *map(str, cells), str(record["instructions"]))
    if not records:
        raise InputError(f"--only {only!r}: no kernel's name contains it")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    if out is not None:
        write_jsonl(out, records)
    if broken:
        raise InputError("; ".join(broken))
