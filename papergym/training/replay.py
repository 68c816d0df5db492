"""A step that ended in a number that is not finite, computed again from the batch and the adapter that it left."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from papergym.errors import InputError
from papergym.files import read_jsonl
from papergym.model.decoder import CausalLM
from papergym.model.lora import load_adapter
from papergym.seeds import derive_seed
from papergym.training.aggregate import BatchCounts
from papergym.training.config import TrainingConfig
from papergym.training.packing import micro_batches


def replay_step(place: Path, config: TrainingConfig, model: CausalLM, algorithm: Any) -> Iterator[str]:
    """Yields a line for every micro-batch of one process: its loss and gradient norm, and where the first number is not finite.

    place: run.dir/failed/step_XXXXXXXX, whose adapter is put into the model. Raises InputError when that is no failed step.
    """
    step, file = re.fullmatch(r"step_(\d{8})", place.name), place / "batch.jsonl"
    if step is None or not file.is_file():
        raise InputError(f"{place}: not a failed step; name a directory like run.dir/failed/step_00000012")
    load_adapter(model, place)
    samples = [algorithm.sample_from(fields) for _, fields in read_jsonl(file)]
    counts = BatchCounts.of([len(sample.completion_ids) for sample in samples])
    torch.manual_seed(derive_seed(config.run.seed, int(step[1])))
    model.train()
    first = 0
    for number, batch in enumerate(micro_batches(samples, config.data.tokens_per_micro_batch), 1):
        model.zero_grad(set_to_none=True)
        where = f"micro-batch {number}, samples {first} to {first + len(batch) - 1}"
        first += len(batch)
        loss, problem = _losses(algorithm, batch, counts)
        gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        norm = torch.linalg.vector_norm(torch.stack([gradient.norm() for gradient in gradients.values()])).item() if gradients else 0.0
        broken = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
        if broken and not problem:
            problem = f"the gradient of {broken[0]} and {len(broken) - 1} more is not finite"
        yield f"{where}: loss {loss:.6g}, gradient norm {norm:.6g}{'; ' + problem if problem else ''}"


def _losses(algorithm: Any, batch: list[Any], counts: BatchCounts) -> tuple[float, str]:
    """A micro-batch's loss after its backward pass, and what went wrong, if anything did."""
    try:
        with torch.autograd.set_detect_anomaly(True):
            loss, sums = algorithm.loss(batch, counts)
            loss.backward()
    except RuntimeError as error:  # what anomaly detection raises names the operation
        if "nan values" not in str(error):
            raise
        return loss.item(), str(error).splitlines()[0]
    wrong = [name for name, value in sums.items() if not math.isfinite(value.item())]
    if wrong:
        return loss.item(), f"the metric {wrong[0]} is not finite"
    return loss.item(), "" if math.isfinite(loss.item()) else "the loss itself is not finite"
