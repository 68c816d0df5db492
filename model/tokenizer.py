"""Text and conversations to token ids and back, as the model's own tokenizer and chat template do it."""

from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from papergym.errors import InputError
from papergym.model.chat import ChatTemplate, check_messages
from papergym.model.gguf_vocabulary import read_gguf
from papergym.model.vocabulary import read_directory
from papergym.model.weights import resolve_model_path

_ID_LIMIT = 2**31


class Tokenizer:
    """The tokenizer of a model.

    path: a Hugging Face directory (tokenizer.json or tokenizer.model), a .gguf file, or the name "smollm2-135m".
    thinking_switch: whether the chat template can switch thinking on and off.

    Control strings (added tokens marked special, such as <|im_end|>) in text that people or models wrote are an injection unless the
    caller says otherwise; so they are kept apart from the start (papergym.model.vocabulary) and nothing is re-tokenised to find out.
    Raises InputError naming the file and what is wrong with it.
    """

    thinking_switch: bool

    def __init__(self, path: str | Path) -> None:
        self.path = resolve_model_path(path)
        vocabulary = read_gguf(self.path) if self.path.suffix == ".gguf" else read_directory(self.path)
        self._encoder, self._names = vocabulary.encoder, vocabulary.names
        self._template = (
            None if vocabulary.chat_template is None else ChatTemplate(vocabulary.chat_template, vocabulary.variables, str(self.path))
        )
        self.thinking_switch = self._template is not None and self._template.thinking_switch

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of the text; nothing is added in front or behind.

        special: control strings become their ids; otherwise they are text like any other. Raises InputError for half a surrogate pair.
        """
        if not isinstance(text, str):
            raise InputError(f"text: a string is needed, not {text!r:.60}")
        return self._encode(self._names.exchange(text) if special else text, "text")

    def decode(self, ids: Sequence[int]) -> str:
        """The text, control strings included. Bytes that are not UTF-8 become U+FFFD; ids beyond the vocabulary have no text.

        Raises InputError for what can't be an id.
        """
        for token in ids:
            if not isinstance(token, Integral) or not 0 <= token < _ID_LIMIT:
                raise InputError(f"token id {token!r:.60}: a whole number from 0 is needed")
        return self._names.reveal(self._encoder.decode(ids))

    def chat(self, messages: Sequence[Mapping[str, Any]], thinking: bool = True, add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a conversation under the model's own template, control strings inside the messages being plain text.

        messages: {"role", "content"} each, and whatever else the template reads. thinking: the template's `enable_thinking`; a template
        without it ignores the value. add_generation_prompt: end where the assistant's answer begins.
        Raises InputError for messages that are not such a list, that the template refuses, or whose control strings it looks for.
        """
        if self._template is None:
            raise InputError(f"{self.path}: has no chat template; give prompts as token ids, or a model that has one")
        checked = check_messages(messages)
        switches = {"thinking": thinking, "add_generation_prompt": add_generation_prompt}
        named = _map_strings(checked, self._names.exchange)
        # Control strings of the messages are rendered under their names, those of the template as themselves; exchanging puts both right.
        text = self._names.exchange(self._template.render(named, **switches))
        if named != checked and self._names.reveal(text) != self._template.render(checked, **switches):
            raise InputError(f"messages: a control string inside a message changes how {self.path}'s chat template reads it; take it out")
        return self._encode(text, "messages")

    def _encode(self, text: str, what: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{what}: {text[error.start]!r} is half a surrogate pair, which is no character; remove it") from error
        return self._encoder.encode(text)


def _map_strings(value: Any, change: Any) -> Any:
    """The value with `change` applied to every string in it, dictionary keys apart."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
