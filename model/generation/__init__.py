"""Sampling from language models: `open_engine`, or `TorchEngine` around a model that is already in memory.

The names are imported on first use, so that clients of a server need no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from papergym.model.generation.engine import Engine, open_engine
    from papergym.model.generation.sampling import Completion, SamplingParams
    from papergym.model.generation.torch_engine import TorchEngine

__all__ = ["Completion", "Engine", "SamplingParams", "TorchEngine", "open_engine"]

_MODULES = {
    "Completion": "sampling",
    "Engine": "engine",
    "SamplingParams": "sampling",
    "TorchEngine": "torch_engine",
    "open_engine": "engine",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
