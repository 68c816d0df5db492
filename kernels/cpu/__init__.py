"""Compiled loops for the CPU: passes over rows of logits, and the steps of decoding. The system's C++ compiler builds them on first use.

The library is plain C, called by ctypes, which releases the GIL: nothing binds to a PyTorch version and the build takes seconds.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch

SOURCES = ("rows.cpp", "decoding.cpp", "threads.h", "vector.h")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-fopenmp")
LOSS = "the sampler's steps and the kernels' row passes run as eager PyTorch operations; the kernels take about 1.3 times as long in all"


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None on a machine that cannot build it, which is said once as a warning."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        return _without("no C++ compiler (c++, g++, clang++) was found")
    try:
        loaded = ctypes.CDLL(str(_build(compiler)))
    except subprocess.CalledProcessError as error:
        return _without(f"{compiler} failed: {(error.stderr.strip().splitlines() or ['no message'])[0]}")
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        return _without(str(error))
    pointer, integer, real, flag, count = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_bool, ctypes.c_int
    loaded.papergym_jsd.argtypes = [pointer, pointer, integer, integer, real, real, real, flag, count, *[pointer] * 5]
    loaded.papergym_logprob.argtypes = [pointer, integer, integer, real, count, *[pointer] * 3]
    loaded.papergym_logprob_gradient.argtypes = [pointer, integer, integer, real, count, *[pointer] * 5]
    functions = [loaded.papergym_jsd, loaded.papergym_logprob, loaded.papergym_logprob_gradient]
    for dtype in ("float32", "bfloat16"):
        names = ("product", "rms_norm", "draw", "attend")
        product, rms_norm, draw, attend = decoding = [getattr(loaded, f"papergym_{name}_{dtype}") for name in names]
        product.argtypes = [pointer, pointer, integer, integer, integer, pointer, pointer, count]
        rms_norm.argtypes = [pointer, pointer, integer, integer, real, pointer]
        draw.argtypes = [pointer, integer, integer, real, pointer, pointer, pointer, count]
        attend.argtypes = [pointer] * 12 + [count]
        functions += decoding
    for function in functions:
        function.restype = None
    loaded.papergym_packed_outputs.restype = integer
    return loaded


def row_library(logits: torch.Tensor) -> ctypes.CDLL | None:
    """The library if it can work on these logits: fp32, on the CPU, rows without gaps."""
    return library() if logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.is_contiguous() else None


def pointers(*tensors: torch.Tensor) -> tuple[int, ...]:
    """Addresses of the tensors' elements, for a call; each must be contiguous and outlive it."""
    assert all(tensor.is_contiguous() for tensor in tensors)
    return tuple(tensor.data_ptr() for tensor in tensors)


def _build(compiler: str) -> Path:
    """Path of the library for these sources, this compiler and this processor; builds it if it is not there."""
    folder = Path(__file__).parent
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    identity = [version, _processor(), *FLAGS, *((folder / name).read_text() for name in SOURCES)]
    cache = Path.home() / ".cache" / "papergym"
    target = cache / f"cpu-{hashlib.sha256(chr(0).join(identity).encode()).hexdigest()[:16]}.so"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            output = Path(scratch) / target.name
            command = [compiler, *FLAGS, *(str(folder / name) for name in SOURCES if name.endswith(".cpp")), "-o", str(output)]
            subprocess.run(command, capture_output=True, text=True, errors="replace", check=True)
            with open(output, "rb") as built:
                os.fsync(built.fileno())
            os.replace(output, target)  # whole or not at all, also when several processes build
    return target


def _processor() -> str:
    """What -march=native depends on: a cache in a shared home folder may be seen by another machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.lower().startswith(("model name", "flags", "features"))}))


def _without(reason: str) -> None:
    warnings.warn(f"{reason}: {LOSS}", RuntimeWarning, stacklevel=3)
