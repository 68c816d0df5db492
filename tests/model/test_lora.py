import json
import math

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from papergym.errors import InputError
from papergym.model.lora import (
    PROJECTIONS,
    LoraConfig,
    LoraLinear,
    adapter_state_dict,
    adapters_disabled,
    apply_lora,
    load_adapter,
    lora_config,
    lora_parameters,
    merged_state_dict,
    save_adapter,
)
from papergym.model.weights import load_model

CONFIGURATIONS = [
    ("qwen3", LoraConfig(rank=4, alpha=4)),
    ("qwen3", LoraConfig(rank=3, alpha=16, target_modules=("q_proj", "v_proj"))),
    ("qwen2", LoraConfig(rank=8, alpha=2, target_modules=("down_proj", "o_proj", "k_proj"))),
    ("llama", LoraConfig(rank=2, alpha=5, target_modules=("gate_proj", "up_proj"))),
]
IDS = torch.arange(60).reshape(2, 30)


def relative(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()


def logits_of(model):
    return model(IDS) @ model.head_weight.T


def randomise(parameters):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture
def base(tiny_checkpoint):
    return lambda architecture="qwen3", **overrides: load_model(tiny_checkpoint(architecture, **overrides), dtype=torch.float32)


@pytest.fixture
def adapted(base):
    def make(config, architecture="qwen3", **overrides):
        model = apply_lora(base(architecture, **overrides), config)
        randomise(lora_parameters(model))
        return model

    return make


def test_a_layer_by_hand():
    linear = torch.nn.Linear(2, 2)
    linear.weight.data, linear.bias.data = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([10.0, 20.0])
    layer = LoraLinear(linear, LoraConfig(rank=1, alpha=3.0))
    layer.lora_A.weight.data, layer.lora_B.weight.data = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0], [5.0]])
    # W x + b = (15, 31); A x = -1; (alpha / rank) B A x = (-6, -15)
    assert layer(torch.tensor([1.0, 2.0])).tolist() == [9.0, 16.0]
    assert layer.merged_weight().tolist() == [[7.0, -4.0], [18.0, -11.0]]


@pytest.mark.parametrize(("architecture", "config"), CONFIGURATIONS)
@torch.no_grad()
def test_peft_loads_our_adapter(tiny_checkpoint, adapted, tmp_path, architecture, config):
    model = adapted(config, architecture)
    save_adapter(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tiny_checkpoint(architecture), dtype=torch.float32)
    plain = theirs(IDS).logits
    expected = peft.PeftModel.from_pretrained(theirs, tmp_path)(IDS).logits
    assert relative(logits_of(model), expected) < 2e-5
    assert relative(plain, expected) > 0.05


@pytest.mark.parametrize(("architecture", "config"), CONFIGURATIONS)
def test_we_load_the_adapter_of_peft_and_train_it_alike(tiny_checkpoint, base, tmp_path, architecture, config):
    options = peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=list(config.target_modules), task_type="CAUSAL_LM")
    theirs = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_checkpoint(architecture), dtype=torch.float32), options)
    trained = {name: weight for name, weight in theirs.named_parameters() if weight.requires_grad}
    randomise(trained.values())
    theirs.save_pretrained(tmp_path)
    model = load_adapter(base(architecture), tmp_path)
    assert lora_config(model) == config
    expected, logits = theirs(IDS).logits, logits_of(model)
    assert relative(logits, expected) < 2e-5
    for output in (logits, expected):
        output.square().mean().backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(gradients) == len(trained) == 4 * len(config.target_modules)
    for name, weight in trained.items():
        assert relative(gradients[name.removeprefix("base_model.model.").replace(".default", "")], weight.grad) < 1e-4, name


def test_an_adapter_survives_saving_and_loading(adapted, base, tmp_path):
    model = adapted(LoraConfig(rank=3, alpha=7.5, dropout=0.1))
    save_adapter(model, tmp_path)
    again = load_adapter(base(), tmp_path)
    assert lora_config(again) == lora_config(model)
    assert torch.equal(logits_of(again), logits_of(model))
    randomise(lora_parameters(model)[:1])
    load_adapter(model, tmp_path)  # into adapters that are there already
    assert all(torch.equal(a, b) for a, b in zip(lora_parameters(model), lora_parameters(again)))


def test_merged_weights_compute_what_the_adapter_computes(adapted, base):
    model, plain = adapted(LoraConfig(rank=4, alpha=12), "llama", mlp_bias=True), base("llama", mlp_bias=True)
    original = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    merged = merged_state_dict(model)
    assert merged.keys() == original.keys()
    plain.load_state_dict(merged)
    assert relative(logits_of(plain), logits_of(model)) < 2e-5
    state = model.state_dict()  # merging leaves the adapted model alone
    assert all(torch.equal(state[name], original[name]) for name in original)


def test_a_fresh_adapter_changes_nothing_and_trains_alone(base):
    model, plain = base(), base()
    names = set(model.state_dict())
    apply_lora(model, LoraConfig(rank=4, alpha=8))
    assert torch.equal(logits_of(model), logits_of(plain))
    assert {name for name in model.state_dict() if ".lora_" not in name} == names
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert len(trained) == 2 * 7 * 2 == len(lora_parameters(model)) and all(".lora_" in name for name in trained)
    logits_of(model).square().mean().backward()
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            assert weight.grad.norm() > 0, name
        elif ".lora_A" in name:
            assert weight.grad.norm() == 0, name  # B is zero
        else:
            assert weight.grad is None, name


