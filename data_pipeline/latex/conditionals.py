"""Which branch of a conditional is typeset, where the source itself tells; where it doesn't, both branches are kept."""

import re
from dataclasses import dataclass, field

from papergym.data_pipeline.latex.macros import DEFINERS, Macro, read_definition
from papergym.data_pipeline.latex.names import names
from papergym.data_pipeline.latex.scanner import WORD_WITH_AT, Source

PRIMITIVES = names(
    "if ifcase ifcat ifcsname ifdefined ifdim ifeof iffalse iffontchar ifhbox ifhmode ifincsname ifinner ifmmode ifnum ifodd"
    " iftrue ifvbox ifvmode ifvoid ifx ifpdf ifxetex ifluatex ifXeTeX ifLuaTeX ifPDFTeX iftutex ifpdftex"
)
# Commands whose name begins with "if" but whose branches are arguments.
WITH_ARGUMENTS = names(
    "ifthenelse ifbool ifboolexpr ifboolexpe iftoggle ifdef ifcsdef ifundef ifcsundef ifdefmacro ifdefempty ifdefvoid"
    " ifdefstring ifdefequal ifdefstrequal ifstrequal ifstrempty ifblank ifnotblank ifnumcomp ifnumequal ifnumgreater"
    " ifnumless ifnumodd ifdimcomp ifinlist iflanguage iff ifoddpage ifentrytype iffieldundef ifciteseen ifstandalone"
    " ifmmodeelse"
)
KNOWN = {
    "iftrue": True, "iffalse": False, "ifpdf": True, "ifPDFTeX": True, "ifpdftex": True,
    "ifxetex": False, "ifXeTeX": False, "ifluatex": False, "ifLuaTeX": False, "iftutex": False,
}  # fmt: skip
ENGINE_COMMANDS = ("pdf", "XeTeX", "lua", "directlua", "chapter", "section", "subsection", "document", "HCode", "tex4ht")
NUMBERS = re.compile(r"\s*(-?\d{1,9}|\\[A-Za-z@]+)\s*([<>=])\s*(-?\d{1,9}|\\[A-Za-z@]+)\s?")
COMMANDS = re.compile(r"\s*\\([A-Za-z@]+)\s*\\([A-Za-z@]+)")
ONE_COMMAND = re.compile(r"\s*\\([A-Za-z@]+)")
CHARACTERS = re.compile(r" *([^\\{}#%\s])([^\\{}#%])")
NOT_A_USE = {"newif": 1, "let": 2, "string": 1, "noexpand": 1, "futurelet": 2, "csname": 0}


@dataclass
class State:
    """What the source has said so far: its switches, its commands, its class options."""

    flags: dict[str, bool] = field(default_factory=dict)
    macros: dict[str, Macro] = field(default_factory=dict)
    class_options: set[str] = field(default_factory=set)


def pair_conditionals(source: Source, flags: dict[str, bool]) -> dict[int, tuple[int | None, int]]:
    """{start of \\if…: (start of its \\else or None, start of its \\fi)}, found once for the whole text."""
    if source.conditionals is None:
        source.conditionals = _pair(source, flags) if "\\fi" in source.text else {}
    return source.conditionals


def _pair(source: Source, flags: dict[str, bool]) -> dict[int, tuple[int | None, int]]:
    pairs: dict[int, tuple[int | None, int]] = {}
    stack: list[tuple[int, int | None]] = []
    ignored = skip_until = 0
    for match in WORD_WITH_AT.finditer(source.text):
        if match.start() < skip_until:
            continue
        name = match[1]
        if ignored:
            ignored -= 1
        elif name in NOT_A_USE:
            ignored = NOT_A_USE[name]
        elif name in DEFINERS:
            definition = read_definition(source, name, match.end())
            skip_until = definition.end if definition else 0
        elif name == "fi":
            if stack:
                start, other = stack.pop()
                pairs[start] = (other, match.start())
        elif name == "else":
            if stack and stack[-1][1] is None:
                stack[-1] = (stack[-1][0], match.start())
        elif is_conditional(name, source, match.end(), flags):
            stack.append((match.start(), None))
    return pairs


def is_conditional(name: str, source: Source, position: int, flags: dict[str, bool]) -> bool:
    """Whether \\name is closed by \\fi."""
    if not name.startswith("if") or name in WITH_ARGUMENTS:
        return False
    return name in PRIMITIVES or name[2:] in flags or "@" in name or not source.text.startswith("{", source.blanks(position))


def evaluate(name: str, source: Source, position: int, state: State) -> tuple[bool | None, int]:
    """The truth of the TeX conditional \\name whose test begins at `position` (None: unknown), and the position behind the test."""
    text = source.text
    if name in KNOWN:
        return KNOWN[name], position
    if name[2:] in state.flags:
        return state.flags[name[2:]], position
    if name.startswith("ifCLASSOPTION"):
        return name.removeprefix("ifCLASSOPTION") in state.class_options, position
    if name == "ifnum" and (match := NUMBERS.match(text, position)):
        return compare(match, state), match.end()
    if name == "ifx" and (match := COMMANDS.match(text, position)):
        return _same_command(match[1], match[2], state), match.end()
    if name == "ifdefined" and (match := ONE_COMMAND.match(text, position)):
        return is_defined(match[1], state), match.end()
    if name == "if" and (match := CHARACTERS.match(text, position)):
        return match[1] == match[2], match.end()
    return None, position


def is_defined(name: str, state: State) -> bool | None:
    """Whether the paper defines \\name; None for one that LaTeX or the engine may define."""
    known = name in state.macros or None
    return known if name.startswith(ENGINE_COMMANDS) else bool(known)


def value_of(text: str, state: State) -> str | None:
    """A string in which only commands without parameters occur, expanded up to four times."""
    text = text.strip()
    for _ in range(4):
        match = re.fullmatch(r"\\([A-Za-z@]+)", text)
        if not match:
            break
        macro = state.macros.get(match[1])
        if not macro or macro.parameters:
            return None
        text = macro.body.strip()
    return None if "\\" in text else text


def compare(match: re.Match[str], state: State) -> bool | None:
    left, right = _number(match[1], state), _number(match[3], state)
    if left is None or right is None:
        return None
    return left < right if match[2] == "<" else left > right if match[2] == ">" else left == right


def _number(text: str, state: State) -> int | None:
    value = value_of(text, state)
    return int(value) if value is not None and re.fullmatch(r"-?[0-9]{1,9}", value) else None


def _same_command(left: str, right: str, state: State) -> bool | None:
    """\\ifx of two commands, where each is the paper's own, undefined or empty."""
    undefined, empty = ("undefined", "@undefined", "relax"), ("empty", "@empty")

    def meaning(name: str) -> str | None:
        if name in undefined:
            return "undefined"
        if name in empty:
            return "="
        if macro := state.macros.get(name):
            return None if macro.parameters else f"={macro.body}"
        return None if name.startswith(ENGINE_COMMANDS) or "@" in name else "undefined"

    first, second = meaning(left), meaning(right)
    return None if first is None or second is None else first == second
