"""A step that ended in a number that is not finite, computed again from the batch and the adapter that it left."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch

from papergym.errors import InputError
from papergym.files import read_jsonl
from papergym.model.decoder import CausalLM
from papergym.model.lora import load_adapter
from papergym.seeds import derive_seed
from papergym.training.aggregate import BatchCounts
from papergym.training.config import TrainingConfig
from papergym.training.packing import micro_batches

T = TypeVar("T")


def replay_step(place: Path, config: TrainingConfig, model: CausalLM, algorithm: Any) -> Iterator[str]:
    """Yields a line for every micro-batch of one process: its loss and gradient norm, and where the first number is not finite.

    place: run.dir/failed/step_XXXXXXXX, whose adapter is put into the model. Raises InputError when that is no failed step, and naming
    the line that is no sample of this trainer.
    """
    step, file = re.fullmatch(r"step_(\d{8})", place.name), place / "batch.jsonl"
    if step is None or not file.is_file():
        raise InputError(f"{place}: not a failed step; name a directory like run.dir/failed/step_00000012")
    load_adapter(model, place)
    samples = [_sample(f"{file}, line {number}", algorithm, fields, model.config.vocab_size) for number, fields in read_jsonl(file)]
    if not samples:
        raise InputError(f"{file}: holds no samples, so there is nothing to compute again")
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


def _sample(where: str, algorithm: Any, fields: Mapping[str, Any], vocabulary: int) -> Any:
    try:
        sample = algorithm.sample_from(fields)
    except InputError as error:
        raise InputError(f"{where}, {error}; replay it by the trainer and the recipe that left it") from error
    if not sample.prompt_ids or not all(0 <= token < vocabulary for token in (*sample.prompt_ids, *sample.completion_ids)):
        raise InputError(f"{where}: prompt_ids and completion_ids are not tokens of this model, which has {vocabulary}; check model.path")
    return sample


def read_fields(cls: type[T], fields: Mapping[str, Any]) -> T:
    """The instance of a dataclass whose fields a JSON object holds; null, which JSON has for what is not finite, is read as NaN.

    Texts, numbers and sequences of them are checked. Raises InputError naming the field that is missing, unknown or of another type.
    """
    hints = get_type_hints(cls)
    if odd := sorted(hints.keys() ^ fields.keys()):
        state = "missing" if odd[0] in hints else "unknown"
        raise InputError(f"{odd[0]}: this field is {state}; those of a {cls.__name__} are {', '.join(hints)}")
    return cls(**{name: _read(fields[name], hint, name) for name, hint in hints.items()})


def _read(value: Any, hint: Any, name: str) -> Any:
    if get_origin(hint) is Sequence:
        if not isinstance(value, list):
            raise InputError(f"{name}: a list is needed, not {value!r}")
        return [_read(item, get_args(hint)[0], name) for item in value]
    if hint is float and (value is None or type(value) in (int, float)):
        return math.nan if value is None else float(value)
    if hint in (int, str, float) and type(value) is not hint:
        raise InputError(f"{name}: a value of the type {hint.__name__} is needed, not {value!r}")
    return value


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
