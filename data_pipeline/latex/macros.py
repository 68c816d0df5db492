"""The paper's own commands: reading their definitions and putting arguments into their bodies."""

import re
from dataclasses import dataclass

from papergym.data_pipeline.latex.scanner import BLANKS, WORD_WITH_AT, Dialect, Source

COMMAND = re.compile(r"\s*\{?\s*\\([A-Za-z@]+|.)\s*\}?", re.DOTALL)
STARRED = re.compile(r"\s*\*?")
PARAMETERS = re.compile(r"[^{}\\\n]{0,80}")
XPARSE = re.compile(r"[+!>]*\s*(?:\{[^{}]*\}\s*)?([mosdrvb]|[OD])")
LET = re.compile(r"\s*\{?\s*\\([A-Za-z@]+)\s*\}?\s*=?\s*\{?\s*\\([A-Za-z@]+)\s*\}?")
PLACEHOLDER = re.compile(r"#(#|[1-9])")

LATEX_DEFINERS = frozenset(("newcommand", "renewcommand", "providecommand", "DeclareRobustCommand", "newrobustcmd", "DeclareMathOperator"))
TEX_DEFINERS = frozenset(("def", "gdef", "edef", "xdef"))
XPARSE_DEFINERS = frozenset(f"{verb}DocumentCommand" for verb in ("New", "Renew", "Provide", "Declare", "NewExpandable"))
ENVIRONMENT_DEFINERS = frozenset(("newenvironment", "renewenvironment", "provideenvironment"))
XPARSE_ENVIRONMENT_DEFINERS = frozenset(f"{verb}DocumentEnvironment" for verb in ("New", "Renew", "Provide", "Declare"))
DEFINERS = LATEX_DEFINERS | TEX_DEFINERS | XPARSE_DEFINERS | ENVIRONMENT_DEFINERS | XPARSE_ENVIRONMENT_DEFINERS | {"let"}


@dataclass(frozen=True)
class Macro:
    """A user command: its parameters in order ("mandatory", "optional" or "star", each with a default) and its body with #1, #2, …"""

    parameters: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True)
class Definition:
    """What a defining command says. `macro` is None when it can't be expanded; `ending` is the closing code of an environment."""

    name: str
    macro: Macro | None
    end: int
    ending: str | None = None
    target: str | None = None  # of \\let


def read_definition(source: Source, command: str, position: int) -> Definition | None:
    """The definition made by `command`, whose name ends at `position`; None when it is malformed."""
    text = source.text
    if command == "let":
        match = LET.match(text, position)
        return Definition(match[1], None, match.end(), target=match[2]) if match else None
    position = STARRED.match(text, position).end()  # type: ignore[union-attr]
    is_environment = command in ENVIRONMENT_DEFINERS or command in XPARSE_ENVIRONMENT_DEFINERS
    if is_environment:
        named = source.argument(position)
        if not named:
            return None
        name, position = named[0].strip(), named[1]
    else:
        match = COMMAND.match(text, position)
        if not match:
            return None
        name, position = match[1], match.end()
    parameters: tuple[tuple[str, str], ...] | None
    if command in TEX_DEFINERS:
        match = PARAMETERS.match(text, position)
        pattern = match[0].strip() if match else ""
        position = match.end() if match else position
        count = pattern.count("#")
        plain = "".join(f"#{number}" for number in range(1, count + 1))
        parameters = (("mandatory", ""),) * count if pattern == plain else None
    elif command in XPARSE_DEFINERS or command in XPARSE_ENVIRONMENT_DEFINERS:
        specification = source.argument(position)
        if not specification:
            return None
        parameters, position = _xparse_parameters(specification[0]), specification[1]
    elif command == "DeclareMathOperator":
        parameters = ()
    else:
        parameters, position = _latex_parameters(source, position)
    body = source.argument(position)
    if not body:
        return None
    content = rf"\operatorname{{{body[0]}}}" if command == "DeclareMathOperator" else body[0]
    macro = None if parameters is None else Macro(parameters, content)
    if not is_environment:
        return Definition(name, macro, body[1])
    ending = source.argument(body[1])
    return Definition(name, macro, ending[1], ending[0]) if ending else None


def _latex_parameters(source: Source, position: int) -> tuple[tuple[tuple[str, str], ...], int]:
    """`[count][default]` of \\newcommand."""
    found = source.optional(position)
    if not found:
        return (), position
    count_text = source.text[found[0] : found[1]].strip()
    count = int(count_text) if re.fullmatch(r"[0-9]", count_text) else 0
    position = found[1] + 1
    default = source.optional(position)
    if not default or not count:
        return (("mandatory", ""),) * count, position
    first = ("optional", source.text[default[0] : default[1]])
    return (first, *((("mandatory", ""),) * (count - 1))), default[1] + 1


def _xparse_parameters(specification: str) -> tuple[tuple[str, str], ...] | None:
    """`s o O{default} m …`; None for kinds that aren't read."""
    source = Source(specification, Dialect())
    parameters, position = [], 0
    while (position := BLANKS.match(specification, position).end()) < len(specification):  # type: ignore[union-attr]
        match = XPARSE.match(specification, position)
        if not match or match[1] not in "mosO":
            return None
        position = match.end()
        default = ""
        if match[1] == "O":
            argument = source.argument(position)
            if not argument:
                return None
            default, position = argument
        kind = {"m": "mandatory", "s": "star"}.get(match[1], "optional")
        parameters.append((kind, default))
    return tuple(parameters)


def read_arguments(macro: Macro, source: Source, position: int) -> tuple[list[str], int] | None:
    """The arguments that follow a use of the macro, and the position behind them; None when one is missing.

    An absent star is "" and a present one "*"; an absent optional argument is its default.
    """
    arguments = []
    for kind, default in macro.parameters:
        if kind == "star":
            at = source.blanks(position)
            starred = source.text.startswith("*", at)
            arguments.append("*" if starred else "")
            position = at + 1 if starred else position
        elif kind == "optional":
            found = source.optional(position)
            arguments.append(source.text[found[0] : found[1]] if found else default)
            position = found[1] + 1 if found else position
        else:
            argument = source.argument(position)
            if not argument:
                return None
            arguments.append(argument[0])
            position = argument[1]
    return arguments, position


def substitute(body: str, arguments: list[str]) -> str:
    """The body with its parameters replaced."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "#":
            return "#"
        index = int(match[1]) - 1
        return arguments[index] if index < len(arguments) else ""

    return PLACEHOLDER.sub(value, body)


def commands_in(body: str) -> set[str]:
    """Names of the commands that a body uses."""
    return {match[1] for match in WORD_WITH_AT.finditer(body)}
