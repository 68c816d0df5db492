"""Reads vocabularies (tokenizer.json, tokenizer.model, GGUF metadata) into encoders whose control tokens only answer to secret names.

A control token, `<|im_end|>` for example, is an added token marked special. Loaded as it is, any text that spells it becomes its id. Here
each gets a random name at load time; the caller puts the names where it means control tokens (ControlNames.exchange) and text can't.
"""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import sentencepiece
import tokenizers

from papergym.errors import InputError
from papergym.files import read_json


class Encoder(Protocol):
    """Text to ids and back, control tokens under their secret names."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


class ControlNames:
    """Secret names of control tokens: unguessable, so that no text can hold one by accident or by design."""

    def __init__(self, controls: Iterable[str]) -> None:
        nonce = secrets.token_hex(8)
        self.of = {control: f"\ue000{nonce}.{index}\ue001" for index, control in enumerate(controls)}
        self._partner = self.of | {name: control for control, name in self.of.items()}
        self._pattern = re.compile("|".join(re.escape(text) for text in sorted(self._partner, key=len, reverse=True)) or "(?!)")

    def exchange(self, text: str) -> str:
        """Control strings become their names and names become control strings; done twice it changes nothing."""
        return self._pattern.sub(lambda match: self._partner[match[0]], text)

    def reveal(self, text: str) -> str:
        """Names become control strings; control strings stay."""
        return self._pattern.sub(lambda match: match[0] if match[0] in self.of else self._partner[match[0]], text)


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer is made of. chat_template: None when there is none; variables: what it may name, such as bos_token."""

    encoder: Encoder
    names: ControlNames
    chat_template: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AddedToken:
    """A string that is one token wherever it stands in the text. special: it is a control token."""

    id: int
    content: str
    special: bool
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


# --- Hugging Face directories ---------------------------------------------------------------------------------------------------------


def read_directory(directory: Path) -> Vocabulary:
    """tokenizer.json, else tokenizer.model, with tokenizer_config.json and chat_template.jinja beside it. Raises InputError."""
    config_file = directory / "tokenizer_config.json"
    config = read_json(config_file) if config_file.exists() else {}
    if not isinstance(config, dict):
        raise InputError(f"{config_file}: a JSON object is needed")
    template, variables = _chat_template(directory, config), _named_tokens(config)
    if (file := directory / "tokenizer.json").exists():
        encoder, names = _from_tokenizer_json(file, _configured_tokens(config, directory), set(variables.values()) | _extra_tokens(config))
    elif (file := directory / "tokenizer.model").exists():
        encoder, names = _from_sentencepiece(file, _configured_tokens(config, directory))
    else:
        raise InputError(f"{directory}: holds neither tokenizer.json nor tokenizer.model")
    return Vocabulary(encoder, names, template, variables)


def _chat_template(directory: Path, config: Mapping[str, Any]) -> str | None:
    file = directory / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several by name, for tools or retrieval
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    if template is not None and not isinstance(template, str):
        raise InputError(f"{directory / 'tokenizer_config.json'}, chat_template: a string is needed, not {template!r:.60}")
    return template


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token, … as strings; older files hold objects with the string in `content`."""
    contents = {key: _content(value) for key, value in config.items() if key.endswith("_token")}
    return {key: content for key, content in contents.items() if content is not None}


def _extra_tokens(config: Mapping[str, Any]) -> set[str]:
    extra: set[str] = set()
    for key in ("additional_special_tokens", "extra_special_tokens"):
        values = config.get(key) or ()
        extra |= {content for value in (values.values() if isinstance(values, dict) else values) if (content := _content(value))}
    return extra


def _content(value: Any) -> str | None:
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _configured_tokens(config: Mapping[str, Any], directory: Path) -> list[AddedToken]:
    """Added tokens of tokenizer_config.json, which may know more of them than the vocabulary file."""
    try:
        return [_added_token(int(index), entry) for index, entry in config.get("added_tokens_decoder", {}).items()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{directory / 'tokenizer_config.json'}, added_tokens_decoder: not of the form id: {{content, …}}") from error


def _added_token(index: int, entry: Mapping[str, Any]) -> AddedToken:
    flags = {name: bool(entry.get(name, False)) for name in ("special", "single_word", "lstrip", "rstrip", "normalized")}
    return AddedToken(index, str(entry["content"]), **flags)


# --- tokenizers -----------------------------------------------------------------------------------------------------------------------


class _TokenizersEncoder:
    """A `tokenizers` pipeline from the content of a tokenizer.json."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(orjson.dumps(spec).decode())
        except Exception as error:  # the library raises nothing more specific
            raise InputError(f"tokenizers {tokenizers.__version__} can't read this vocabulary ({error})") from error

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def build_encoder(spec: dict[str, Any], added: Sequence[AddedToken]) -> tuple[Encoder, ControlNames]:
    """The encoder of a tokenizer.json's content, with `added` in place of its added tokens and their control tokens renamed."""
    names = ControlNames(token.content for token in added if token.special)
    entries = []
    for token in sorted(added, key=lambda token: token.id):
        entry = vars(token).copy()
        if token.special:
            # Names are matched in the text as given, not as normalised: the exchange of strings and names happens before that, too.
            entry |= {"content": names.of[token.content], "normalized": False}
        entries.append(entry)
    spec = {**spec, "added_tokens": entries, "model": _rename(spec["model"], names.of)}
    return _TokenizersEncoder(spec | {"truncation": None, "padding": None, "post_processor": None}), names


