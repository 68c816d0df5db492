"""The tokenizer that a GGUF file carries in its metadata: byte-level BPE vocabulary, merges, pre-tokenizer by name, chat template."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf

from papergym.errors import InputError
from papergym.files import write_json
from papergym.model.gguf import open_gguf, read_metadata
from papergym.model.vocabulary import AddedToken, Vocabulary, build_encoder

CONTROL, USER_DEFINED = int(gguf.TokenType.CONTROL), int(gguf.TokenType.USER_DEFINED)

# Contractions, words, digits one by one, punctuation, line breaks, blanks.
_QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")  # digits by threes
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
_GPT2 = {**_BYTES, "use_regex": True}


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


# How a text is cut before merging, by the name in tokenizer.ggml.pre.
PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_GPT2],
    "smollm": [{"type": "Digits", "individual_digits": True}, _GPT2],
    "qwen2": [_split(_QWEN2), _BYTES],
    "llama-bpe": [_split(_LLAMA3), _BYTES],
}
NORMALIZERS = {"qwen2": {"type": "NFC"}}


def read_gguf(file: Path) -> Vocabulary:
    """The vocabulary in a GGUF file's metadata. Raises InputError naming the field and the value that is not supported."""
    pipeline, added, template, variables = _read(file)
    encoder, names = build_encoder(pipeline, added)
    return Vocabulary(encoder, names, template, variables)


def write_tokenizer(file: Path, directory: Path) -> None:
    """Writes the vocabulary as tokenizer.json and tokenizer_config.json. Raises InputError as read_gguf does."""
    pipeline, added, template, variables = _read(file)
    defaults = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    entries = [defaults | {"id": token.id, "content": token.content, "special": token.special} for token in added]
    write_json(
        directory / "tokenizer.json", pipeline | {"added_tokens": entries, "truncation": None, "padding": None, "post_processor": None}
    )
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **variables}
    write_json(directory / "tokenizer_config.json", settings | ({"chat_template": template} if template is not None else {}))


def _read(file: Path) -> tuple[dict[str, Any], list[AddedToken], str | None, dict[str, str]]:
    """What tokenizer.json says but for its added tokens, these, the chat template, and the names of bos_token and so on."""
    metadata = read_metadata(open_gguf(file))
    kind, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        raise InputError(f"{file}, tokenizer.ggml.model: {kind!r} is not supported; only 'gpt2' (byte-level BPE) is")
    if pre not in PRE_TOKENIZERS:
        raise InputError(f"{file}, tokenizer.ggml.pre: unknown pre-tokenizer {pre!r}; known are {', '.join(PRE_TOKENIZERS)}")
    tokens, types, merges = (metadata.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", "merges"))
    if not tokens or merges is None or types is None or len(types) != len(tokens):
        raise InputError(f"{file}: tokenizer.ggml.tokens, token_type and merges are needed, types and tokens of the same length")
    added = [AddedToken(i, tokens[i], special=flag == CONTROL) for i, flag in enumerate(types) if flag in (CONTROL, USER_DEFINED)]
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in named.items()}
    variables = {name: tokens[index] for name, index in ids.items() if index is not None}
    return _pipeline(pre, tokens, merges), added, metadata.get("tokenizer.chat_template"), variables


def _pipeline(pre: str, tokens: Sequence[str], merges: Sequence[str]) -> dict[str, Any]:
    """The content of the tokenizer.json that says the same."""
    return {
        "version": "1.0",
        "normalizer": NORMALIZERS.get(pre),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[pre]},
        "decoder": _BYTES,
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
            "ignore_merges": pre == "llama-bpe",
        },
    }
