"""Checkpoints of several ranks, by torch.distributed.checkpoint: each rank writes its own shards, and any number of ranks reads them.

Like those of one process they are whole or absent: a directory under another name that is checksummed, then renamed.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from papergym.checkpoint import (
    SHARDS,
    Retention,
    check_identity,
    file_sha256,
    load_checkpoint,
    prune_checkpoints,
    refused_in_a_sentence,
    write_manifest,
)
from papergym.errors import InputError
from papergym.files import atomic_directory
from papergym.model.decoder import CausalLM
from papergym.model.lora import adapter_state_dict
from papergym.model.tensors import local_rows
from papergym.training.distributed import Ranks


def save_sharded(
    directory: Path,
    step: int,
    state: Mapping[str, Tensor],
    identity: Mapping[str, Any],
    retention: Retention,
    metrics: Mapping[str, float],
    ranks: Ranks,
) -> None:
    """As save_checkpoint, by a call of all ranks with their parts of `state`, to a directory that all of them see."""
    import torch.distributed.checkpoint as dcp

    final = directory / f"step_{step:08d}"
    with ExitStack() as stack:
        temporary = ranks.on_first(lambda: _begin(stack, final))
        try:
            dcp.save(dict(state), checkpoint_id=temporary / SHARDS, process_group=ranks.group)
        except dcp.api.CheckpointException as error:
            rank, (cause, _) = next(iter(error.failures.items()))
            raise OSError(None, f"rank {rank}: {str(cause).splitlines()[0]}") from error
        ranks.on_first(lambda: _finish(stack, temporary, step, identity, metrics))
    ranks.on_first(lambda: prune_checkpoints(directory, retention))


def _begin(stack: ExitStack, final: Path) -> Path:
    stack.enter_context(refused_in_a_sentence(final))
    return stack.enter_context(atomic_directory(final))


def _finish(stack: ExitStack, temporary: Path, step: int, identity: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
    write_manifest(temporary, step, _digests(temporary / SHARDS), identity, metrics)
    stack.close()


def restore(path: Path, model: CausalLM, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any], ranks: Ranks) -> None:
    """Puts the state of a checkpoint back, written by one process or several. Raises InputError naming the file and what is wrong."""
    import torch.distributed.checkpoint as dcp

    state = training_state(model, optimizer)
    if (path / SHARDS).is_dir():
        digests = check_identity(path, identity)
        found = ranks.on_first(lambda: _digests(path / SHARDS))
        if wrong := [name for name in sorted({*digests, *found}) if digests.get(name) != found.get(name)]:
            what = "content and checksum disagree" if wrong[0] in found else "this file is missing"
            raise InputError(f"{path / SHARDS / wrong[0]}: {what}; delete {path} to use the checkpoint before it")
        dcp.load(state, checkpoint_id=path / SHARDS, process_group=ranks.group)
        return
    stored = load_checkpoint(path, identity)
    for (name, value), moments in zip(stored["adapter"].items(), stored["optimizer"]["state"].values(), strict=True):
        for part, whole in {"parameter": value, **moments}.items():
            local, rows = local_rows(state[f"{part}.{name}"])
            local.copy_(whole[rows] if whole.dim() else whole)


def training_state(model: CausalLM, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The adapter's parameters and AdamW's state for each, by name, sharing storage with both; zeros for an optimizer that has none."""
    adapter = adapter_state_dict(model)
    state = {f"parameter.{name}": tensor for name, tensor in adapter.items()}
    parameters = dict(model.named_parameters())
    for name in adapter:
        moments = optimizer.state[parameters[name]]
        if not moments:
            zeros = {part: torch.zeros_like(adapter[name]) for part in ("exp_avg", "exp_avg_sq")}
            moments.update({"step": torch.tensor(0.0), **zeros})
        state |= {f"{part}.{name}": tensor for part, tensor in moments.items()}
    return state


def _digests(directory: Path) -> dict[str, str]:
    return {file.name: file_sha256(file) for file in sorted(directory.iterdir())}