def _rename(model: dict[str, Any], name: Mapping[str, str]) -> dict[str, Any]:
    """The model with control tokens renamed in its vocabulary too, and out of reach of its merges."""
    vocabulary = model.get("vocab", {})
    if isinstance(vocabulary, list):  # Unigram: [piece, score]
        renamed: Any = [[name.get(piece, piece), score] for piece, score in vocabulary]
    elif any(control in vocabulary for control in name):
        renamed = {name.get(piece, piece): index for piece, index in vocabulary.items()}
    else:
        return model
    model = {**model, "vocab": renamed}
    if model.get("unk_token") in name:
        model["unk_token"] = name[model["unk_token"]]
    if "merges" in model:
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        model["merges"] = [pair for pair in pairs if "".join(pair) not in name]
    return model


def _from_tokenizer_json(file: Path, configured: Sequence[AddedToken], special: set[str]) -> tuple[Encoder, ControlNames]:
    spec = read_json(file)
    try:
        tokens = [*configured, *(_added_token(entry["id"], entry) for entry in spec.get("added_tokens", ()))]
        added = {token.content: replace(token, special=token.special or token.content in special) for token in tokens}
        return build_encoder(spec, list(added.values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: not the content of a tokenizer.json ({error!r})") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


# --- sentencepiece --------------------------------------------------------------------------------------------------------------------


# Protocol buffers merge what is appended: ModelProto.normalizer_spec (3) with add_dummy_prefix (3) or remove_extra_whitespaces (4) false.
_NO_DUMMY_PREFIX, _ALL_WHITESPACE = b"\x1a\x02\x18\x00", b"\x1a\x02\x20\x00"


class _SentencePieceEncoder:
    """A sentencepiece model and added tokens. The dummy prefix goes in front of the text, never after an added or control token."""

    def __init__(self, model: bytes, string_ids: Mapping[str, int]) -> None:
        self._first = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._later = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_DUMMY_PREFIX)
        self._spaced = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_DUMMY_PREFIX + _ALL_WHITESPACE)
        self._string_ids = dict(string_ids)
        self._strings = {index: string for string, index in string_ids.items()}
        self._pattern = re.compile("(" + ("|".join(map(re.escape, sorted(string_ids, key=len, reverse=True))) or "(?!)") + ")")

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for position, piece in enumerate(self._pattern.split(text)):
            if position % 2:
                ids.append(self._string_ids[piece])
            elif piece:
                ids += (self._later if ids else self._first).encode(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        pieces: list[str] = []
        run: list[int] = []
        for index in [*ids, None]:
            if index is not None and index not in self._strings:
                run += [index] if 0 <= index < self._first.get_piece_size() else []
                continue
            if run:
                pieces.append((self._spaced if pieces else self._first).decode(run))
                run = []
            if index is not None:
                pieces.append(self._strings[index])
        return "".join(pieces)


def _from_sentencepiece(file: Path, configured: Sequence[AddedToken]) -> tuple[Encoder, ControlNames]:
    content = file.read_bytes()
    try:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError as error:
        raise InputError(f"{file}: not a sentencepiece model") from error
    ids = range(model.get_piece_size())
    controls = {model.id_to_piece(index): index for index in ids if model.is_control(index) or model.is_unknown(index)}
    controls |= {token.content: token.id for token in configured if token.special}
    others = {token.content: token.id for token in configured if not token.special}
    names = ControlNames(controls)
    return _SentencePieceEncoder(content, others | {names.of[control]: index for control, index in controls.items()}), names
