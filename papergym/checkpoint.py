"""Training checkpoints that are either whole or absent: written beside, checksummed, then renamed into place."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from papergym.errors import InputError
from papergym.files import atomic_directory, read_json, remove_directory, remove_leftovers, write_json

STATE, MANIFEST = "state.pt", "manifest.json"
SHARDS = "shards"  # a directory in place of STATE, where several ranks wrote the checkpoint


def save_checkpoint(directory: str | Path, step: int, state: Mapping[str, Any], identity: Mapping[str, Any], keep: int = 2) -> Path:
    """Writes directory/step_XXXXXXXX and removes all but the `keep` newest.

    state: tensors and plain values (adapter, optimizer). identity: what a resume must agree with (model, configuration).
    """
    final = Path(directory) / f"step_{step:08d}"
    with atomic_directory(final) as temporary:
        torch.save(dict(state), temporary / STATE)
        write_json(temporary / MANIFEST, {"step": step, "sha256": file_sha256(temporary / STATE), "identity": dict(identity)})
    prune_checkpoints(directory, keep)
    return final


def prune_checkpoints(directory: str | Path, keep: int) -> None:
    """Removes all but the `keep` newest checkpoints, and what a kill left of those being written or removed."""
    directory = Path(directory)
    for leftover in directory.glob(".step_*"):
        remove_leftovers(directory / leftover.stem.removeprefix("."))
    for old in _checkpoints(directory)[:-keep]:
        remove_directory(old)


def latest_checkpoint(directory: str | Path) -> Path | None:
    """The newest checkpoint of a directory, or None."""
    found = _checkpoints(Path(directory))
    return found[-1] if found else None


def load_checkpoint(path: str | Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a checkpoint after comparing its checksum and its identity. Raises InputError naming the file and what differs."""
    path = Path(path)
    digest = check_identity(path, identity)
    if digest != file_sha256(path / STATE):
        raise InputError(f"{path / STATE}: content and checksum disagree; delete {path} to use the checkpoint before it")
    return torch.load(path / STATE, weights_only=True)


def check_identity(path: str | Path, identity: Mapping[str, Any]) -> Any:
    """Compares a part of a checkpoint's identity and returns the state's checksum, or that of each of its shards.

    Raises InputError naming the file and what differs.
    """
    path = Path(path)
    manifest = read_json(path / MANIFEST)
    present = any((path / name).exists() for name in (STATE, SHARDS))
    if not isinstance(manifest, dict) or not {"sha256", "identity"} <= manifest.keys() or not present:
        raise InputError(f"{path}: not a whole checkpoint; delete it to use the one before it")
    for name, value in identity.items():
        if (before := manifest["identity"].get(name)) != value:
            raise InputError(
                f"{path}: {name} was {before!r} in this checkpoint and is {value!r} in this run; "
                "resume with the same setting or choose another run.dir"
            )
    return manifest["sha256"]


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("step_" + "[0-9]" * 8) if (path / MANIFEST).exists())


def file_sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
