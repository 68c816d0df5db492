"""Tensors in files: listed by name and shape first, so that a mismatch is found before anything is read or allocated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from papergym.errors import InputError
from papergym.files import atomic_write

_FLOATING = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that a file holds.

    read(rows=slice(None)): loads these rows of it to the CPU, in the file's own floating-point type or dequantised to fp32.
    """

    name: str
    shape: tuple[int, ...]
    file: Path
    read: Callable[..., Tensor]


def list_safetensors(path: Path) -> list[StoredTensor]:
    """The tensors of one safetensors file. Raises InputError for a file that is damaged or holds other than floating-point numbers."""
    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise InputError(f"{path}: not a complete safetensors file ({error}); fetch or write it again") from error
    tensors = []
    for name in file.keys():  # noqa: SIM118 (a handle, not a mapping)
        entry = file.get_slice(name)
        if entry.get_dtype() not in _FLOATING:
            raise InputError(f"{path}: tensor {name!r} has the type {entry.get_dtype()}: one of {', '.join(_FLOATING)} is needed")
        tensors.append(StoredTensor(name, tuple(entry.get_shape()), path, partial(_read_safetensors, path, name)))
    return tensors


def _read_safetensors(path: Path, name: str, rows: slice = slice(None)) -> Tensor:
    """Rows of a stored tensor, a view of the mapped file. The map ends with the view, so that files do not add up in memory."""
    with safe_open(path, framework="pt") as file:
        return file.get_slice(name)[rows]


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes one safetensors file, atomically."""
    with atomic_write(path) as file:
        file.write(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata={"format": "pt"}))


def match_tensors(
    tensors: Iterable[StoredTensor], shapes: Mapping[str, Sequence[int]], source: Path, model: str
) -> dict[str, StoredTensor]:
    """Finds a stored tensor for every name and shape, and a place for every stored tensor.

    shapes: the shape of each place, by name. model: what the places belong to, for the message. source: the file or
    directory to blame for a missing tensor.
    Raises InputError naming the file, the tensor and both shapes.
    """
    found: dict[str, StoredTensor] = {}
    for tensor in tensors:
        if tensor.name not in shapes:
            raise InputError(f"{tensor.file}: tensor {tensor.name!r} has no place in {model}")
        if tensor.shape != (needed := tuple(shapes[tensor.name])):
            raise InputError(f"{tensor.file}: tensor {tensor.name!r} has the shape {tensor.shape}, but {model} needs {needed}")
        found[tensor.name] = tensor
    if missing := [name for name in shapes if name not in found]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(f"{source}: tensor {missing[0]!r}{more} of {model} is missing")
    return found


def fill_parameters(module: nn.Module, tensors: Mapping[str, StoredTensor]) -> None:
    """Copies stored tensors into the parameters of the same names, converting to their dtype and device.

    Of a parameter that is sharded over ranks, each rank reads its own rows only.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in tensors:
                local, rows = local_rows(parameter)
                local.copy_(tensors[name].read(rows))


def local_rows(parameter: Tensor) -> tuple[Tensor, slice]:
    """What this rank holds of a parameter, and which rows of the whole that is: all of them unless it is a DTensor sharded by rows."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return parameter, slice(None)
    local = parameter.to_local()  # type: ignore[attr-defined]
    rows = len(parameter)
    first = min(rows, mesh.get_local_rank() * -(-rows // mesh.size()))  # FSDP cuts as torch.chunk does: the last ranks have fewer
    return local, slice(first, first + len(local))
