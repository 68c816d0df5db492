"""Bytes that a GPU holds at the fullest moment of each phase of a step, itemised, in closed form.

tests/planning/ compares every part with PyTorch's own accounting of the same code. What is counted are tensors: the CUDA context and
fragmentation come on top (`CONTEXT_BYTES`, `USABLE`).

Legend: T packed tokens of a micro-batch, N supervised ones, K keys that its sequences see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from papergym.kernels.linear_logprob.torch import TILE_COLUMNS as CPU_LOGPROB_COLUMNS
from papergym.kernels.linear_logprob.torch import WORKSPACE_BYTES as CPU_LOGPROB_WORKSPACE
from papergym.model.config import ModelConfig
from papergym.model.lora import LoraConfig
from papergym.training.distributed import Ranks, shared_out

CONTEXT_BYTES = 1 << 30  # CUDA context, cuBLAS and NCCL: assumed
USABLE = 0.95  # share of a GPU's memory that tensors can fill in spite of fragmentation: assumed
JSD_WORKSPACE = 512 << 20  # as in papergym.kernels.linear_jsd
JSD_CPU_WORKSPACE = 192 << 20
LOGPROB_WORKSPACE = 256 << 20  # as in papergym.kernels.linear_logprob.triton
SAMPLER_TOKENS = 65536  # room of the built-in sampler for keys and values, in tokens
GROWTH = 64  # columns that its cache grows by
GATHERED_FORWARD, GATHERED_BACKWARD = 3, 2  # layers that FSDP holds whole: one computes, the next arrives, and is laid out once more


@dataclass(frozen=True)
class Workload:
    """What decides the memory of a run. Every prompt and every response has the same number of tokens."""

    algorithm: Literal["sft", "opsd", "grpo"]
    model: ModelConfig
    lora: LoraConfig
    ranks: int
    prompts: int  # of all ranks, a step
    samples: int  # a prompt
    prompt_tokens: int
    response_tokens: int
    micro_batch: int  # tokens
    checkpointing: Literal["none", "selective", "full"] = "none"
    offload: bool = False  # shards and optimizer state in host memory
    itemsize: int = 2  # bytes of a base weight
    gpu: bool = True  # fused norms, one attention call a row, Triton's workspaces; otherwise what a CPU does


@dataclass(frozen=True)
class Row:
    """A micro-batch: T, N and K."""

    tokens: int
    supervised: int
    keys: int


@dataclass(frozen=True)
class _Sample:
    prompt_ids: range
    completion_ids: range


def micro_batch_rows(work: Workload) -> list[list[Row]]:
    """The micro-batches of each rank, cut as the trainers cut them."""
    prompts = [range(i * work.prompt_tokens, (i + 1) * work.prompt_tokens) for i in range(work.prompts)]
    samples = [_Sample(prompt, range(work.response_tokens)) for prompt in prompts for _ in range(work.samples)]
    ranks = (Ranks(rank, work.ranks) for rank in range(work.ranks))
    return [[_row(batch) for batch, _ in shared_out(samples, work.micro_batch, rank)] for rank in ranks]


def _row(batch: Sequence[_Sample]) -> Row:
    prompts = sum(len(prompt) for prompt in {sample.prompt_ids for sample in batch})
    supervised = sum(len(sample.completion_ids) for sample in batch)
    inputs = supervised - len(batch)  # nothing is predicted from a last token
    return Row(prompts + inputs, supervised, prompts + sum(len(s.prompt_ids) for s in batch) + inputs)


def projections(model: ModelConfig) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of a layer's seven linear maps."""
    hidden, inner = model.hidden_size, model.intermediate_size
    queries, keys = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    sizes = {"q_proj": (hidden, queries), "k_proj": (hidden, keys), "v_proj": (hidden, keys), "o_proj": (queries, hidden)}
    return sizes | {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}


def adapter_parameters(work: Workload) -> int:
    """LoRA parameters of one layer."""
    sizes = projections(work.model)
    return work.lora.rank * sum(sum(sizes[name]) for name in work.lora.target_modules)


def training_bytes(work: Workload, row: Row, micro_batches: int) -> dict[str, float]:
    """Items at the fullest moment of training on a micro-batch; micro_batches: of this rank in a step."""
    layers, adapters = work.model.num_hidden_layers, adapter_parameters(work)
    items = _persistent(work)
    gradients, layer, casts = 4.0 * layers * adapters / work.ranks, 0.0, 0.0
    if work.ranks > 1:
        base = _layer_parameters(work.model)
        items["weights"] += work.itemsize * (work.model.num_parameters() - layers * base)  # embedding, head and last norm are whole
        layer = float(work.itemsize * (base + adapters))
        # Until the last micro-batch every rank adds up the gradients of whole adapters.
        gradients = (0.0 if work.offload else gradients) + (4.0 * layers * adapters if micro_batches > 1 else 0.0)
    elif work.itemsize < 4:
        casts = float(work.itemsize * adapters)  # adapters in the dtype of the base
    recomputed = work.checkpointing != "none"
    stored, whole, moving = activation_bytes(work, row)
    outermost = row.tokens * (work.model.hidden_size + 2 * work.model.head_dim)  # input of the last norm, cos and sin
    rotary = 2 * work.model.max_position_embeddings * work.model.head_dim
    kept = layers * (stored + (0.0 if recomputed else casts)) + work.itemsize * float(outermost + rotary)
    states, workspace = loss_bytes(work, row)
    # (gathered layers, activations, workspace) at the end of forward, in the loss, and in the last layer's backward pass
    moments = [
        (min(GATHERED_FORWARD, layers) * layer, kept, 0.0),
        (0.0, kept + states, workspace),
        (min(GATHERED_BACKWARD, layers) * layer, kept + whole - stored + moving + (casts if recomputed else 0.0), 0.0),
    ]
    gathered, activations, workspace = max(moments, key=sum)
    items["weights"] += gathered
    return items | {"gradients": gradients, "activations": activations, "logits workspace": workspace}


