"""The engine against transformers' generate and against whole forward passes; groups, seeds, limits, and the model left as it was."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from papergym.errors import InputError
from papergym.model.decoder import RMSNorm
from papergym.model.generation import Completion, SamplingParams, TorchEngine, open_engine
from papergym.model.lora import LoraConfig, adapters_disabled, apply_lora, lora_parameters
from papergym.model.weights import load_model

ARCHITECTURES = ("qwen3", "qwen2", "llama")
OFTEN = (2, 30, 60, 90, 120)  # stop ids that random models hit every few dozen tokens


def load(path: Path, **changes):
    model = load_model(path, dtype=torch.float32)
    model.config = dataclasses.replace(model.config, **changes)
    return model


def make_prompts(lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, 160, (length,), generator=generator).tolist() for length in lengths]


def full_logprobs(model, prompt: list[int], completion: Completion, temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of the completion's tokens from one forward pass over prompt and completion."""
    with torch.no_grad():
        hidden = model(torch.tensor([prompt + completion.token_ids]))[0, len(prompt) - 1 : -1]
        logprobs = F.log_softmax((hidden @ model.head_weight.T).double() / temperature, -1)
    return logprobs.gather(-1, torch.tensor(completion.token_ids)[:, None])[:, 0]


def assert_logprobs(model, prompts, results, temperature: float = 1.0, atol: float = 2e-5) -> None:
    for prompt, group in zip(prompts, results, strict=True):
        for completion in group:
            assert len(completion.logprobs) == len(completion.token_ids)
            oracle = full_logprobs(model, prompt, completion, temperature)
            assert torch.allclose(torch.tensor(completion.logprobs, dtype=torch.float64), oracle, rtol=0, atol=atol)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_tokens_equal_transformers(tiny_checkpoint, architecture: str) -> None:
    from transformers import AutoModelForCausalLM

    path = tiny_checkpoint(architecture, seed=1)
    prompts = make_prompts((5, 17, 1, 9, 40))
    theirs = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    results = TorchEngine(load(path)).generate(prompts, SamplingParams(temperature=0.0, max_tokens=24))
    for prompt, [completion] in zip(prompts, results, strict=True):
        out = theirs.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=2, pad_token_id=0)
        assert completion.token_ids == out[0, len(prompt) :].tolist()
        assert completion.finish_reason == ("stop" if completion.token_ids[-1] == 2 else "length")
    assert_logprobs(load(path), prompts, results)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sampled_logprobs_equal_a_full_forward(tiny_checkpoint, architecture: str) -> None:
    model, prompts = load(tiny_checkpoint(architecture), eos_token_ids=OFTEN), make_prompts((7, 30, 12))
    params = SamplingParams(n=4, temperature=0.7, top_p=0.9, max_tokens=70, seed=5)
    results = TorchEngine(model).generate(prompts, params)
    assert [len(group) for group in results] == [4, 4, 4]
    assert len({len(completion.token_ids) for group in results for completion in group}) > 5  # rows left the batch at different times
    assert_logprobs(model, prompts, results, temperature=0.7)


def test_a_sample_depends_on_seed_prompt_and_index_only(tiny_checkpoint) -> None:
    model, prompts = load(tiny_checkpoint("qwen3"), eos_token_ids=OFTEN), make_prompts((8, 25, 3, 14, 14, 33))
    params = SamplingParams(n=3, max_tokens=80, seed=11)
    together = TorchEngine(model).generate(prompts, params)
    ids = [[completion.token_ids for completion in group] for group in together]
    assert len({tuple(tokens) for group in ids for tokens in group}) == 18
    assert min(len(tokens) for group in ids for tokens in group) < 20 and max(len(tokens) for group in ids for tokens in group) > 64

    def tokens(results: list[list[Completion]]) -> list[list[list[int]]]:
        return [[completion.token_ids for completion in group] for group in results]

    # Room for one group, for two, and with rows waiting for others to finish: the same tokens.
    for room in (1, 600, 1000):
        assert tokens(TorchEngine(model, max_batch_tokens=room).generate(prompts, params)) == ids
    # The first sample alone is the first of three; the first prompts alone are the first of six.
    alone = tokens(TorchEngine(model).generate(prompts, dataclasses.replace(params, n=1)))
    assert alone == [group[:1] for group in ids]
    assert tokens(TorchEngine(model).generate(prompts[:2], params)) == ids[:2]
    # The last prompts alone are the last of six when their number is said.
    assert tokens(TorchEngine(model).generate(prompts[4:], dataclasses.replace(params, first_prompt=4))) == ids[4:]
    assert TorchEngine(model).generate([], params) == []
    assert tokens(TorchEngine(model).generate(prompts, dataclasses.replace(params, seed=12))) != ids
    unseeded = [TorchEngine(model).generate(prompts[:1], SamplingParams(n=2, max_tokens=80)) for _ in range(2)]
    assert tokens(unseeded[0]) != tokens(unseeded[1])


