"""The command: recipes of every kind, sums by hand, advice that keeps its word, and what it refuses."""

import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.errors import InputError
from papergym.model.lora import LoraConfig
from papergym.planning.memory import CONTEXT_BYTES, Row, Workload, micro_batch_rows
from papergym.planning.models import find_model, published
from papergym.planning.plan import load_recipe, make_plan, remedies, workload
from papergym.planning.roofline import DEVICES

CONFIGS = Path(__file__).parent.parent.parent / "configs"
RECIPES = sorted(path for path in CONFIGS.glob("*.toml") if not path.name.startswith("demo"))


def plan(recipe: str, gpus: int = 4, gpu: str = "a6000", response: int | None = None, overrides: tuple[str, ...] = ()):
    return make_plan(workload(load_recipe(CONFIGS / recipe, overrides), gpus, 512, response), DEVICES[gpu])


def test_published_sizes(tiny_policy):
    assert published("Qwen3-8B").num_parameters() == 8_190_735_360 and published("Qwen3-0.6B").num_parameters() == 596_049_920
    assert find_model("models/Qwen3-4B") == published("Qwen3-4B") and find_model(str(tiny_policy)).hidden_size == 32


def test_micro_batches_by_hand():
    work = Workload("grpo", published("Qwen3-0.6B"), LoraConfig(), 2, 2, 3, prompt_tokens=10, response_tokens=100, micro_batch=250)
    two, one = Row(10 + 2 * 99, 200, 10 + 2 * 109), Row(10 + 99, 100, 10 + 109)
    assert micro_batch_rows(work) == [[two, one], [two, one]]  # a group a rank; the third answer does not fit beside the others


def test_weights_and_states_by_hand():
    model, rank = published("Qwen3-8B"), 64
    one = plan("grpo_qwen3_8b.toml", gpus=1).phases["training"]
    layer = 2 * 4096 * (32 + 8) * 128 + 3 * 4096 * 12288
    adapters = 36 * rank * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288))
    assert one["weights"] == 2 * model.num_parameters()
    assert one["LoRA"] == one["gradients"] == 4 * adapters and one["optimizer"] == 8 * adapters
    four = plan("grpo_qwen3_8b.toml").phases["sampling"]
    assert four["weights"] == pytest.approx(2 * (1.25 * model.num_parameters() + adapters))
    assert four["KV cache"] == pytest.approx(2 * 2 * 36 * 8 * 128 * (512 + 8 * (4096 + 64)) * (1 + 1.5 / 36), rel=1e-3)
    assert four["CUDA context"] == CONTEXT_BYTES and 36 * layer < model.num_parameters()


def test_more_of_anything_needs_more():
    base = workload(load_recipe(CONFIGS / "grpo_qwen3_4b.toml"), 1, 512, 4096)
    peak = make_plan(base, DEVICES["a6000"])
    for change in ({"response_tokens": 8192}, {"samples": 16}, {"checkpointing": "none"}, {"micro_batch": 32768}, {"itemsize": 4}):
        more = make_plan(dataclasses.replace(base, **change), DEVICES["a6000"])
        assert max(sum(more.phases[name].values()) / sum(peak.phases[name].values()) for name in peak.phases) > 1.02, change
    assert sum(make_plan(base, DEVICES["h200"]).seconds.values()) < sum(peak.seconds.values())


def test_advice_leads_to_a_plan_that_fits():
    whole = plan("grpo_qwen3_8b.toml", response=30000, overrides=("model.activation_checkpointing=none",))
    assert not whole.fits
    steps = list(remedies(whole))
    assert [text.partition("=")[0] for text, _ in steps] == [
        "model.activation_checkpointing",
        "distributed.cpu_offload",
        "sampling.max_tokens",
    ]
    peaks = [whole.peak, *(changed.peak for _, changed in steps)]
    assert peaks == sorted(peaks, reverse=True) and [changed.fits for _, changed in steps] == [False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_planned(path):
    done = CliRunner().invoke(main, ["plan", "--config", str(path), "--gpus", "1", "--gpu", "h200"])
    assert done.exit_code == 0 and "\nfits: " in done.output and "seconds a step" in done.output, done.output


def test_what_cannot_be_planned_is_named(tmp_path):
    recipe = CONFIGS / "grpo_qwen3_8b.toml"
    for overrides, words in [
        (("model.path=models/Other-7B",), "no such model"),
        (("model.path=models/Qwen3-30B-A3B",), "mixture of experts"),
        (("opsd.beta=0.5",), r"both \[opsd\] and \[grpo\]"),
        (("sampling.max_tokens=50000",), "context of 40960"),
        (("optim.rate=1",), "optim.rate"),
    ]:
        with pytest.raises(InputError, match=words):
            workload(load_recipe(recipe, overrides), 1, 512, None)
    done = CliRunner().invoke(main, ["plan", "--config", str(recipe), "--gpu", "tpu"])
    assert done.exit_code == 2 and "use one of a6000" in done.stderr
