"""Parity with transformers in fp32 on random weights, and the equalities that hold between ways to feed the same tokens."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from papergym.errors import InputError
from papergym.model.weights import load_model

MIXTURE = {"head_dim": 12, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
CONFIGURATIONS = [
    ("qwen3", {}),
    ("qwen3", {"tie_word_embeddings": True, "num_key_value_heads": 1, "head_dim": 10}),
    ("qwen3", {"num_key_value_heads": 6, "head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("qwen3", {"attention_bias": True, "num_key_value_heads": 3, "rms_norm_eps": 1e-2}),
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    ("qwen3_moe", MIXTURE),
    ("qwen3_moe", MIXTURE | {"num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [1], "norm_topk_prob": False}),
    ("llama", {"num_key_value_heads": 3}),
    ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 14, "num_key_value_heads": 1}),
]


def logits_of(model, *arguments, **options):
    return model(*arguments, **options) @ model.head_weight.T


def relative(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def random_ids(*shape, vocab_size=160, seed=0):
    return torch.randint(0, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return load_model(tiny_checkpoint("qwen3"), dtype=torch.float32)


@pytest.mark.parametrize(("architecture", "overrides"), CONFIGURATIONS)
@torch.no_grad()
def test_logits_equal_transformers(tiny_checkpoint, architecture, overrides):
    path = tiny_checkpoint(architecture, **overrides)
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    ids = random_ids(3, 100)
    expected = theirs(ids).logits
    assert relative(logits_of(load_model(path, dtype=torch.float32), ids), expected) < 2e-5
    # The bar means something: a token's logits differ from those of the same token elsewhere.
    assert relative(expected.roll(1, dims=1), expected) > 0.5


@torch.no_grad()
def test_given_positions_equal_transformers(tiny_checkpoint, model):
    theirs = AutoModelForCausalLM.from_pretrained(tiny_checkpoint("qwen3"), dtype=torch.float32)
    ids, positions = random_ids(2, 9), random_ids(2, 9, vocab_size=128, seed=1)
    assert relative(logits_of(model, ids, positions), theirs(ids, position_ids=positions).logits) < 2e-5


def test_gradients_equal_transformers(tiny_checkpoint, model):
    theirs = AutoModelForCausalLM.from_pretrained(tiny_checkpoint("qwen3"), dtype=torch.float32)
    ids = random_ids(2, 20)
    for logits in (logits_of(model, ids), theirs(ids).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    expected = {name: weight.grad for name, weight in theirs.named_parameters()}
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    assert gradients.keys() == expected.keys()
    assert max(relative(gradients[name], expected[name]) for name in expected) < 2e-5


@torch.no_grad()
def test_bf16_is_as_close_to_fp32_as_transformers_is(tiny_checkpoint, model):
    ids = random_ids(4, 64)
    exact = logits_of(model, ids)
    theirs = AutoModelForCausalLM.from_pretrained(tiny_checkpoint("qwen3"), dtype=torch.bfloat16)
    ours = logits_of(load_model(tiny_checkpoint("qwen3"), dtype=torch.bfloat16), ids)
    assert ours.dtype == torch.bfloat16
    assert relative(ours.float(), exact) < 1.2 * relative(theirs(ids).logits.float(), exact)


@torch.no_grad()
def test_packed_sequences_equal_separate_ones(model):
    lengths = [1, 17, 5, 40]
    sequences = [random_ids(1, length, seed=length) for length in lengths]
    bounds = torch.tensor([0, 1, 18, 23, 63], dtype=torch.int32)
    packed = model(torch.cat(sequences, dim=1), cu_seqlens=bounds)
    separate = torch.cat([model(sequence) for sequence in sequences], dim=1)
    assert relative(packed, separate) < 1e-6
    restarted = torch.cat([torch.arange(length) for length in lengths])[None]
    assert torch.equal(packed, model(torch.cat(sequences, dim=1), restarted, cu_seqlens=bounds))
    assert relative(packed, model(torch.cat(sequences, dim=1))) > 0.1


@torch.no_grad()
def test_padding_on_the_right_and_later_tokens_change_nothing_before_them(model):
    ids = random_ids(2, 30)
    changed = torch.cat([ids[:, :12], random_ids(2, 18, seed=1)], dim=1)
    hidden = model(ids)
    assert relative(model(changed)[:, :12], hidden[:, :12]) < 1e-6
    assert relative(model(ids[:, :12]), hidden[:, :12]) < 1e-6


@torch.no_grad()
def test_only_distances_between_positions_matter(model):
    ids, positions = random_ids(2, 20), torch.arange(20).expand(2, 20)
    hidden = model(ids)
    assert torch.equal(model(ids, positions), hidden)
    assert relative(model(ids, positions + 100), hidden) < 1e-4
    assert relative(model(ids, positions * 3), hidden) > 1e-2


class GrowingCache:
    """The plainest cache: concatenate, then attend with an explicit mask."""

    def __init__(self, layers):
        self.stored = [None] * layers

    def attend(self, layer, query, key, value):
        if self.stored[layer] is not None:
            key, value = (torch.cat((old, new), dim=2) for old, new in zip(self.stored[layer], (key, value)))
        self.stored[layer] = key, value
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril(key.shape[2] - query.shape[2])
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


@torch.no_grad()
def test_a_cache_fed_in_pieces_equals_one_pass(model):
    ids, cache = random_ids(2, 16), GrowingCache(layers=2)
    pieces = [(0, 7), (7, 12), *((i, i + 1) for i in range(12, 16))]
    hidden = [model(ids[:, a:b], torch.arange(a, b).expand(2, -1), cache=cache) for a, b in pieces]
    assert relative(torch.cat(hidden, dim=1), model(ids)) < 1e-6


def test_activation_checkpointing_recomputes_and_keeps_the_gradients(tiny_checkpoint):
    model, ids, calls = load_model(tiny_checkpoint("qwen3"), dtype=torch.float32), random_ids(1, 20), []
    model.model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    gradients = []
    for recompute in ("none", "selective", "full"):
        model.activation_checkpointing = recompute
        model.zero_grad()
        model(ids, cu_seqlens=torch.tensor([0, 8, 20])).square().sum().backward()
        gradients.append([weight.grad.clone() for weight in model.model.parameters()])
    assert len(calls) == 5  # once without, forward and recomputation with
    for recomputed in gradients[1:]:
        assert all(torch.equal(a, b) for a, b in zip(gradients[0], recomputed, strict=True))


def test_selective_checkpointing_repeats_no_matrix_product(tiny_checkpoint):
    model, ids, flops = load_model(tiny_checkpoint("qwen3"), dtype=torch.float32), random_ids(1, 20), {}
    for recompute in ("none", "selective", "full"):
        model.activation_checkpointing = recompute
        with FlopCounterMode(display=False) as counter:
            model(ids).square().sum().backward()
        flops[recompute] = counter.get_total_flops()
    assert flops["none"] == flops["selective"] < flops["full"]


def test_trains_after_sampling_in_inference_mode(tiny_checkpoint):
    model, ids = load_model(tiny_checkpoint("qwen3"), dtype=torch.float32), random_ids(1, 8)
    with torch.inference_mode():
        sampled = model(ids)
    trained = model(ids)
    trained.sum().backward()
    assert torch.equal(sampled, trained)


@torch.no_grad()
def test_a_visit_to_bf16_leaves_the_rotary_table_exact(tiny_checkpoint):
    model, ids = load_model(tiny_checkpoint("qwen3"), dtype=torch.bfloat16), random_ids(1, 100)
    model(ids)
    rounded = load_model(tiny_checkpoint("qwen3"), dtype=torch.bfloat16).float()
    assert torch.equal(model.float()(ids), rounded(ids))
    cos, _ = model._rotary(torch.device("cpu"), torch.float32)
    assert torch.equal(cos[:, 0], torch.arange(128.0).cos())  # the first dimension turns by one radian a position


def test_refuses_what_does_not_fit_together(model):
    with pytest.raises(InputError, match="129 tokens is longer than the model's context of 128"):
        model(random_ids(1, 129))
    model(random_ids(1, 200), cu_seqlens=torch.tensor([0, 100, 200]))
    for bounds in ([0, 5], [1, 10], [0, 6, 4, 10], [0]):
        with pytest.raises(ValueError, match="cu_seqlens"):
            model(random_ids(1, 10), cu_seqlens=torch.tensor(bounds))
    with pytest.raises(ValueError, match="batch of 2"):
        model(random_ids(2, 10), cu_seqlens=torch.tensor([0, 10]))
    for ids in (
        torch.zeros(0, 3, dtype=torch.int64),
        torch.zeros(2, 0, dtype=torch.int64),
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(2, 3),
    ):
        with pytest.raises(InputError, match=r"input_ids: int64 \[B, T\] with B and T from 1 is needed, not torch"):
            model(ids)
    for positions in (torch.arange(2), torch.zeros(1, 3, dtype=torch.int64)):
        with pytest.raises(InputError, match=r"positions: \[B, T\] = \[1, 2\]"):
            model(torch.zeros(1, 2, dtype=torch.int64), positions=positions)
    with pytest.raises(ValueError, match="positions are required"):
        model(random_ids(1, 4), cache=GrowingCache(layers=2))
