"""Training checkpoints that are either whole or absent: written beside, checksummed, then renamed into place.

What a run needs besides its tensors is its step: learning rate, order of the data, sampled tokens and every random generator are functions
of the seed and the step. The manifest says which run the tensors belong to, what wrote them, and how good they are.
"""

import hashlib
import math
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import IO, Any

import torch

from papergym.errors import InputError
from papergym.files import atomic_directory, read_json, remove_directory, remove_leftovers, write_json

STATE, MANIFEST = "state.pt", "manifest.json"
SHARDS = "shards"  # a directory in place of STATE, where several ranks wrote the checkpoint


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay: the `keep` newest, and the one whose metric `best_by` is highest, or lowest after a minus: "-loss"."""

    keep: int = 2
    best_by: str | None = None

    def score(self, metrics: Mapping[str, Any]) -> float:
        """How good a checkpoint is by its metrics, higher is better; minus infinity where its metric is absent or not finite."""
        if self.best_by is None:
            return -math.inf
        value = metrics.get(self.best_by.removeprefix("-"))
        if value is None or not math.isfinite(value):
            return -math.inf
        return -value if self.best_by.startswith("-") else value


def save_checkpoint(
    directory: str | Path,
    step: int,
    state: Mapping[str, Any],
    identity: Mapping[str, Any],
    retention: Retention = Retention(),
    metrics: Mapping[str, float] | None = None,
) -> Path:
    """Writes directory/step_XXXXXXXX and removes what `retention` doesn't keep.

    state: tensors and plain values (adapter, optimizer). identity: what a resume must agree with (model, configuration).
    metrics: means over the steps since the last checkpoint.
    Raises InputError when the disk refuses it; the checkpoints before it are untouched then.
    """
    final = Path(directory) / f"step_{step:08d}"
    with refused_in_a_sentence(final), atomic_directory(final) as temporary:
        _write_state(temporary / STATE, state)
        write_manifest(temporary, step, file_sha256(temporary / STATE), identity, metrics)
    prune_checkpoints(directory, retention)
    return final


def write_manifest(
    directory: Path, step: int, digests: str | Mapping[str, str], identity: Mapping[str, Any], metrics: Mapping[str, float] | None
) -> None:
    """Writes what is known of a checkpoint's content beside it. digests: of the state, or of each of its shards."""
    record = {"step": step, "sha256": digests, "identity": dict(identity), "versions": _versions(), "metrics": dict(metrics or {})}
    write_json(directory / MANIFEST, record)


def differing_versions(path: Path) -> str:
    """The versions that wrote a checkpoint where they are other than the present ones; empty if none is."""
    before = _read_manifest(path).get("versions", {})
    return ", ".join(f"{name} {before[name]}" for name, now in _versions().items() if name in before and before[name] != now)


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in ("papergym", "torch")}}


@contextmanager
def refused_in_a_sentence(final: Path) -> Iterator[None]:
    """Turns the system's refusal to write a checkpoint into an InputError, and leaves none of its half behind."""
    try:
        yield
    except OSError as error:
        remove_leftovers(final)
        reason = error.strerror or error
        raise InputError(
            f"{final}: can't be written ({reason}); make room there, and the same command goes on from the checkpoint before"
        ) from error


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    """torch.save, which turns the system's errors into its own; here they stay."""
    with open(path, "wb") as file:
        noting = _Noting(file)
        try:
            torch.save(dict(state), noting)  # type: ignore[arg-type]
        except RuntimeError as error:
            raise noting.error or error from error


class _Noting:
    """A file that remembers what the system refused."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def prune_checkpoints(directory: str | Path, retention: Retention) -> None:
    """Removes the checkpoints that aren't to be kept, and what a kill left of those being written or removed."""
    directory = Path(directory)
    for leftover in directory.glob(".step_*"):
        remove_leftovers(directory / leftover.stem.removeprefix("."))
    best = best_checkpoint(directory, retention)
    for old in _checkpoints(directory)[: -retention.keep]:
        if old != best:
            remove_directory(old)


def latest_checkpoint(directory: str | Path) -> Path | None:
    """The newest checkpoint of a directory, or None."""
    found = _checkpoints(Path(directory))
    return found[-1] if found else None


def best_checkpoint(directory: str | Path, retention: Retention) -> Path | None:
    """The checkpoint that is best by the metric of `retention`, the first of equals; None where no checkpoint has it."""
    scores = {path: retention.score(_read_manifest(path).get("metrics", {})) for path in _checkpoints(Path(directory))}
    best = max(scores, key=lambda path: scores[path], default=None)
    return best if best is not None and scores[best] > -math.inf else None


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
    manifest = _read_manifest(path)
    for name, value in identity.items():
        if (before := manifest["identity"].get(name)) != value:
            raise InputError(
                f"{path}: {name} was {before!r} in this checkpoint and is {value!r} in this run; "
                "resume with the same setting or choose another run.dir"
            )
    return manifest["sha256"]


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = read_json(path / MANIFEST)
    shards = (path / SHARDS).exists()
    types = {"sha256": dict if shards else str, "identity": dict, "versions": dict, "metrics": dict}
    whole = isinstance(manifest, dict) and {"sha256", "identity"} <= manifest.keys() and (shards or (path / STATE).exists())
    if not whole or not all(isinstance(manifest[name], kind) for name, kind in types.items() if name in manifest):
        raise InputError(f"{path}: not a whole checkpoint; delete it to use the one before it")
    if odd := [name for name, value in manifest.get("metrics", {}).items() if type(value) not in (int, float, NoneType)]:
        raise InputError(f"{path / MANIFEST}: the metric {odd[0]!r} is no number; delete {path} to use the checkpoint before it")
    return manifest


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("step_" + "[0-9]" * 8) if (path / MANIFEST).exists())


def file_sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
