"""Training checkpoints that are either whole or absent: written beside, checksummed, then renamed into place."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from papergym.errors import InputError
from papergym.files import read_json, sync_directory, write_json

STATE, MANIFEST = "state.pt", "manifest.json"


def save_checkpoint(directory: str | Path, step: int, state: Mapping[str, Any], identity: Mapping[str, Any], keep: int = 2) -> Path:
    """Writes directory/step_XXXXXXXX and removes all but the `keep` newest.

    state: tensors and plain values (adapter, optimizer). identity: what a resume must agree with (model, configuration).
    """
    directory = Path(directory)
    final, temporary = directory / f"step_{step:08d}", directory / f".step_{step:08d}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    torch.save(dict(state), temporary / STATE)
    with open(temporary / STATE, "rb") as file:
        os.fsync(file.fileno())
    write_json(temporary / MANIFEST, {"step": step, "sha256": _sha256(temporary / STATE), "identity": dict(identity)})
    shutil.rmtree(final, ignore_errors=True)
    os.rename(temporary, final)
    sync_directory(directory)
    for old in _checkpoints(directory)[:-keep]:
        shutil.rmtree(old)
    return final


def latest_checkpoint(directory: str | Path) -> Path | None:
    """The newest whole checkpoint of a directory, or None."""
    found = _checkpoints(Path(directory))
    return found[-1] if found else None


def load_checkpoint(path: str | Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a checkpoint after comparing its checksum and its identity. Raises InputError naming the file and what differs."""
    path = Path(path)
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not {"sha256", "identity"} <= manifest.keys() or not (path / STATE).exists():
        raise InputError(f"{path}: not a whole checkpoint; delete it to use the one before it")
    if manifest["sha256"] != _sha256(path / STATE):
        raise InputError(f"{path / STATE}: content and checksum disagree; delete {path} to use the checkpoint before it")
    differing = [name for name, value in identity.items() if manifest["identity"].get(name) != value]
    if differing:
        name = differing[0]
        raise InputError(
            f"{path}: {name} was {manifest['identity'].get(name)!r} in this checkpoint and is {identity[name]!r} in this run; "
            "resume with the same setting or choose another run.dir"
        )
    return torch.load(path / STATE, weights_only=True)


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("step_" + "[0-9]" * 8) if (path / MANIFEST).exists())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
