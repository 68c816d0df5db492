"""Time, peak memory, arithmetic and memory traffic of one call, on a CPU or a GPU."""

import ctypes
import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LEAST_ROUNDS, MOST_ROUNDS = 5, 20
SECONDS = 3.0  # of rounds for each contender, once there are enough


def device_name(device: str) -> str:
    """The GPU's name; of a CPU the threads and the instruction set that PyTorch uses."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"


def interleaved_milliseconds(runs: Mapping[str, Callable[[], Any]], device: str) -> dict[str, list[float]]:
    """Times of contenders that have run before, round by round, each once a round: what slows the machine down slows all of them down."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    rounds, spent = 0, 0.0
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and spent < 1e3 * SECONDS * len(runs)):
        for name, run in runs.items():
            taken[name].append(_milliseconds(run, device))
            spent += taken[name][-1]
        rounds += 1
    return taken


def _milliseconds(run: Callable[[], Any], device: str) -> float:
    """On a GPU between events, elsewhere by the clock."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    started = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - started)


class _Operations(TorchDispatchMode):
    """Sums the FLOP of matrix products, and the bytes of every tensor that an operation takes or returns; views cost nothing."""

    PRODUCTS = ("mm", "bmm", "addmm", "addmm_", "baddbmm")

    def __init__(self) -> None:
        super().__init__()
        self.flop = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = {id(leaf): leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)}
            self.bytes += sum(tensor.nbytes for tensor in tensors.values())
        if func.overloadpacket.__name__ in self.PRODUCTS:
            left, right = [value for value in args if isinstance(value, torch.Tensor)][-2:]
            self.flop += 2 * left.numel() * right.shape[-1]
        return result


def operations(run: Callable[[], Any]) -> tuple[int, int]:
    """FLOP of the products and bytes that PyTorch's operations read and write in a call. What compiled code does by itself is not seen."""
    with _Operations() as seen:
        run()
    return seen.flop, seen.bytes


def peak_bytes(run: Callable[[], Any], device: str) -> int:
    """Most memory in use during a call above what was in use before it: of the allocator on a GPU, of the process elsewhere.

    The process's mark is reset by /proc/self/clear_refs, so it needs Linux. Before that the C library gives back what earlier calls freed,
    which would serve this one unseen.
    """
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _kib("VmRSS")
    run()
    return max(0, _kib("VmHWM") - before) * 1024


def _kib(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))
