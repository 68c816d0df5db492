"""`papergym plan`: what a recipe needs on given GPUs, itemised, and what to change when it does not fit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from papergym.config import from_mapping, read_values
from papergym.distill.train import OpsdConfig
from papergym.errors import InputError
from papergym.model.lora import LoraConfig, read_adapter_config
from papergym.planning.memory import CONTEXT_BYTES, USABLE, Workload, micro_batch_rows, sampling_bytes, training_bytes
from papergym.planning.models import find_model
from papergym.planning.roofline import DEVICES, Device
from papergym.planning.seconds import step_seconds
from papergym.rl.train import GrpoConfig
from papergym.training.config import TrainingConfig
from papergym.training.sft import SftConfig

REFERENCE_TOKENS = 1024  # of a reference plan, where a recipe of SFT doesn't say


@dataclass(frozen=True)
class Plan:
    """Bytes by item in each phase, for the fullest rank, and seconds of a step."""

    work: Workload
    device: Device
    phases: dict[str, dict[str, float]]  # training, and unless it is SFT, sampling
    seconds: dict[str, float]

    @property
    def peak(self) -> float:
        return max(sum(items.values()) for items in self.phases.values())

    @property
    def fits(self) -> bool:
        return self.peak <= USABLE * self.device.memory


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> TrainingConfig:
    """A trainer's configuration; its [opsd] or [grpo] table says whose, and without either it is SFT's."""
    values = read_values(path, tuple(overrides))
    kinds: dict[str, type[TrainingConfig]] = {"opsd": OpsdConfig, "grpo": GrpoConfig}
    found = [kind for name, kind in kinds.items() if name in values]
    if len(found) > 1:
        raise InputError(f"{path}: both [opsd] and [grpo] are in it; plan the recipe of one stage at a time")
    try:
        return from_mapping(found[0] if found else SftConfig, values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def workload(config: TrainingConfig, ranks: int, prompt_tokens: int, response_tokens: int | None) -> Workload:
    """What the configuration asks of each of so many GPUs. response_tokens: sampling.max_tokens unless given."""
    model = find_model(config.model.path)
    if model.architecture == "qwen3_moe":
        raise InputError(f"{config.model.path}: a mixture of experts can't be planned; only dense models can")
    sampling = getattr(config, "sampling", None)
    algorithm, samples = "sft", 1
    if isinstance(config, OpsdConfig):
        algorithm, samples = "opsd", config.opsd.samples_per_prompt
    elif isinstance(config, GrpoConfig):
        algorithm, samples = "grpo", config.grpo.group_size
    if response_tokens is None:
        response_tokens = sampling.max_tokens if sampling is not None else REFERENCE_TOKENS
    if prompt_tokens + response_tokens > model.max_position_embeddings:
        raise InputError(
            f"a prompt of {prompt_tokens} tokens and a response of {response_tokens} exceed the model's context of "
            f"{model.max_position_embeddings}: lower --prompt-tokens, --response-tokens or sampling.max_tokens"
        )
    stored = config.model.adapter is not None and Path(config.model.adapter).exists()
    lora = read_adapter_config(config.model.adapter) if stored and config.model.adapter else config.lora or LoraConfig()
    return Workload(
        algorithm,  # type: ignore[arg-type]
        model,
        lora,
        ranks=ranks,
        prompts=config.data.prompts_per_step,
        samples=samples,
        prompt_tokens=prompt_tokens,
        response_tokens=response_tokens,
        micro_batch=config.data.tokens_per_micro_batch,
        checkpointing=config.model.activation_checkpointing,
        offload=config.distributed.cpu_offload,
        itemsize=2 if config.model.dtype == "bfloat16" else 4,
    )


def make_plan(work: Workload, device: Device, kl: bool = True) -> Plan:
    """Memory and seconds of a workload on a device."""
    training = [
        training_bytes(work, row, len(rows)) for rows in micro_batch_rows(work) for row in sorted(set(rows), key=lambda row: row.tokens)
    ]
    phases = {"training": max(training, key=lambda items: sum(items.values()))}
    if work.algorithm != "sft":
        phases["sampling"] = sampling_bytes(work)
    phases = {name: items | {"CUDA context": float(CONTEXT_BYTES)} for name, items in phases.items()}
    return Plan(work, device, phases, step_seconds(work, device, kl))


def remedies(plan: Plan, kl: bool = True) -> Iterator[tuple[str, Plan]]:
    """Settings that make the peak smaller, each on top of those before it, the cheapest first, until the plan fits."""
    for key, name, values in _changes(plan.work):
        best = None
        for value in values:
            changed = make_plan(replace(plan.work, **{name: value}), plan.device, kl)
            if changed.peak < plan.peak:
                plan = changed
                best = f"{key}={str(value).lower()}"
            if plan.fits:
                break
        if best is not None:
            yield best, plan
        if plan.fits:
            return


def _changes(work: Workload) -> list[tuple[str, str, list[Any]]]:
    """Keys of the configuration with the field of a workload that they set, and values that need less and less memory."""
    sequence = work.prompt_tokens + work.response_tokens
    halves = [max(sequence, work.micro_batch >> shift) for shift in range(1, 12)]
    modes = ["none", "selective", "full"]
    shorter = [work.response_tokens >> shift for shift in range(1, 5) if work.response_tokens >> shift >= 512]
    return [
        ("data.tokens_per_micro_batch", "micro_batch", [tokens for tokens in dict.fromkeys(halves) if tokens < work.micro_batch]),
        ("model.activation_checkpointing", "checkpointing", modes[modes.index(work.checkpointing) + 1 :]),
        ("distributed.cpu_offload", "offload", [True] if work.ranks > 1 and not work.offload else []),
        ("sampling.max_tokens", "response_tokens", [] if work.algorithm == "sft" else shorter),
    ]


def render(plan: Plan, title: str, steps: int, kl: bool = True) -> str:
    """The plan as text: a table of GiB, the verdict, seconds, and changes where it does not fit."""
    names = list(dict.fromkeys(name for items in plan.phases.values() for name in items))
    lines = [title, ""]
    lines.append("GiB a GPU".ljust(22) + "".join(f"{phase:>12}" for phase in plan.phases))
    for name in names:
        lines.append(name.ljust(22) + "".join(f"{items.get(name, 0.0) / 2**30:12.2f}" for items in plan.phases.values()))
    lines.append("total".ljust(22) + "".join(f"{sum(items.values()) / 2**30:12.2f}" for items in plan.phases.values()))
    room = USABLE * plan.device.memory / 2**30
    lines.append(f"{'fits' if plan.fits else 'does not fit'}: {plan.peak / 2**30:.1f} of {room:.1f} GiB usable on one {plan.device.name}")
    if not plan.fits:
        lines += _advice(plan, kl)
    total = sum(plan.seconds.values())
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in plan.seconds.items())
    lines += ["", f"seconds a step: {total:.0f} ({parts}); {steps} steps take {steps * total / 3600:.1f} hours"]
    lines.append("Seconds are a model's, not measured, at responses of full length; scoring by a judge comes on top.")
    return "\n".join(lines)


def _advice(plan: Plan, kl: bool) -> list[str]:
    lines, last = ["what to change, each on top of the one before:"], plan
    for settings, last in remedies(plan, kl):
        lines.append(f"  {settings:42} {last.peak / 2**30:8.1f} GiB{'  fits' if last.fits else ''}")
    if not last.fits:
        enough = [name for name, device in DEVICES.items() if plan.peak <= USABLE * device.memory]
        larger = f"or as it is on --gpu {enough[0]}" if enough else "and no GPU that is listed holds it as it is"
        lines.append(f"  that is not enough: use a smaller model, {larger}")
    return lines


def describe(work: Workload, name: str, device: Device) -> str:
    """One line about what is planned."""
    samples = f"{work.prompts} prompts × {work.samples}" if work.algorithm != "sft" else f"{work.prompts} examples"
    lengths = f"prompts of {work.prompt_tokens} tokens, responses of {work.response_tokens}"
    return (
        f"{work.algorithm.upper()} on {name}, {work.ranks} × {device.name}: {samples} a step, {lengths}, recomputing {work.checkpointing}"
    )


def report(path: Path, gpus: int, gpu: str, prompt_tokens: int, response_tokens: int | None, overrides: Iterable[str] = ()) -> str:
    """The text of `papergym plan`. Raises InputError for a recipe, model or GPU that can't be planned."""
    if gpu not in DEVICES:
        raise InputError(f"--gpu {gpu}: not a GPU that is known here; use one of {', '.join(DEVICES)}")
    config = load_recipe(path, overrides)
    work = workload(config, gpus, prompt_tokens, response_tokens)
    kl = not isinstance(config, GrpoConfig) or config.grpo.kl_weight > 0
    plan = make_plan(work, DEVICES[gpu], kl)
    return render(plan, describe(work, Path(config.model.path).name, plan.device), config.run.steps, kl)
