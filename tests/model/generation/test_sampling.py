"""The draw has the distribution it claims, its log-probs are those of the whole softmax, and bad parameters are named."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

from papergym.errors import InputError
from papergym.kernels import cpu
from papergym.kernels.cpu import decoding
from papergym.model.generation import SamplingParams
from papergym.model.generation.sampling import draw, uniform_stream

LOGITS = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5, -30.0, 1.5, float("-inf")])


def counts(params: SamplingParams, logits: torch.Tensor = LOGITS, draws: int = 40_000) -> torch.Tensor:
    uniforms = torch.rand(draws, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    ids, logprobs = draw(logits.expand(draws, -1), uniforms, params)
    expected = torch.log_softmax(logits.double() / (params.temperature or 1.0), -1)
    assert torch.allclose(logprobs.double(), expected[ids], rtol=0, atol=2e-6)
    return torch.bincount(ids, minlength=len(logits)).double()


def assert_distribution(observed: torch.Tensor, probabilities: torch.Tensor) -> None:
    """Chi-square with k degrees of freedom: mean k, variance 2k. A draw of probability 0 must not happen at all."""
    assert observed[probabilities == 0].sum() == 0
    expected = probabilities * observed.sum()
    likely = expected > 5
    statistic = ((observed - expected)[likely] ** 2 / expected[likely]).sum().item()
    degrees = int(likely.sum()) - 1
    assert statistic <= degrees + 5 * math.sqrt(2 * degrees), (observed, expected)


def nucleus(probabilities: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """The plain definition: keep the k likeliest, renormalise, then take tokens in order until their sum reaches top_p."""
    order = probabilities.argsort(descending=True)
    kept = order[: top_k or len(order)]
    renormalised = probabilities[kept] / probabilities[kept].sum()
    size = next(i + 1 for i in range(len(kept)) if renormalised[: i + 1].sum() >= top_p - 1e-12)
    result = torch.zeros_like(probabilities)
    result[kept[:size]] = probabilities[kept[:size]]
    return result / result.sum()


@pytest.fixture(params=["compiled", "PyTorch"], autouse=True)
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "PyTorch":
        monkeypatch.setattr(decoding, "available", lambda tensor: False)
    elif cpu.library() is None:
        pytest.skip("no C++ compiler")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (3, 1.0), (0, 0.7), (0, 0.95), (4, 0.8), (1, 1.0), (100, 0.5)])
def test_frequencies(temperature: float, top_k: int, top_p: float) -> None:
    probabilities = torch.softmax(LOGITS.double() / temperature, -1)
    observed = counts(SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p))
    assert_distribution(observed, nucleus(probabilities, top_k, top_p))


def test_a_nucleus_larger_than_the_candidates_is_still_exact() -> None:
    logits = torch.linspace(0, 1, 1500)[torch.randperm(1500, generator=torch.Generator().manual_seed(0))]
    kept = nucleus(torch.softmax(logits.double(), -1), 0, 0.6)
    assert (kept > 0).sum() > 512
    observed = counts(SamplingParams(top_p=0.6), logits, 8_000)
    assert_distribution(observed, kept)


def test_greedy_takes_the_likeliest_token_and_reports_the_unscaled_distribution() -> None:
    observed = counts(SamplingParams(temperature=0.0), draws=10)
    assert observed.tolist() == [0, 0, 10, 0, 0, 0, 0, 0]


def test_the_ends_of_the_unit_interval_hit_tokens_of_positive_probability() -> None:
    logits = torch.tensor([float("-inf"), 0.0, float("-inf"), 1.0, float("-inf")]).expand(2, -1)
    uniforms = torch.tensor([0.0, math.nextafter(1.0, 0.0)], dtype=torch.float64)
    for params in (SamplingParams(), SamplingParams(top_p=0.99999), SamplingParams(top_k=2)):
        ids, _ = draw(logits, uniforms, params)
        assert sorted(ids.tolist()) == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocabulary", [1, 5, 256, 257, 5000, 151936])
def test_a_draw_inverts_the_distribution(vocabulary: int, dtype: torch.dtype) -> None:
    """The uniform number lies between the probability of the tokens before and that with the drawn one; NaN only where it must be."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = (3 * torch.randn(12, vocabulary, generator=generator)).to(dtype)
    logits[0, : vocabulary // 2] = float("-inf")
    uniforms = torch.rand(12, generator=generator, dtype=torch.float64)
    ids, logprobs = draw(logits, uniforms, SamplingParams(temperature=1.3))
    probabilities = torch.softmax(logits.double() / 1.3, -1)
    upper = probabilities.cumsum(-1).gather(-1, ids[:, None])[:, 0]
    chosen = probabilities.gather(-1, ids[:, None])[:, 0]
    assert bool((chosen > 0).all() & (upper - chosen - 1e-6 <= uniforms).all() & (uniforms <= upper + 1e-6).all())
    torch.testing.assert_close(logprobs.double(), chosen.log(), rtol=1e-6, atol=1e-6)
    logits[3, -1], logits[5, 0], logits[7] = float("nan"), float("inf"), float("-inf")
    ids, logprobs = draw(logits, uniforms, SamplingParams(temperature=1.3))
    assert logprobs.isnan().nonzero()[:, 0].tolist() == [3, 5, 7] and bool(((ids >= 0) & (ids < vocabulary)).all())


def test_what_rounding_leaves_over_goes_to_no_unlikely_token() -> None:
    """The last column has the probability 4e-44, the likely ones before it 9e-8 each: sums of a block in fp32 are off by more."""
    logits = torch.full((1, 256), -100.0)
    logits[0, 0], logits[0, 16::16] = 0, math.log(9e-8)
    for below in (3e-7, 1e-7, 2**-53):
        ids, _ = draw(logits, torch.tensor([1 - below], dtype=torch.float64), SamplingParams())
        assert ids.item() % 16 == 0
    half = torch.randn(1, 511, generator=torch.Generator().manual_seed(0)) - 95 * (torch.arange(511) % 2 == 0)
    ids, _ = draw(half, torch.tensor([1 - 2**-53], dtype=torch.float64), SamplingParams())
    assert ids.item() % 2 == 1


def test_extreme_temperatures() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]]).expand(3, -1)
    uniforms = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    ids, logprobs = draw(logits, uniforms, SamplingParams(temperature=1e30))
    assert ids.tolist() == [0, 1, 2]
    torch.testing.assert_close(logprobs, torch.full((3,), math.log(1 / 3)))
    ids, logprobs = draw(logits, uniforms, SamplingParams(temperature=1e-30))
    assert ids.tolist() == [1, 1, 1] and logprobs.tolist() == [0, 0, 0]


