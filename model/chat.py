"""A model's own chat template, rendered in a sandbox: messages in, text out."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from papergym.errors import InputError


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %} … {% endgeneration %}` marks what the assistant wrote, for training masks; rendering it is rendering its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """What Hugging Face's chat templates are written for. Templates come with checkpoints, so they run without access to anything."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    # The built-in filter escapes <, > and & for HTML, which no model was trained on.
    environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


class ChatTemplate:
    """A compiled template. `thinking_switch`: whether it reads `enable_thinking`.

    source: the template. variables: names it may use beside the messages, such as bos_token. where: the file, for messages.
    Raises InputError when the template is not valid Jinja.
    """

    def __init__(self, source: str, variables: Mapping[str, str], where: str) -> None:
        environment = _environment()
        try:
            self.thinking_switch = "enable_thinking" in jinja2.meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise InputError(f"{where}, chat_template: not a valid Jinja template ({error})") from error
        self._variables = dict(variables)
        self._where = where

    def render(self, messages: Sequence[Mapping[str, Any]], *, thinking: bool, add_generation_prompt: bool) -> str:
        """The conversation as one string with the model's control strings in it. Raises InputError when the template refuses it."""
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                enable_thinking=thinking,
                **self._variables,
            )
        except jinja2.TemplateError as error:
            raise InputError(f"{self._where}, chat_template: refuses these messages ({error})") from error


def check_messages(messages: Any) -> list[dict[str, Any]]:
    """The messages as dictionaries without null fields. Raises InputError naming the message and the field."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InputError("messages: a non-empty list of {role, content} is needed")
    checked = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InputError(f"messages[{index}]: an object with role and content is needed, not {message!r:.60}")
        message = {key: value for key, value in message.items() if value is not None}
        if not isinstance(message.get("role"), str):
            raise InputError(f"messages[{index}].role: a string is needed, not {message.get('role')!r:.60}")
        if not isinstance(message.get("content", "" if "tool_calls" in message else None), str | list):
            raise InputError(f"messages[{index}].content: a string is needed, not {message.get('content')!r:.60}")
        checked.append(message)
    return checked