def test_initial_adapters_follow_the_seed_and_the_kaiming_bound(base):
    def initial():
        torch.manual_seed(3)
        return adapter_state_dict(apply_lora(base(), LoraConfig(rank=64)))

    first, second = initial(), initial()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name, weight in first.items():
        bound = 1 / math.sqrt(weight.shape[1])
        if ".lora_A" in name:
            assert weight.abs().max() <= bound and weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_disabled_adapters_give_the_base_and_nest(adapted, base):
    model, plain = adapted(LoraConfig(rank=4)), logits_of(base())
    with_adapter = logits_of(model)
    with adapters_disabled(model):
        assert torch.equal(logits_of(model), plain)
        with adapters_disabled(model):
            pass
        assert torch.equal(logits_of(model), plain)
    assert torch.equal(logits_of(model), with_adapter)
    with pytest.raises(RuntimeError, match="inside"), adapters_disabled(model):
        raise RuntimeError("inside")
    assert torch.equal(logits_of(model), with_adapter)
    with adapters_disabled(base()):  # nothing to disable
        pass


def test_dropout_falls_on_the_adapter_in_training_only(adapted):
    model = adapted(LoraConfig(rank=4, dropout=0.5))
    quiet = logits_of(model)
    assert torch.equal(logits_of(model), quiet)
    model.train()
    assert relative(logits_of(model), quiet) > 1e-2
    with adapters_disabled(model):
        assert torch.equal(logits_of(model), logits_of(model))


def test_adapters_stay_fp32_on_a_bf16_base(tiny_checkpoint, adapted):
    model = apply_lora(load_model(tiny_checkpoint("qwen3"), dtype=torch.bfloat16), LoraConfig(rank=4))
    randomise(lora_parameters(model))
    logits = logits_of(model)
    assert logits.dtype == torch.bfloat16
    assert relative(logits.float(), logits_of(adapted(LoraConfig(rank=4)))) < 0.05
    logits.float().square().mean().backward()
    assert all(weight.dtype == weight.grad.dtype == torch.float32 and weight.grad.norm() > 0 for weight in lora_parameters(model))
    assert all(tensor.dtype == torch.bfloat16 for tensor in merged_state_dict(model).values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": None}, "alpha is None"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"target_modules": ("lm_head",)}, "'lm_head' is not supported"),
        ({"target_modules": ()}, "target_modules is"),
        ({"target_modules": "all-linear"}, "'all-linear'"),
    ],
)
def test_impossible_configurations(fields, message):
    with pytest.raises(InputError, match=message):
        LoraConfig(**fields)


def test_targets_have_one_order():
    assert LoraConfig(target_modules=("v_proj", "q_proj", "v_proj")) == LoraConfig(target_modules=("q_proj", "v_proj"))
    assert LoraConfig().target_modules == PROJECTIONS


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"use_rslora": True}, "use_rslora"),
        ({"bias": "lora_only"}, "bias 'lora_only'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"target_modules": ["lm_head"]}, "lm_head"),
        ({"target_modules": ".*proj"}, r"\.\*proj"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"an_option_of_the_future": {"on": True}}, "an_option_of_the_future"),
    ],
)
def test_names_the_peft_option_that_is_not_supported(adapted, base, tmp_path, options, named):
    save_adapter(adapted(LoraConfig(rank=2)), tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | options))
    with pytest.raises(InputError, match=rf"adapter_config.json: .*{named}"):
        load_adapter(base(), tmp_path)


def test_an_adapter_of_another_model_is_refused_and_nothing_changes(adapted, base, tmp_path):
    save_adapter(adapted(LoraConfig(rank=2)), tmp_path)
    wider, longer, shorter = base(hidden_size=60), base(num_hidden_layers=3), base(num_hidden_layers=1)
    for model, message in (
        (wider, r"'base_model.model.model.layers.0.\S+.lora_B.weight' has the shape \(48, 2\), .* needs \(60, 2\)"),
        (longer, r"tensor 'base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight' and 13 more .* is missing"),
        (shorter, r"tensor 'base_model.model.model.layers.1.\S+' has no place"),
    ):
        before = logits_of(model)
        with pytest.raises(InputError, match=message):
            load_adapter(model, tmp_path)
        assert lora_config(model) is None and torch.equal(logits_of(model), before)
        assert all(weight.requires_grad for weight in model.parameters())


def test_adapters_that_do_not_fit_those_present(adapted, base, tmp_path):
    save_adapter(adapted(LoraConfig(rank=2)), tmp_path)
    with pytest.raises(InputError, match=r"rank=2, .* already has LoraConfig\(rank=3"):
        load_adapter(adapted(LoraConfig(rank=3)), tmp_path)
    with pytest.raises(InputError, match="already has LoRA"):
        apply_lora(adapted(LoraConfig(rank=2)), LoraConfig(rank=2))
    with pytest.raises(InputError, match="no LoRA adapters"):
        save_adapter(base(), tmp_path)


def test_damaged_adapter_directories(adapted, base, tmp_path):
    with pytest.raises(InputError, match=r"no adapter_config.json"):
        load_adapter(base(), tmp_path)
    save_adapter(adapted(LoraConfig(rank=2)), tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    del tensors["base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"]
    save_file(tensors, file)
    with pytest.raises(InputError, match=r"safetensors: tensor 'base_model.model.model.layers.1.mlp.up_proj.lora_B.weight' .* missing"):
        load_adapter(base(), tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match=r"adapter_model.safetensors: not a complete"):
        load_adapter(base(), tmp_path)
    file.unlink()
    with pytest.raises(InputError, match=r"no adapter_model.safetensors"):
        load_adapter(base(), tmp_path)
