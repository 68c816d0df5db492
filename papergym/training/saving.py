"""When and how a run saves: its checkpoints, in this thread or another, the best adapter so far, and the way back."""

import math
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from papergym.checkpoint import (
    SHARDS,
    Retention,
    best_checkpoint,
    check_identity,
    differing_versions,
    latest_checkpoint,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
)
from papergym.errors import InputError
from papergym.files import atomic_directory
from papergym.model.decoder import CausalLM
from papergym.model.lora import adapter_state_dict, save_adapter
from papergym.training.config import TrainingConfig
from papergym.training.distributed import Ranks, full
from papergym.training.identity import run_identity
from papergym.training.sharded_checkpoint import restore, save_sharded, training_state

CHECKPOINTS, BEST = "checkpoints", "best"  # in a run directory


class Saver:
    """Saves and restores a run. All ranks make the same calls; close it to have everything on disk."""

    def __init__(self, config: TrainingConfig, model: CausalLM, optimizer: torch.optim.Optimizer, ranks: Ranks) -> None:
        self._run, self._model, self._optimizer, self._ranks = config.run, model, optimizer, ranks
        self._place = Path(config.run.dir) / CHECKPOINTS
        self._retention = Retention(config.run.keep_checkpoints, config.run.best_by)
        self._identity = run_identity(config, model, ranks)
        self._window: list[Mapping[str, float]] = []  # the steps since the last checkpoint
        self._thread: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self._writers = ranks
        if config.run.checkpoint_in_background:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
            if ranks.size > 1:  # what two threads say to other ranks must not mix
                self._writers = replace(ranks, group=dist.new_group(backend="gloo", timeout=ranks.timeout))

    def note(self, values: Mapping[str, float]) -> None:
        """Takes the metrics of a step. Raises InputError when run.best_by is none of them, and what went wrong in the background."""
        best_by = self._run.best_by
        if best_by is not None and best_by.removeprefix("-") not in values:
            raise InputError(f"key 'run.best_by' has the value {self._run.best_by!r}: the metrics of this run are {', '.join(values)}")
        self._window.append(values)
        if self._pending is not None and self._pending.done():
            self.wait()

    def save(self, step: int) -> None:
        """Saves the state after a step; in the background, from a copy."""
        self.wait()
        metrics = _means(self._window)
        self._window = []
        adapter = self.whole_adapter() if self._retention.best_by else {}
        what = (self._identity, self._retention, metrics)
        write: Callable[[], object]
        if self._ranks.size > 1:
            parts = training_state(self._model, self._optimizer)
            if self._thread is not None:
                parts = {name: tensor.clone() for name, tensor in parts.items()}
            write = partial(save_sharded, self._place, step, parts, *what, self._writers)
        else:
            state = {"adapter": adapter_state_dict(self._model), "optimizer": self._optimizer.state_dict()}
            if self._thread is not None:
                state = tree_map_only(Tensor, lambda tensor: tensor.to("cpu", copy=True), state)
            write = partial(save_checkpoint, self._place, step, state, *what)

        def write_all() -> None:
            write()
            self._writers.on_first(lambda: self._keep_best(step, adapter))

        if self._thread is None:
            write_all()
        else:
            self._pending = self._thread.submit(write_all)

    def wait(self) -> None:
        """Waits for what is being written. Raises what went wrong there."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self.wait()
        if self._thread is not None:
            self._thread.shutdown()

    def restore(self, steps: int) -> int:
        """Puts the newest checkpoint's state back and returns its step; 0 without one. Nothing is changed when it belongs to another run.

        Raises InputError naming the checkpoint and what is wrong with it, or that it is beyond `steps`.
        """
        ranks = self._ranks
        path = ranks.on_first(lambda: latest_checkpoint(self._place))
        if path is None:
            return 0
        done = int(path.name.removeprefix("step_"))
        check_identity(path, self._identity)
        if done > steps:
            raise InputError(f"{path}: this run is at step {done} already, beyond run.steps = {steps}")
        if ranks.size > 1 or (path / SHARDS).exists():
            restore(path, self._model, self._optimizer, self._identity, ranks)
        else:
            state = load_checkpoint(path, self._identity)
            for name, tensor in adapter_state_dict(self._model).items():
                tensor.copy_(state["adapter"][name])
            self._optimizer.load_state_dict(state["optimizer"])
        if ranks.first and (others := differing_versions(path)):
            print(f"{path}: written with {others}; what follows equals an undisturbed run to rounding only", file=sys.stderr)
        ranks.on_first(lambda: prune_checkpoints(self._place, self._retention))
        adapter = self.whole_adapter() if self._retention.best_by else {}
        ranks.on_first(lambda: self._keep_best(done, adapter))
        return done

    def whole_adapter(self) -> dict[str, Tensor]:
        """A copy of the adapter, gathered from all ranks."""
        return {name: full(tensor).clone() for name, tensor in adapter_state_dict(self._model).items()}

    def _keep_best(self, step: int, adapter: Mapping[str, Tensor]) -> None:
        """Writes the adapter to run.dir/best when the checkpoint of this step is the best one."""
        best = best_checkpoint(self._place, self._retention)
        if best is not None and best.name == f"step_{step:08d}":
            with atomic_directory(self._place.parent / BEST) as temporary:
                save_adapter(self._model, temporary, adapter)


def _means(window: list[Mapping[str, float]]) -> dict[str, Any]:
    """The mean of each metric over some steps, where it is finite; times are left out, so that a repeated run writes the same."""
    names = dict.fromkeys(name for values in window for name in values if not name.startswith("time/"))
    finite = {name: [values[name] for values in window if name in values and math.isfinite(values[name])] for name in names}
    return {name: fmean(values) for name, values in finite.items() if values}
