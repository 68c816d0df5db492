"""What a run is, as its checkpoints remember it: settings, model and the content of the files that it starts from."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from papergym.checkpoint import file_sha256
from papergym.config import to_mapping
from papergym.model.decoder import CausalLM
from papergym.model.lora import ADAPTER_FILES, lora_config
from papergym.model.tensors import local_rows
from papergym.training.config import TrainingConfig
from papergym.training.distributed import Ranks

# Keys of [run] that a checkpoint does not depend on.
_FREE = ("dir", "checkpoint_every", "keep_checkpoints", "best_by", "checkpoint_in_background", "profile")


def run_identity(config: TrainingConfig, model: CausalLM, ranks: Ranks) -> dict[str, Any]:
    """What a resumed run must share with the run it continues. The number of steps matters only to a decaying learning rate."""
    settings = to_mapping(config)
    del settings["distributed"]
    for name in (*_FREE, *(["steps"] if config.optim.schedule == "constant" else [])):
        del settings["run"][name]
    settings["lora"] = to_mapping(lora_config(model))
    identity = flat(settings) | input_hashes(config)
    identity["model configuration"] = to_mapping(model.config)
    identity["model weights"] = _fingerprint(model, ranks)
    return plain(identity)


def flat(tables: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Settings by their full names, such as optim.lr."""
    return {f"{table}.{key}": value for table, values in tables.items() for key, value in (values or {}).items()}


def input_hashes(config: TrainingConfig) -> dict[str, str]:
    """Hashes of the files that a run starts from, by what they are."""
    inputs = {"content of data.train": file_sha256(Path(config.data.train))}
    if config.model.adapter is not None:
        inputs |= {f"content of {name} in model.adapter": file_sha256(Path(config.model.adapter) / name) for name in ADAPTER_FILES}
    return inputs


def plain(value: Any) -> Any:
    """Tuples as lists, as JSON reads them back."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _fingerprint(model: CausalLM, ranks: Ranks) -> str:
    """A hash of some numbers of every base weight: enough to tell checkpoints apart without reading gigabytes."""
    mine = {
        name: local_rows(weight)[0].detach().flatten()[:16].float().cpu()
        for name, weight in model.named_parameters()
        if ".lora_" not in name
    }
    parts = ranks.gather([mine])
    digest = hashlib.sha256()
    for name in mine:
        digest.update(torch.cat([part[name] for part in parts])[:16].numpy().tobytes())
    return digest.hexdigest()
