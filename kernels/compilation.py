"""What the compiler makes of every Triton kernel for a named chip, on a machine without a GPU.

Triton compiles for any target, and its package brings ptxas, cuobjdump and nvdisasm: registers, spills, shared memory and the
instructions really used can be read off the machine code.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from papergym.kernels.linear_jsd.triton_divergences import jsd
from papergym.kernels.linear_jsd.triton_online import divergence_online
from papergym.kernels.linear_jsd.triton_rows import TILE_LAUNCH, divergence_rows, gradient_tile, row_launch
from papergym.kernels.linear_logprob.triton import logit_gradient
from papergym.kernels.triton_tiles import gemm_launch, softmax_statistics

REGISTERS = 65536  # of one processor, on every chip below
POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.int64: "*i64"}
OPTIONS = ("num_warps", "num_stages", "maxnreg")  # of a launch; the rest of it are the kernel's constants
MATRIX_INSTRUCTIONS = ("HMMA", "HGMMA")  # HGMMA is what wgmma becomes


@dataclass(frozen=True)
class Chip:
    """Limits of a compute capability: shared memory of a block and of a processor in KiB, warps of a processor."""

    name: str
    block_shared: int
    shared: int
    warps: int


CHIPS = {
    80: Chip("A100", 163, 164, 64),
    86: Chip("RTX A6000", 99, 100, 48),
    89: Chip("L40S", 99, 100, 48),
    90: Chip("H100, H200", 227, 228, 64),
    120: Chip("RTX Pro 6000", 99, 100, 48),
}


@dataclass(frozen=True)
class Variant:
    """A kernel with its arguments as a launch sees them: a dtype for a tensor, a sample value for a number; and its launch."""

    name: str
    kernel: Any
    arguments: dict[str, Any]
    launch: dict[str, int]
    uses_matrix_units: bool = False


def variants(vocabulary: int = 151936, width: int = 2048) -> Iterator[Variant]:
    """Every kernel in the forms that training uses, at the sizes of Qwen3."""
    fp32, bf16, long = torch.float32, torch.bfloat16, torch.int64
    rows = {"student": fp32, "teacher": fp32, "statistics": fp32, "counts": long, "rows": 4096, "scale": 1.0, "clip": 0.05, "ENTRIES": jsd}
    strides = {"vocabulary": vocabulary, "logit_stride": vocabulary}
    for beta, clip, dtype in (
        (0.5, False, bf16),
        (0.5, True, fp32),
        (0.1, False, bf16),
        (0.0, True, bf16),
        (1.0, False, bf16),
        (0.5, False, None),
    ):
        form = {
            "BETA": beta,
            "CLIP": clip,
            "BALANCE": {0.0: 1.0, 1.0: -1.0}.get(beta, 0.0) if not clip else 0.0,
            "GRADIENT": dtype is not None,
            "gradient": dtype or fp32,
            "gradient_stride": vocabulary * (2 if dtype == bf16 else 1),
        }
        name = f"divergence_rows β={beta}{' clip' if clip else ''} {'no gradient' if dtype is None else str(dtype).removeprefix('torch.')}"
        yield Variant(name, divergence_rows, rows | strides | form, row_launch(dtype or fp32))
    tile = {"gradient": bf16, "weights": fp32, "width": 4096, "BETA": 0.5, "CLIP": False}
    yield Variant("gradient_tile β=0.5 bfloat16", gradient_tile, rows | tile, TILE_LAUNCH)

    for dtype in (bf16, fp32):
        kind, matrix = str(dtype).removeprefix("torch."), dtype == bf16
        product = {"hidden": dtype, "head": dtype, "targets": long, "row_count": 4096, "scale": 1.0, "UPCAST": not matrix}
        product |= {"hidden_stride": width, "hidden_step": 1, "head_stride": width, "head_step": 1}
        launch = gemm_launch(dtype, "cuda")
        statistics = {"partial": fp32, "vocabulary": vocabulary, "width": width, "part": 4096}
        yield Variant(f"softmax_statistics {kind}", softmax_statistics, product | statistics, launch, matrix)
        gradient = {"statistics": fp32, "weights": fp32, "gradient": dtype, "width": 8192, "first": 8192, "hidden_width": width}
        yield Variant(f"logit_gradient {kind}", logit_gradient, product | gradient, launch, matrix)
        online = {
            "statistics": fp32,
            "partial": fp32,
            "row_count": 4096,
            "vocabulary": vocabulary,
            "scale": 1.0,
            "clip": 0.05,
            "part": 4096,
        }
        online |= {"ENTRIES": jsd, "BETA": 0.5, "BALANCE": 0.0, "CLIP": False}
        for side in ("student", "teacher"):
            online |= {f"{side}_hidden": dtype, f"{side}_head": dtype, f"{side}_width": width, f"UPCAST_{side.upper()}": not matrix}
            online |= {f"{side}_stride": width, f"{side}_step": 1, f"{side}_head_stride": width, f"{side}_head_step": 1}
        yield Variant(f"divergence_online {kind}", divergence_online, online, gemm_launch(dtype, "cuda", 2), matrix)


def compile_variant(variant: Variant, capability: int) -> dict[str, Any]:
    """Compiles for a capability of CHIPS and reads the machine code; nothing is run.

    Returns registers a thread, spills (instructions that touch local memory) and stack bytes, shared_bytes a block, occupancy (resident
    warps over the chip's), matrix instructions by name, and the number of all instructions.
    """
    signature, constants, attributes = {}, {}, {}
    values = variant.arguments | {name: value for name, value in variant.launch.items() if name not in OPTIONS}
    for index, parameter in enumerate(variant.kernel.params):
        value, name = values[parameter.name], parameter.name
        if parameter.is_constexpr or (isinstance(value, int) and value == 1):  # Triton makes a constant of an integer 1
            signature[name], constants[(index,)] = "constexpr", value
        elif isinstance(value, torch.dtype):
            signature[name] = POINTERS[value]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        if isinstance(value, torch.dtype) or (signature[name] == "i32" and value % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in variant.launch.items() if name in OPTIONS}
    source = ASTSource(variant.kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    usage, opcodes = _disassemble(compiled.asm["cubin"])
    registers, shared, warps = usage["REG"], compiled.metadata.shared, options["num_warps"]
    return {
        "kernel": variant.name,
        "capability": capability,
        "chip": CHIPS[capability].name,
        "registers": registers,
        "spills": opcodes["LDL"] + opcodes["STL"],
        "stack": usage["STACK"],
        "shared_bytes": shared,
        "occupancy": _occupancy(CHIPS[capability], registers, shared, warps),
        "matrix_instructions": {name: opcodes[name] for name in MATRIX_INSTRUCTIONS if opcodes[name]},
        "instructions": opcodes.total(),
        "launch": variant.launch,
    }


def _disassemble(cubin: bytes) -> tuple[dict[str, int], Counter]:
    """Resource usage by name, and how often each opcode occurs."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

    def run(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = run(str(tools / "cuobjdump"), "-res-usage", file.name)
        listing = run(str(tools / "nvdisasm"), file.name)
    fields = re.findall(r"\b(REG|STACK):(\d+)", usage)
    opcodes = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", listing, re.MULTILINE)
    return {name: int(value) for name, value in fields}, Counter(opcodes)


def _occupancy(chip: Chip, registers: int, shared: int, warps: int) -> float:
    granted = -(-registers // 8) * 8 * 32 * warps
    blocks = min(REGISTERS // granted, chip.shared * 1024 // (shared + 1024), chip.warps // warps)  # the system keeps 1 KiB a block
    return blocks * warps / chip.warps


def violations(record: dict[str, Any], uses_matrix_units: bool) -> list[str]:
    """What a compiled variant may not do: spill, exceed the chip's shared memory, or leave the matrix units unused."""
    limit = CHIPS[record["capability"]].block_shared * 1024
    found = []
    if record["spills"] or record["stack"]:
        found.append(f"spills: {record['spills']} instructions, {record['stack']} bytes of stack")
    if record["shared_bytes"] > limit:
        found.append(f"shared memory {record['shared_bytes']} > {limit}")
    if uses_matrix_units and not record["matrix_instructions"]:
        found.append("no matrix instruction")
    return found
