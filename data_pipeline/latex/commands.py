"""What the paper's own commands mean, and which of them are structural: stand for a heading, an input, the abstract or the appendix, or
show their arguments or not, as a switch of the paper says."""

import re

from papergym.data_pipeline.latex.conditionals import State
from papergym.data_pipeline.latex.macros import DEFINERS, Definition, commands_in
from papergym.data_pipeline.latex.names import ABSTRACTS, APPENDICES, HEADINGS, IMPORTS, INPUTS, names

STRUCTURAL_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{(?:abstract\*?|Abstract|document|appendix|appendices|comment)\}")
SWITCHES = names("ifthenelse iftoggle ifbool nottoggle notbool")
STRUCTURAL = frozenset((*HEADINGS, *INPUTS, *IMPORTS, *APPENDICES, "abstract", "InputIfFileExists", "@startsection"))
# Never taken for a user's own command, whatever a preamble redefines.
CORE = frozenset((*HEADINGS, *INPUTS, *IMPORTS, *APPENDICES, *DEFINERS)) | names(
    "abstract begin end title maketitle thebibliography endinput makeatletter makeatother newif documentclass usepackage RequirePackage"
    " ifthenelse IfFileExists InputIfFileExists CatchFileDef @ifstar @ifnextchar else fi"
)
START_SECTION = re.compile(r"\s*\\@startsection\s*\{\s*([A-Za-z]+)\s*\}")


class Commands:
    """Learns definitions in the document's order. `state.macros` holds all commands that can be expanded."""

    def __init__(self) -> None:
        self.state = State()
        self.environments: dict[str, Definition] = {}  # structural ones
        self.structural: set[str] = set()
        self.aliases: dict[str, str] = {}  # commands that are another name of a heading, an input or \appendix
        self._users: dict[str, set[str]] = {}  # of a command: the paper's commands whose bodies mention it

    def learn(self, definition: Definition) -> None:
        """Takes note of a definition, replacing an earlier one."""
        name = definition.name
        if definition.target is not None:
            self._let(name, definition.target)
        elif definition.ending is not None:
            if definition.macro and name not in ABSTRACTS and name != "document" and self._is_structural(definition.macro.body):
                self.environments[name] = definition
        elif definition.macro and not (name.startswith("if") and name[2:] in self.state.flags):
            self._learn_macro(name, definition)

    def _learn_macro(self, name: str, definition: Definition) -> None:
        assert definition.macro
        body = definition.macro.body
        self.state.macros[name] = definition.macro
        self.aliases.pop(name, None)
        self.structural.discard(name)
        if name in CORE:
            return
        if heading := START_SECTION.match(body):
            self.aliases[name] = heading[1] if heading[1] in HEADINGS else "section"
            self._mark_users(name)
        elif self._is_structural(body):
            self.structural.add(name)
            self._mark_users(name)
        else:
            for command in commands_in(body):
                self._users.setdefault(command, set()).add(name)

    def _let(self, name: str, target: str) -> None:
        flags = self.state.flags
        if name.startswith("if") and (target in ("iftrue", "iffalse") or target[2:] in flags):
            flags[name[2:]] = target == "iftrue" or flags.get(target[2:], False)
        elif name in CORE:
            return
        elif target in HEADINGS or target in INPUTS or target in APPENDICES or target in self.aliases:
            self.aliases[name] = self.aliases.get(target, target)
            self._mark_users(name)
        elif target in self.state.macros:
            self.state.macros[name] = self.state.macros[target]
            if target in self.structural:
                self.structural.add(name)

    def _mark_users(self, name: str) -> None:
        """Commands that were defined earlier by means of one that turns out structural are so too."""
        waiting = [name]
        while waiting:
            for user in self._users.pop(waiting.pop(), ()):
                if user in self.state.macros and user not in self.structural:
                    self.structural.add(user)
                    waiting.append(user)

    def _is_structural(self, body: str) -> bool:
        if STRUCTURAL_ENVIRONMENT.search(body):
            return True
        used = commands_in(body)
        if not SWITCHES.isdisjoint(used) or any(name.startswith("if") and name[2:] in self.state.flags for name in used):
            return True
        return not (STRUCTURAL.isdisjoint(used) and self.structural.isdisjoint(used) and self.aliases.keys().isdisjoint(used))