def test_logprobs_of_bf16_logits_are_computed_in_fp32() -> None:
    logits = (torch.randn(64, 500, generator=torch.Generator().manual_seed(1)) * 8).bfloat16()
    uniforms = torch.rand(64, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ids, logprobs = draw(logits, uniforms, SamplingParams(temperature=0.7))
    oracle = torch.log_softmax(logits.double() / 0.7, -1).gather(-1, ids[:, None])[:, 0]
    assert logprobs.dtype == torch.float32 and (logprobs.double() - oracle).abs().max() < 1e-5


def test_streams_are_reproducible_and_differ() -> None:
    def first(*key: int) -> list[float]:
        stream = uniform_stream(*key)
        return [next(stream) for _ in range(300)]

    streams = [first(*key) for key in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 1)]]
    assert first(0, 0, 1) == streams[1]
    assert len({tuple(stream) for stream in streams}) == 5
    for a, b in [(0, 1), (0, 2), (0, 3), (1, 2), (3, 4)]:
        assert abs(torch.corrcoef(torch.tensor([streams[a], streams[b]], dtype=torch.float64))[0, 1]) < 0.25


@pytest.mark.parametrize(
    ("field", "value"),
    [("n", 0), ("n", 1.5), ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("top_p", 0), ("top_p", 1.01)]
    + [("top_k", -1), ("max_tokens", 0), ("max_tokens", True), ("seed", -1), ("seed", "x")],
)
def test_bad_parameters_are_named(field: str, value) -> None:
    with pytest.raises(InputError, match=rf"sampling {field} is {value!r}"):
        SamplingParams(**{field: value})


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(n=np.int32(2), temperature=np.float32(0.5), top_p=np.float64(0.75), top_k=np.int64(3), seed=np.uint8(7))
    assert params == SamplingParams(n=2, temperature=0.5, top_p=0.75, top_k=3, seed=7)
    assert {type(value) for value in asdict(params).values()} == {int, float}  # as JSON takes them
    assert draw(LOGITS[None], torch.zeros(1, dtype=torch.float64), params)[0].item() == 2
