"""A model and a recipe so small that the whole demo runs in seconds: for tests and for benches that run it many times."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.weights import save_model

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
RECIPE = """\
[model]
path = "{model}"
dtype = "float32"
[evaluation]
samples = 2
max_tokens = 8
[opsd.run]
steps = {steps}
checkpoint_every = 1
[opsd.data]
prompts_per_step = 2
[opsd.lora]
rank = 4
alpha = 8
[opsd.sampling]
max_tokens = 8
[grpo.run]
steps = {steps}
checkpoint_every = 1
[grpo.data]
prompts_per_step = 1
[grpo.sampling]
max_tokens = 8
[grpo.grpo]
group_size = 2
"""


def write_tiny_model(directory: Path, context: int = 2048, head_dim: int = 8, write_tokenizer: Callable[[Path], int] | None = None) -> Path:
    """Writes a random two-layer Qwen3 with a byte tokenizer as a Hugging Face directory, and returns the directory.

    context: max_position_embeddings. A byte is a token, so the prompts of real papers need 16384. head_dim: vLLM's attention on a CPU needs
    32. write_tokenizer: another one, whose first token ends a text and whose third ends a turn; returns the size of its vocabulary.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = ModelConfig(
        architecture="qwen3",
        vocab_size=(write_tokenizer or write_byte_tokenizer)(directory),
        hidden_size=4 * head_dim,
        intermediate_size=8 * head_dim,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        rms_norm_eps=1e-6,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_ids=(2, 0) if write_tokenizer else (258, 256),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CausalLM(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2)
    save_model(model, directory)
    return directory


def write_byte_tokenizer(directory: Path) -> int:
    """Writes a tokenizer of the 256 bytes and three control tokens, with a ChatML template; returns its vocabulary size."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size()
