"""A checkpoint in another form: a Hugging Face directory that transformers, vLLM and we load, with or without an adapter added."""

import shutil
from pathlib import Path

import torch

from papergym.errors import InputError
from papergym.files import atomic_directory
from papergym.model.lora import load_adapter
from papergym.model.weights import load_model, resolve_model_path, save_model

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def convert_model(path: str | Path, out: str | Path, *, adapter: str | Path | None = None, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Writes the model of `path`, with an adapter (PEFT layout) added where one is given, and its tokenizer; returns the directory.

    path: as load_model takes it. Of a .gguf file the weights are dequantised and its vocabulary becomes a tokenizer.json. Raises InputError
    when `out` holds anything already.
    """
    out, path = Path(out), resolve_model_path(path)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: already holds files; choose another directory for the model")
    model = load_model(path, dtype=dtype)
    if adapter is not None:
        model = load_adapter(model, adapter)
    with atomic_directory(out) as temporary:
        save_model(model, temporary)
        if path.suffix == ".gguf":
            from papergym.model.gguf_vocabulary import write_tokenizer

            write_tokenizer(path, temporary)
        for name in _TOKENIZER_FILES:
            if (path / name).is_file():
                shutil.copyfile(path / name, temporary / name)
    return out
