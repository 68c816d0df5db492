"""Sampling from language models: `open_engine`, or `TorchEngine` around a model that is already in memory."""

from papergym.model.generation.engine import Engine, open_engine
from papergym.model.generation.sampling import Completion, SamplingParams
from papergym.model.generation.torch_engine import TorchEngine

__all__ = ["Completion", "Engine", "SamplingParams", "TorchEngine", "open_engine"]
