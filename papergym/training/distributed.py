"""Training over several ranks: FSDP2 shards the model, each rank works on its share of a step's batch, and the first one writes the files.

Launched as one process there is no process group: `ONE` answers every question itself, and the model is an ordinary module.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from papergym.errors import InputError
from papergym.model.decoder import CausalLM
from papergym.training.packing import S, micro_batches

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """This process's place among the processes of a job, and what they tell each other. All ranks must make the same calls."""

    rank: int = 0
    size: int = 1
    group: Any = None  # for Python objects and numbers on the host
    timeout: timedelta = timedelta(0)

    @property
    def first(self) -> bool:
        """Whether this rank writes the files."""
        return self.rank == 0

    def share(self, items: int) -> slice:
        """Which of so many items are this rank's: neighbours, as many as any other rank has, give or take one."""
        return slice(items * self.rank // self.size, items * (self.rank + 1) // self.size)

    def gather(self, items: list[T]) -> list[T]:
        """The items of all ranks, in the order of the ranks."""
        if self.size == 1:
            return items
        self.meet()
        parts: list[list[T]] = [[]] * self.size
        dist.all_gather_object(parts, items, group=self.group)
        return [item for part in parts for item in part]

    def sum(self, values: Mapping[str, float]) -> dict[str, float]:
        """Sums over the ranks, in fp64. Every rank gives the same names in the same order."""
        if self.size == 1:
            return dict(values)
        self.meet()
        sums = torch.tensor(list(values.values()), dtype=torch.float64)
        dist.all_reduce(sums, group=self.group)
        return dict(zip(values, sums.tolist(), strict=True))

    def on_first(self, function: Callable[[], T]) -> T:
        """Calls the function on the first rank and returns its value, or raises its exception, on all of them."""
        if self.size == 1:
            return function()
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome[0] = function()
            except Exception as error:
                outcome[1] = error
        self.meet()
        dist.broadcast_object_list(outcome, group=self.group)
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def meet(self) -> None:
        """Waits for all ranks. Raises RuntimeError naming those that have not come within the timeout."""
        if self.size > 1:
            dist.monitored_barrier(self.group, timeout=self.timeout, wait_all_ranks=True)


ONE = Ranks()


@contextmanager
def process_group(device: str, timeout: float) -> Iterator[Ranks]:
    """Joins the ranks that torchrun started, for the block unless they are joined already; one process has nothing to join.

    device: "cpu", or "cuda" for the GPU of each rank's own number. timeout: seconds that a rank waits for the others in one call.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ONE
        return
    kind, _, index = device.partition(":")
    if index:
        raise InputError(f"key 'model.device' has the value {device!r}: every rank has a device of its own, so write {kind!r}")
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    wait, joined = timedelta(seconds=timeout), dist.is_initialized()
    if not joined:
        dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo", timeout=wait)
    orderly = False  # after an error the others may be waiting for this rank, which only its end tells them
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo", timeout=wait), wait)
        orderly = True
    except SystemExit:  # told to stop: the ranks have agreed on it
        orderly = True
        raise
    finally:
        if orderly and not joined:
            dist.destroy_process_group()


def shard(model: CausalLM, device: str, cpu_offload: bool = False) -> CausalLM:
    """Shards a model over all ranks, in place, layer by layer, and the embedding with the head as the outermost part; returns it.

    Weights are gathered, and used, in the dtype of the base; gradients are summed over the ranks in fp32 and belong to fp32 adapters.
    cpu_offload: shards and optimizer state stay in host memory. Apply LoRA first: afterwards parameters are DTensors.
    """
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    options: dict[str, Any] = {
        "mesh": dist.init_device_mesh(device, (dist.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=model.head_weight.dtype, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(pin_memory=device != "cpu") if cpu_offload else OffloadPolicy(),
    }
    for layer in model.model.layers:
        fully_shard(layer, **options)
    # The loss needs the head after the forward pass and between micro-batches, so the outermost part stays whole until `with_head` ends.
    fully_shard(model, reshard_after_forward=False, **options)
    model.set_reshard_after_backward(False, recurse=False)
    for part in _parts(model):
        part.set_gradient_divide_factor(1.0)  # a sum: losses are divided by counts over all ranks already
        part.set_force_sum_reduction_for_comms(True)
    return model


@contextmanager
def with_head(model: CausalLM) -> Iterator[None]:
    """Inside, the embedding, the last norm and the head are whole on every rank, as ordinary tensors in the dtype of the base."""
    for part in _parts(model)[:1]:
        part.unshard()
    yield
    for part in _parts(model)[:1]:
        part.reshard()


@contextmanager
def gathered(model: CausalLM) -> Iterator[None]:
    """Inside, every rank holds all weights, so that each can sample at its own pace, without a word to the others."""
    parts = _parts(model)
    for part in parts:
        part.unshard()
        part.set_reshard_after_forward(False, recurse=False)
    yield
    for part in parts:
        part.reshard()
        part.set_reshard_after_forward(part is not model, recurse=False)


def reduce_gradients(model: CausalLM, now: bool) -> None:
    """Whether the next backward pass sums gradients over the ranks; the last micro-batch of a step does."""
    for part in _parts(model)[:1]:
        part.set_requires_gradient_sync(now)


def full(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of a tensor that may be sharded; a call of all ranks."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _parts(model: CausalLM) -> list[Any]:
    """The modules that FSDP gathers one at a time, the outermost first; none in an ordinary model."""
    return [module for module in model.modules() if hasattr(module, "unshard")]


def shared_out(samples: Sequence[S], tokens: int, ranks: Ranks) -> list[tuple[list[S], float]]:
    """This rank's micro-batches and their factors, as many as any other rank has, from the samples of all ranks.

    The samples are cut into runs of about equally many tokens, one a rank, and those into micro-batches of at most `tokens`. A rank with
    fewer than the others gets the shortest sample with factor 0, since every backward pass is a call of all ranks.
    """
    sizes = [len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples]
    runs: list[list[S]] = [[] for _ in range(ranks.size)]
    for sample, size, end in zip(samples, sizes, accumulate(sizes)):
        runs[int(ranks.size * (end - size / 2) / sum(sizes))].append(sample)
    plans = [list(micro_batches(run, tokens)) for run in runs]
    mine: list[tuple[list[S], float]] = [(batch, 1.0) for batch in plans[ranks.rank]]
    anchor = samples[sizes.index(min(sizes))]
    return mine + [([anchor], 0.0)] * (max(map(len, plans)) - len(mine))