def activation_bytes(work: Workload, row: Row) -> tuple[float, float, float]:
    """Bytes of one layer: kept for the backward pass, kept without checkpointing, and moving through its backward pass on top."""
    model, targets, size = work.model, work.lora.target_modules, work.itemsize
    sizes = projections(model)
    hidden, inner, queries, keys = model.hidden_size, model.intermediate_size, sizes["q_proj"][1], sizes["k_proj"][1]
    heads, key_heads = model.num_attention_heads, model.num_key_value_heads
    low = work.lora.rank * len(targets)
    attention_input = hidden if {"q_proj", "k_proj", "v_proj"} & set(targets) else 0
    mlp_input = hidden if {"gate_proj", "up_proj"} & set(targets) else 0
    product = inner if "down_proj" in targets else 0
    token = 2 * hidden + attention_input + mlp_input + 2 * queries + 3 * inner + product + low
    statistics = 4 * heads  # log-sum-exp
    if model.qk_norm:
        token += queries + keys
        statistics += 4 * (2 + heads + key_heads)
    seen = 2 * keys  # keys and values, of K tokens
    if not work.gpu:
        token += queries + 2 * keys  # outputs one by one and joined; keys and values of prompts are views of the whole row
    whole = row.tokens * (size * token + statistics) + row.keys * size * seen
    if work.lora.dropout:
        whole += row.tokens * (size + 1) * sum(sizes[name][0] for name in targets)
    moving = row.tokens * size * (3 * inner + hidden)
    if work.checkpointing == "none":
        return whole, whole, moving
    kept = row.tokens * size * hidden
    if work.checkpointing == "selective":
        outputs = sum(out for _, out in sizes.values()) + sum(sizes[name][1] for name in targets)
        kept += row.tokens * (size * (outputs + low + queries) + 4 * heads)
    return kept, whole, moving


def loss_bytes(work: Workload, row: Row) -> tuple[float, float]:
    """Hidden states with their gradients, and the workspace for logits, between the two passes through the decoder."""
    vocabulary, states = work.model.vocab_size, float(row.supervised * work.model.hidden_size)
    if work.algorithm == "opsd":
        limit = JSD_WORKSPACE if work.gpu else JSD_CPU_WORKSPACE
        return (2 * work.itemsize + 4) * states, min(limit, 8.0 * row.supervised * vocabulary)
    if work.gpu:
        logits = min(LOGPROB_WORKSPACE, float(work.itemsize) * row.supervised * vocabulary)
    else:
        logits = min(CPU_LOGPROB_WORKSPACE, 4.0 * row.supervised * min(vocabulary, CPU_LOGPROB_COLUMNS))
    return (work.itemsize + 4) * states, logits


def sampling_bytes(work: Workload) -> dict[str, float]:
    """Items at the fullest moment of sampling: the last token of responses of full length."""
    model, size = work.model, work.itemsize
    prompts = -(-work.prompts // work.ranks)
    room = work.prompt_tokens + work.samples * work.response_tokens
    groups = max(1, min(prompts, SAMPLER_TOKENS // room))
    rows = groups * work.samples
    columns = work.response_tokens // GROWTH * GROWTH + GROWTH
    token = 2.0 * size * model.num_key_value_heads * model.head_dim  # a layer's key and value
    layer = token * (groups * work.prompt_tokens + rows * columns)
    scores = rows * model.num_attention_heads * (work.prompt_tokens + work.response_tokens) * (4 + 4 + size)
    logits = rows * model.vocab_size * (size + 4 + 4)
    persistent = _persistent(work)
    copy = size * (model.num_parameters() + adapter_parameters(work) * model.num_hidden_layers)
    if work.ranks > 1:
        persistent["weights"] += copy
    if not work.gpu:
        persistent["weights reordered"] = copy
    # The cache grows layer by layer: the old layer, the new one, and a copy of the old one's keys on the way.
    return persistent | {"KV cache": model.num_hidden_layers * layer + max(1.5 * layer, scores), "logits workspace": logits}


def _persistent(work: Workload) -> dict[str, float]:
    """What stays all through a step."""
    adapters = adapter_parameters(work) * work.model.num_hidden_layers
    share = 0.0 if work.offload and work.ranks > 1 else 1.0 / work.ranks
    return {"weights": work.itemsize * work.model.num_parameters() * share, "LoRA": 4 * adapters * share, "optimizer": 8 * adapters * share}


def _layer_parameters(model: ModelConfig) -> int:
    return (model.num_parameters(embeddings=False) - model.hidden_size) // model.num_hidden_layers
