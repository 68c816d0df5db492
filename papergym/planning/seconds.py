"""Seconds of one step, phase by phase: the slowest of arithmetic, memory traffic, transfers and kernel launches, without overlap of phases.

Nothing here has been compared with a run on a GPU: the peaks are data sheets', the shares of them assumptions (roofline.py and below).
"""

from papergym.planning.memory import SAMPLER_TOKENS, Workload, activation_bytes, adapter_parameters, micro_batch_rows
from papergym.planning.roofline import Device, jsd_seconds, logprob_seconds

LAUNCH_SECONDS = 7e-6  # of one operation from Python, as its kernel is too small to hide it: assumed
DECODE_OPERATIONS = 70  # of a layer for one token, counted in the built-in sampler
DECODE_REST = 50  # of a token outside the layers, counted too
TEACHER_PROMPT = 2  # the teacher's prompt, rubric included, beside the student's
ELEMENTWISE = 2  # times that what a layer keeps is written and read in a pass, besides its products: assumed


def step_seconds(work: Workload, device: Device, kl: bool = True) -> dict[str, float]:
    """Seconds by phase: sampling, gathering of weights for it, training, its loss. Scoring is not in it. kl: GRPO's reference pass."""
    seconds = {}
    if work.algorithm != "sft":
        seconds["sampling"] = _sampling(work, device)
    rows = max(micro_batch_rows(work), key=lambda rank: sum(row.tokens for row in rank))
    passes = 2 + (work.checkpointing == "full")  # the base is frozen, so a backward pass costs one forward pass
    extra = 0 if work.algorithm == "sft" or (work.algorithm == "grpo" and not kl) else 1
    train = loss = 0.0
    for row in rows:
        length = row.tokens * work.response_tokens // row.supervised
        flop = row.tokens * (work.model.flops_per_token(length, head=False) * passes + 6.0 * _adapters(work))
        traffic = ELEMENTWISE * passes * activation_bytes(work, row)[1] * work.model.num_hidden_layers
        pass_seconds = _transfer(work, device)  # of a pass, if weights come from the other ranks
        train += max(device.seconds(flop, 0) + device.seconds(0, traffic), passes * pass_seconds)
        if extra:
            tokens = row.tokens
            if work.algorithm == "opsd":
                tokens += (TEACHER_PROMPT - 1) * work.prompt_tokens * max(1, row.supervised // work.response_tokens)
            train += max(device.seconds(tokens * work.model.flops_per_token(length, head=False), 0), pass_seconds)
        shape = (device, row.supervised, work.model.hidden_size, work.model.vocab_size, work.itemsize)
        if work.algorithm == "opsd":
            loss += jsd_seconds(*shape)
        else:
            loss += logprob_seconds(*shape) + (logprob_seconds(*shape, backward=False) if extra else 0.0)
    seconds |= {"training": train, "loss": loss}
    if work.ranks > 1 and work.algorithm != "sft":
        seconds["gathering for the sampler"] = _transfer(work, device)
    return seconds


def _adapters(work: Workload) -> int:
    return adapter_parameters(work) * work.model.num_hidden_layers


def _transfer(work: Workload, device: Device) -> float:
    """All weights once from the other ranks, or from the host too; nothing on one GPU."""
    share = 0.0 if work.ranks == 1 else 1.0 if work.offload else (work.ranks - 1) / work.ranks
    return work.itemsize * (work.model.num_parameters() + _adapters(work)) * share / device.link


def _sampling(work: Workload, device: Device) -> float:
    model = work.model
    prompts = -(-work.prompts // work.ranks)
    groups = max(1, min(prompts, SAMPLER_TOKENS // (work.prompt_tokens + work.samples * work.response_tokens)))
    rows = groups * work.samples
    weights = work.itemsize * (model.num_parameters() + _adapters(work))
    token = 2.0 * work.itemsize * model.num_key_value_heads * model.head_dim * model.num_hidden_layers
    keys = token * groups * (work.prompt_tokens + work.samples * work.response_tokens / 2)  # half of the responses, on average
    flop = rows * model.flops_per_token(work.prompt_tokens + work.response_tokens)
    launches = LAUNCH_SECONDS * (DECODE_OPERATIONS * model.num_hidden_layers + DECODE_REST)
    one_token = max(device.seconds(flop, weights + keys), launches)
    prefill = device.seconds(prompts * work.prompt_tokens * model.flops_per_token(work.prompt_tokens, head=False), 0)
    return prefill + -(-prompts // groups) * work.response_tokens * one_token