def test_frequencies_of_the_first_token_match_the_model(tiny_checkpoint) -> None:
    model, [prompt] = load(tiny_checkpoint("llama", vocab_size=11)), [[3, 4, 5, 6]]
    [group] = TorchEngine(model).generate([prompt], SamplingParams(n=4000, temperature=1.3, max_tokens=1, seed=0))
    observed = torch.bincount(torch.tensor([completion.token_ids[0] for completion in group]), minlength=11)
    with torch.no_grad():
        expected = 4000 * torch.softmax((model(torch.tensor([prompt]))[0, -1] @ model.head_weight.T).double() / 1.3, -1)
    likely = expected > 5
    statistic = ((observed - expected)[likely] ** 2 / expected[likely]).sum().item()
    degrees = int(likely.sum()) - 1
    assert degrees >= 4 and statistic < degrees + 5 * math.sqrt(2 * degrees)


def test_stop_tokens_and_limits(tiny_checkpoint) -> None:
    path, prompts = tiny_checkpoint("qwen3"), make_prompts((6, 20))
    free = TorchEngine(load(path, eos_token_ids=())).generate(prompts, SamplingParams(temperature=0.0, max_tokens=30))
    assert [(len(group[0].token_ids), group[0].finish_reason) for group in free] == [(30, "length")] * 2
    stop = free[0][0].token_ids[7]
    first = free[0][0].token_ids.index(stop)
    stopped = TorchEngine(load(path, eos_token_ids=(9999, stop))).generate(prompts, SamplingParams(temperature=0.0, max_tokens=30))
    assert stopped[0][0].token_ids == free[0][0].token_ids[: first + 1] and stopped[0][0].finish_reason == "stop"
    # At the limit a stop token is still a stop.
    at_limit = TorchEngine(load(path, eos_token_ids=(stop,))).generate(prompts[:1], SamplingParams(temperature=0.0, max_tokens=first + 1))
    assert at_limit[0][0].finish_reason == "stop"
    # The context of 128: 20 + 108 tokens, also for a prompt that leaves room for one token.
    long = TorchEngine(load(path, eos_token_ids=())).generate([prompts[1], prompts[1] * 6 + [5] * 7], SamplingParams(max_tokens=500))
    assert [(len(group[0].token_ids), group[0].finish_reason) for group in long] == [(108, "length"), (1, "length")]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([5] * 128, "prompt 1 has 128 tokens: a context of 128 tokens takes at most 127"),
        ([], "prompt 1 is empty"),
        ([160], "prompt 1 holds a token id outside of the model's vocabulary of 160"),
        ([-1], "prompt 1 holds a token id"),
    ],
)
def test_bad_prompts_are_named(tiny_checkpoint, prompt: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TorchEngine(load(tiny_checkpoint("qwen3"))).generate([[3], prompt], SamplingParams(max_tokens=2))


def test_logits_that_are_not_finite_are_an_error(tiny_checkpoint) -> None:
    model = load(tiny_checkpoint("qwen3"))
    model.model.norm.weight.data[3] = float("nan")
    for params in (SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(temperature=0.0)):
        with pytest.raises(FloatingPointError, match="not finite after 4 tokens"):
            TorchEngine(model).generate([[3, 4, 5, 6]], params)


def test_adapters_take_part_and_the_model_is_left_as_it_was(tiny_checkpoint) -> None:
    model, prompts = load(tiny_checkpoint("qwen3")), make_prompts((6, 11))
    params = SamplingParams(n=2, temperature=0.8, max_tokens=20, seed=1)
    base = TorchEngine(model).generate(prompts, params)
    apply_lora(model, LoraConfig(rank=4, alpha=8, dropout=0.5))
    generator = torch.Generator().manual_seed(0)
    for parameter in lora_parameters(model):
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
        parameter.grad = torch.ones_like(parameter)
    model.train()
    model.model.layers[0].mlp.eval()
    modes = [module.training for module in model.modules()]
    adapted = TorchEngine(model).generate(prompts, params)
    assert [module.training for module in model.modules()] == modes
    assert all(bool((parameter.grad == 1).all()) for parameter in lora_parameters(model))
    model.eval()
    assert_logprobs(model, prompts, adapted, temperature=0.8)  # dropout was off
    with adapters_disabled(model):
        assert TorchEngine(model).generate(prompts, params) == base
    assert adapted != base
    # What sampling left behind (rotary tables, for one) can be trained through.
    model.zero_grad()
    (model(torch.tensor(prompts[:1])) @ model.head_weight.T).logsumexp(-1).sum().backward()
    assert all(bool(parameter.grad.abs().sum() > 0) for parameter in lora_parameters(model))


def test_modes_and_layers_are_restored_after_an_error(tiny_checkpoint) -> None:
    model = load_model(tiny_checkpoint("llama"), dtype=torch.bfloat16).train()

    def fail(tokens: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TorchEngine(model).generate([[3, 4]], SamplingParams(max_tokens=3), on_progress=fail)
    assert all(module.training and "forward" not in vars(module) for module in model.modules())
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_progress_counts_tokens(tiny_checkpoint) -> None:
    seen: list[int] = []
    results = TorchEngine(load(tiny_checkpoint("qwen3")), max_batch_tokens=60).generate(
        make_prompts((4, 9, 30)), SamplingParams(n=3, max_tokens=12, seed=2), on_progress=seen.append
    )
    assert seen == sorted(seen) and seen[-1] == sum(len(completion.token_ids) for group in results for completion in group)
    assert TorchEngine(load(tiny_checkpoint("qwen3"))).generate([], SamplingParams()) == []


@pytest.mark.parametrize("form", ["plain", "LoRA", "fp32 norms"])
def test_bf16_agrees_with_a_full_forward_to_its_precision(tiny_checkpoint, form: str) -> None:
    """The reordered weights of the CPU route: the same products, summed in another order."""
    model, prompts = load_model(tiny_checkpoint("qwen2"), dtype=torch.bfloat16), make_prompts((7, 30))
    if form == "fp32 norms":
        for module in model.modules():
            if isinstance(module, RMSNorm):
                module.float()
    if form == "LoRA":
        apply_lora(model, LoraConfig(rank=4, alpha=8))
        generator = torch.Generator().manual_seed(0)
        for parameter in lora_parameters(model):
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    results = TorchEngine(model).generate(prompts, SamplingParams(n=4, max_tokens=30, seed=5))
    errors = [
        (torch.tensor(completion.logprobs) - full_logprobs(model, prompt, completion)).abs()
        for prompt, group in zip(prompts, results, strict=True)
        for completion in group
    ]
    assert torch.cat(errors).mean() < 0.03
    assert "forward" not in vars(model.model.layers[0].mlp.up_proj)


def test_two_threads_sample_from_one_model(tiny_checkpoint) -> None:
    engine, params = TorchEngine(load(tiny_checkpoint("qwen3"))), SamplingParams(n=3, max_tokens=30, seed=5)
    prompts = [make_prompts((length,), seed=length) for length in (3, 9, 20, 31)]
    alone = [engine.generate(prompt, params) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda prompt: engine.generate(prompt, params), prompts * 4)) == alone * 4


def test_open_engine(tiny_checkpoint) -> None:
    path, prompts = tiny_checkpoint("llama"), make_prompts((5,))
    greedy = SamplingParams(temperature=0.0, max_tokens=6)
    expected = TorchEngine(load(path)).generate(prompts, greedy)
    assert open_engine({"kind": "torch", "path": str(path), "dtype": "float32"}).generate(prompts, greedy) == expected
    assert open_engine(f"torch:{path}").model.head_weight.dtype == torch.bfloat16
    for spec, message in [
        ("sglang:x", "unknown engine 'sglang': use one of http, torch, vllm"),
        ("torch", "KIND:PATH"),
        ({"path": "x"}, "'kind' is needed"),
        ({"kind": "torch"}, "'path' is needed"),
        ({"kind": "torch", "path": str(path), "dtype": "int8"}, "dtype 'int8' is not one of"),
        ({"kind": "torch", "path": str(path), "url": "x"}, "unknown entry 'url'"),
        ("torch:/no/such/model", "/no/such/model"),
    ]:
        with pytest.raises(InputError, match=message):
            open_engine(spec)
