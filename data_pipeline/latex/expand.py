"""One document out of many files: inputs spliced in, comments and dead branches out, structural commands of the author's own made plain.

A user command is expanded only when its body holds something structural (a heading, an input, the abstract, the appendix); all others
stay as they are, and their definitions are returned beside the text.
"""

import posixpath
import re
from collections.abc import Callable, Mapping

from papergym.data_pipeline.latex import conditionals
from papergym.data_pipeline.latex.conditionals import State
from papergym.data_pipeline.latex.decoding import declared_encoding, decode, is_binary
from papergym.data_pipeline.latex.macros import (
    DEFINERS,
    Definition,
    Macro,
    commands_in,
    read_arguments,
    read_definition,
    substitute,
)
from papergym.data_pipeline.latex.resolve import Outside, Resolver
from papergym.data_pipeline.latex.scanner import ENVIRONMENT, WORD, WORD_WITH_AT, WRITTEN, Dialect, Source
from papergym.errors import InputError

HEADINGS = {
    "part": -1, "addpart": -1, "chapter": 0, "addchap": 0, "section": 1, "addsec": 1, "specialsection": 1, "subsection": 2,
    "subsubsection": 3, "subsubsubsection": 4, "minisec": 4, "paragraph": 4, "subparagraph": 5,
}  # fmt: skip
INPUTS = frozenset(("input", "include", "subfile", "subfileinclude", "@input", "@@input"))
IMPORTS = frozenset(("import", "inputfrom", "includefrom", "subimport", "subinputfrom", "subincludefrom"))
ABSTRACTS = frozenset(("abstract", "abstract*", "Abstract", "onecolabstract", "englishabstract"))
APPENDICES = frozenset(("appendix", "appendices"))
# Never taken for a user's own command, whatever a preamble redefines.
CORE = frozenset(
    (*HEADINGS, *INPUTS, *IMPORTS, "abstract", "appendix", "appendices", "begin", "end", "title", "maketitle", "thebibliography")
)
STRUCTURAL_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{(?:abstract\*?|Abstract|document|appendix|appendices|comment)\}")
STRUCTURAL = frozenset((*HEADINGS, *INPUTS, *IMPORTS, "abstract", "appendix", "appendices", "InputIfFileExists", "@startsection"))
START_SECTION = re.compile(r"\s*\\@startsection\s*\{\s*([A-Za-z]+)\s*\}")
BEGIN_DOCUMENT = re.compile(r"\\begin\s*\{\s*document\s*\}")
ENDS_IN_COMMAND = re.compile(r"\\[A-Za-z@]+\Z")
BARE_NAME = re.compile(r'"[^"\n]{1,500}"|[^\s\\{}%]{1,500}')

MAX_TEXT = 24_000_000  # characters that all expansion together may read
FILE_COST, EXPANSION_COST = 5000, 200  # in characters, so that empty ones can't multiply without end
MAX_FRAMES = 400
MAX_INPUT_DEPTH = 60


class Frame:
    """A stretch of one source that is being read. `mark` is where text that hasn't been written out yet begins."""

    __slots__ = ("base", "end", "file", "is_expansion", "is_file", "mark", "pos", "skips", "source")

    def __init__(
        self, source: Source, pos: int, end: int, file: str, base: str, skips: dict[int, int], *, is_file=False, is_expansion=False
    ):
        self.source, self.pos, self.end, self.mark = source, pos, end, pos
        self.file, self.base, self.skips = file, base, skips
        self.is_file, self.is_expansion = is_file, is_expansion


class Expander:
    """Reads a document in TeX's order. `expand` is called once."""

    def __init__(self, files: Mapping[str, bytes], main: str, dialect: Dialect, warnings: list[str]):
        self.files, self.main, self.dialect, self.warnings = files, main, dialect, warnings
        self.state = State()
        self.environments: dict[str, Definition] = {}
        self.structural: set[str] = set()
        self.aliases: dict[str, str] = {}  # of headings and inputs
        self._users: dict[str, set[str]] = {}  # of a command: the user commands whose bodies mention it
        self.written: dict[str, str] = {}  # files that the document writes for itself
        self.missing: list[str] = []
        self._resolver = Resolver(files)
        self._declared = declared_encoding(files[main])
        self._frames: list[Frame] = []
        self._open: list[str] = []
        self._output: list[str] = []
        self._left = MAX_TEXT
        self._at_is_letter = True
        self._in_body = False
        self._main_dialect = dialect.size()
        self._handlers: dict[str, Callable[[Frame, int, str], None]] = {
            "begin": self._begin, "end": self._end, "endinput": self._end_input, "makeatletter": self._make_at, "makeatother": self._make_at,
            "newif": self._new_if, "documentclass": self._document_class, "usepackage": self._package, "RequirePackage": self._package,
            "ifthenelse": self._if_then_else, "IfFileExists": self._if_file, "InputIfFileExists": self._if_file, "CatchFileDef": self._catch_file,
            "@ifstar": self._if_star, "@ifnextchar": self._if_next, "IfBooleanTF": self._if_value, "IfNoValueTF": self._if_value,
            "IfValueTF": self._if_value, "else": self._skip, "fi": self._skip, "includecomment": self._keep_comment,
        }  # fmt: skip
        self._handlers |= dict.fromkeys(INPUTS, self._input) | dict.fromkeys(IMPORTS, self._import) | dict.fromkeys(DEFINERS, self._define)
        self._handlers |= dict.fromkeys(
            ("newboolean", "provideboolean", "newbool", "providebool", "newtoggle", "providetoggle"), self._new_flag
        )
        self._handlers |= dict.fromkeys(("setboolean", "setbool", "settoggle"), self._set_flag)
        self._handlers |= dict.fromkeys(("booltrue", "boolfalse", "toggletrue", "togglefalse"), self._set_flag)
        self._handlers |= dict.fromkeys(("iftoggle", "ifbool", "nottoggle", "notbool"), self._if_flag)

    def expand(self) -> str:
        """The whole document from the main file's first character to \\end{document}. Raises InputError when it is endless."""
        self._push_file(self.main, self._read(self.main), posixpath.dirname(self.main))
        self._main_dialect = self.dialect.size()
        while self._frames:
            frame = self._frames[-1]
            pattern = WORD_WITH_AT if self._at_is_letter or frame.is_expansion else WORD
            match = pattern.search(frame.source.text, frame.pos, frame.end)
            if match is None:
                self._pop()
                continue
            start, name = match.start(), match[1]
            if start in frame.source.verbatim:
                frame.pos = frame.source.verbatim[start]
                if name == "begin":
                    self._written_file(frame, start)
                continue
            frame.pos = match.end()
            if handler := self._handlers.get(name):
                handler(frame, start, name)
            elif name in self.aliases:
                self._alias(frame, start, name)
            elif name in self.structural:
                self._expand_macro(frame, start, name)
            elif name.startswith("if"):
                self._conditional(frame, start, name)
            elif name.endswith(("true", "false")):
                stem = name.removesuffix("true").removesuffix("false")
                if stem in self.state.flags:
                    self.state.flags[stem] = name.endswith("true")
        return "".join(self._output)

    # Frames and output.

    def _push(self, frame: Frame) -> None:
        self._left -= frame.end - frame.pos + (FILE_COST if frame.is_file else EXPANSION_COST)
        if self._left < 0:
            raise InputError(
                f"{self.main}: inputs and commands expand to more than {MAX_TEXT:,} characters; is an \\input or a command nested in itself?"
            )
        if len(self._frames) >= MAX_FRAMES:
            self._warn(f"{frame.file}: commands nested more than {MAX_FRAMES} deep, the innermost skipped")
            return
        self._frames.append(frame)

    def _push_text(self, text: str, parent: Frame) -> None:
        if ENDS_IN_COMMAND.search(text[-100:]):
            text += " "
        source = Source(text if len(text) <= self._left else "", self.dialect)
        self._left -= max(len(text) - len(source.text), 0)
        self._push(Frame(source, 0, len(source.text), parent.file, parent.base, {}, is_expansion=True))

    def _push_file(self, path: str, text: str, base: str) -> None:
        source = Source(text, self.dialect)
        start = 0
        if path != self.main:
            start = next((m.end() for m in BEGIN_DOCUMENT.finditer(source.text) if not source.is_verbatim(m.start())), 0)
        self._open.append(path)
        self._push(Frame(source, start, len(source.text), path, base, {}, is_file=True))
        if len(self._frames) and self._frames[-1].file != path:
            self._open.pop()

    def _pop(self) -> None:
        frame = self._frames.pop()
        self._output.append(frame.source.text[frame.mark : frame.end])
        if frame.is_file:
            self._open.pop()

    def _replace(self, frame: Frame, start: int, end: int) -> None:
        """Writes what precedes `start` and goes on at `end`; the text between is left out."""
        self._output.append(frame.source.text[frame.mark : start])
        frame.mark = frame.pos = end

    def _end_file(self) -> None:
        """Leaves the current file, whatever is still open in it."""
        while self._frames:
            frame = self._frames[-1]
            frame.end = max(frame.mark, min(frame.pos, frame.end))
            self._pop()
            if frame.is_file:
                break

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _read(self, path: str) -> str:
        data = self.files[path]
        return decode(data, declared_encoding(data) or self._declared)

    # Files.

    def _input(self, frame: Frame, start: int, name: str) -> None:
        source, text = frame.source, frame.source.text
        group = source.group(frame.pos)
        if group:
            target, end = text[group[0] : group[1]], group[1] + 1
        elif name in ("input", "@input", "@@input") and (match := BARE_NAME.match(text, source.blanks(frame.pos), frame.end)):
            target, end = match[0], match.end()
            end += text.startswith((" ", "\n"), end)
        else:
            return
        if end <= frame.end and "#" not in target:
            self._replace(frame, start, end)
            own = posixpath.dirname(frame.file)
            self._splice(frame, name, target, [frame.base, own, posixpath.dirname(self.main), ""], frame.base)

    def _import(self, frame: Frame, start: int, name: str) -> None:
        source = frame.source
        folder = source.group(frame.pos)
        target = source.group(folder[1] + 1) if folder else None
        if not folder or not target or target[1] >= frame.end:
            return
        self._replace(frame, start, target[1] + 1)
        directory, file_name = source.text[folder[0] : folder[1]].strip(), source.text[target[0] : target[1]].strip()
        path = f"{directory.rstrip('/')}/{file_name}" if directory else file_name
        main = posixpath.dirname(self.main)
        bases = [frame.base, posixpath.dirname(frame.file), main, ""] if name.startswith("sub") else [main, frame.base, ""]
        self._splice(frame, name, path, bases, None)

    def _splice(self, frame: Frame, command: str, target: str, bases: list[str], base: str | None) -> None:
        """Pushes the file that is meant, or warns. `base` is the folder that its own inputs start from; None for the file's own."""
        path = self._find(frame, command, target, bases)
        if path is None:
            return
        if path in self._open:
            self._warn(f"{frame.file}: \\{command}{{{target.strip()}}} leads back to {path}, which is being read; skipped")
        elif len(self._open) >= MAX_INPUT_DEPTH:
            self._warn(f"{frame.file}: \\{command}{{{target.strip()}}} is nested more than {MAX_INPUT_DEPTH} files deep, skipped")
        elif path in self.files and is_binary(self.files[path]):
            self._warn(f"{frame.file}: {path} is no text, \\{command}{{{target.strip()}}} skipped")
        else:
            text = self._read(path) if path in self.files else self.written[path]
            # TeX ends every file with a line end; where the line of the \\input ends too, one of them would make a paragraph.
            text = text.removesuffix("\n") + ("" if frame.source.text.startswith("\n", frame.pos) else "\n")
            self._push_file(path, text, posixpath.dirname(path) if base is None else base)

    def _find(self, frame: Frame, command: str, target: str, bases: list[str]) -> str | None:
        shown = f"\\{command}{{{target.strip()[:200]}}}"
        try:
            path = self._resolver.resolve(target, bases, self.state.macros)
        except Outside:
            self._warn(f"{frame.file}: {shown} leads out of the paper's own folder, skipped")
            return None
        if path is None:
            written = posixpath.basename(target.strip())
            path = next((name for name in (written, f"{written}.tex") if name in self.written), None)
        if path is None:
            self._warn(f"{frame.file}: {shown} not found")
            self.missing.append(target.strip())
        return path

    def _written_file(self, frame: Frame, start: int) -> None:
        """filecontents and its like: kept for a later \\input, not part of the text."""
        text, end = frame.source.text, frame.pos
        environment = ENVIRONMENT.match(text, start + len("\\begin"))
        if not environment or environment[1] not in WRITTEN:
            return
        option = frame.source.optional(environment.end())
        name = re.compile(r"\s*\{([^{}\n]{1,300})\}").match(text, option[1] + 1 if option else environment.end())
        if name:
            content = text[name.end() : end - len(f"\\end{{{environment[1]}}}")]
            self.written[posixpath.basename(name[1].strip())] = content
        self._replace(frame, start, end)

    def _package(self, frame: Frame, start: int, name: str) -> None:
        """Definitions in the paper's own style files; their text is never part of the paper's."""
        option = frame.source.optional(frame.pos)
        group = frame.source.group(option[1] + 1 if option else frame.pos)
        if not group or self._in_body:
            return
        frame.pos = group[1] + 1
        for package in frame.source.text[group[0] : group[1]][:2000].split(","):
            for folder in (posixpath.dirname(self.main), posixpath.dirname(frame.file)):
                path = posixpath.normpath(posixpath.join(folder, f"{package.strip()}.sty"))
                if path in self.files and path not in self.written and not is_binary(self.files[path]):
                    self.written[path] = ""  # each style once
                    self._definitions(Source(self._read(path), self.dialect))

    def _definitions(self, source: Source) -> None:
        self._left -= len(source.text)
        skip_until = 0
        for match in WORD_WITH_AT.finditer(source.text):
            if match.start() >= skip_until:
                if match[1] in DEFINERS and (definition := read_definition(source, match[1], match.end())):
                    skip_until = definition.end
                    self._learn(definition)
                elif match[1] == "newif":
                    self._flag_after(source, match.end())

    # Definitions.

    def _define(self, frame: Frame, start: int, name: str) -> None:
        definition = read_definition(frame.source, name, frame.pos)
        if definition and definition.end <= frame.end:
            frame.pos = definition.end
            if name != "providecommand" or definition.name not in self.state.macros:
                self._learn(definition)

    def _learn(self, definition: Definition) -> None:
        name = definition.name
        if definition.target is not None:
            self._let(name, definition.target)
        elif name.startswith("if") and name[2:] in self.state.flags:
            return
        elif definition.ending is not None:
            if definition.macro and name not in ABSTRACTS and name != "document" and self._is_structural(definition.macro.body):
                self.environments[name] = definition
        elif definition.macro:
            self.state.macros[name] = definition.macro
            self.aliases.pop(name, None)
            self.structural.discard(name)
            if name in CORE or name in self._handlers:
                return
            if heading := START_SECTION.match(definition.macro.body):
                self.aliases[name] = heading[1] if heading[1] in HEADINGS else "section"
                self._mark_users(name)
            elif self._is_structural(definition.macro.body):
                self.structural.add(name)
                self._mark_users(name)
            else:
                for command in commands_in(definition.macro.body):
                    self._users.setdefault(command, set()).add(name)

    def _let(self, name: str, target: str) -> None:
        if name.startswith("if") and (target in ("iftrue", "iffalse") or target[2:] in self.state.flags):
            self.state.flags[name[2:]] = target == "iftrue" or self.state.flags.get(target[2:], False)
        elif name in CORE or name in self._handlers:
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
                if user in self.state.macros and user not in self.structural and user not in CORE:
                    self.structural.add(user)
                    waiting.append(user)

    def _is_structural(self, body: str) -> bool:
        if STRUCTURAL_ENVIRONMENT.search(body):
            return True
        commands = commands_in(body)
        return not (STRUCTURAL.isdisjoint(commands) and self.structural.isdisjoint(commands) and self.aliases.keys().isdisjoint(commands))

    def _alias(self, frame: Frame, start: int, name: str) -> None:
        target = self.aliases[name]
        if target in INPUTS:
            self._input(frame, start, target)
        else:
            self._replace(frame, start, frame.pos)
            self._output.append(f"\\{target}")

    def _expand_macro(self, frame: Frame, start: int, name: str) -> None:
        """Puts a structural command's body in its place; its arguments may stand behind the expansion that it ends."""
        macro = self.state.macros[name]
        reader = self._behind(frame) if macro.parameters else frame
        found = read_arguments(macro, reader.source, reader.pos)
        if not found or found[1] > reader.end:
            return
        if reader is frame:
            self._replace(frame, start, found[1])
        else:
            frame.end = start
            while self._frames[-1] is not reader:
                self._pop()
            self._replace(reader, reader.pos, found[1])
        self._push_text(substitute(macro.body, found[0]), reader)

    def _behind(self, frame: Frame) -> Frame:
        """The frame in which the next token stands, when an expansion has nothing left."""
        for candidate in reversed(self._frames):
            if not candidate.is_expansion or candidate.source.text[candidate.pos : candidate.end].strip():
                return candidate
        return frame

    # Environments and the document's ends.

    def _begin(self, frame: Frame, start: int, name: str) -> None:
        match = ENVIRONMENT.match(frame.source.text, frame.pos, frame.end)
        if not match:
            return
        environment = match[1]
        if environment == "document":
            self._in_body, self._at_is_letter = True, False
            frame.pos = match.end()
            if frame.file != self.main:
                self._replace(frame, start, match.end())
            elif self.dialect.size() != self._main_dialect:
                self._reread(frame, start)
        elif environment in self.environments:
            definition = self.environments[environment]
            assert definition.macro
            found = read_arguments(definition.macro, frame.source, match.end())
            if found and found[1] <= frame.end:
                self._replace(frame, start, found[1])
                self._push_text(substitute(definition.macro.body, found[0]), frame)

    def _reread(self, frame: Frame, start: int) -> None:
        """Reads the main file's body anew when the preamble's files have defined verbatim environments or the like."""
        self._replace(frame, start, frame.pos)
        self._output.append("\\begin{document}")
        before = len(BEGIN_DOCUMENT.findall(frame.source.text, 0, start))
        source = Source(self._read(self.main), self.dialect)
        places = [match.end() for match in BEGIN_DOCUMENT.finditer(source.text)]
        if before < len(places):
            frame.source, frame.end, frame.skips = source, len(source.text), {}
            frame.mark = frame.pos = places[before]

    def _end(self, frame: Frame, start: int, name: str) -> None:
        match = ENVIRONMENT.match(frame.source.text, frame.pos, frame.end)
        if not match:
            return
        if match[1] == "document":
            frame.pos = start
            self._end_file()
            if frame.file == self.main:
                self._output.append("\\end{document}")
                self._frames.clear()
        elif match[1] in self.environments:
            self._replace(frame, start, match.end())
            self._push_text(self.environments[match[1]].ending or "", frame)

    def _end_input(self, frame: Frame, start: int, name: str) -> None:
        frame.pos = start
        self._end_file()

    def _make_at(self, frame: Frame, start: int, name: str) -> None:
        self._at_is_letter = name == "makeatletter" or not self._in_body

    def _document_class(self, frame: Frame, start: int, name: str) -> None:
        if option := frame.source.optional(frame.pos):
            self.state.class_options |= {word.strip() for word in frame.source.text[option[0] : option[1]].split(",")}

    def _keep_comment(self, frame: Frame, start: int, name: str) -> None:
        """\\includecomment was acted on when comments were taken out; its argument is no text."""
        if group := frame.source.group(frame.pos):
            frame.pos = group[1] + 1

    # Conditionals.

    def _new_if(self, frame: Frame, start: int, name: str) -> None:
        frame.pos = self._flag_after(frame.source, frame.pos)

    def _flag_after(self, source: Source, position: int) -> int:
        match = re.compile(r"\s*\{?\s*\\if([A-Za-z@]+)\s*\}?").match(source.text, position)
        if match:
            self.state.flags.setdefault(match[1], False)
        return match.end() if match else position

    def _new_flag(self, frame: Frame, start: int, name: str) -> None:
        if argument := frame.source.argument(frame.pos):
            self.state.flags.setdefault(argument[0].strip(), False)
            frame.pos = argument[1]

    def _set_flag(self, frame: Frame, start: int, name: str) -> None:
        flag = frame.source.argument(frame.pos)
        value = flag and (name.removeprefix("bool").removeprefix("toggle") if name.endswith(("true", "false")) else None)
        if flag and value is None and (argument := frame.source.argument(flag[1])):
            value, flag = argument[0].strip().lower(), (flag[0], argument[1])
        if flag and value in ("true", "false"):
            self.state.flags[flag[0].strip()] = value == "true"
            frame.pos = min(flag[1], frame.end)

    def _conditional(self, frame: Frame, start: int, name: str) -> None:
        pair = conditionals.pair_conditionals(frame.source, self.state.flags).get(start)
        if pair is None or pair[1] >= frame.end:
            return
        truth, behind = conditionals.evaluate(name, frame.source, frame.pos, self.state)
        if truth is None:
            return
        otherwise, fi = pair
        after = fi + len("\\fi")
        if truth:
            self._replace(frame, start, behind)
            if otherwise is None:
                frame.skips[fi] = after
            else:
                frame.skips[otherwise] = after
        elif otherwise is None:
            self._replace(frame, start, after)
        else:
            self._replace(frame, start, otherwise + len("\\else"))
            frame.skips[fi] = after

    def _skip(self, frame: Frame, start: int, name: str) -> None:
        end = frame.skips.get(start)
        if end is not None and end <= frame.end:
            self._replace(frame, start, end)

    def _choose(self, frame: Frame, start: int, branches: list[tuple[int, int]], truth: bool | None) -> None:
        """Goes on inside the branch that holds; when that is unknown, inside both."""
        if truth is None or branches[-1][1] >= frame.end:
            return
        self._replace(frame, start, branches[-1][1] + 1)
        chosen = branches[0] if truth else branches[1] if len(branches) > 1 else None
        if chosen:
            self._push(Frame(frame.source, *chosen, frame.file, frame.base, frame.skips, is_expansion=frame.is_expansion))

    def _groups(self, source: Source, position: int, count: int) -> list[tuple[int, int]] | None:
        groups = []
        for _ in range(count):
            group = source.group(position)
            if not group:
                return None
            groups.append(group)
            position = group[1] + 1
        return groups

    def _if_then_else(self, frame: Frame, start: int, name: str) -> None:
        if groups := self._groups(frame.source, frame.pos, 3):
            test = frame.source.text[groups[0][0] : groups[0][1]]
            self._choose(frame, start, groups[1:], conditionals.evaluate_test(test, self.state) if len(test) < 500 else None)

    def _if_flag(self, frame: Frame, start: int, name: str) -> None:
        if groups := self._groups(frame.source, frame.pos, 3):
            truth = self.state.flags.get(frame.source.text[groups[0][0] : groups[0][1]].strip())
            self._choose(frame, start, groups[1:], truth if truth is None or name.startswith("if") else not truth)

    def _if_value(self, frame: Frame, start: int, name: str) -> None:
        """Tests of a document command's arguments, which stand in the body once it is expanded."""
        if groups := self._groups(frame.source, frame.pos, 3):
            given = frame.source.text[groups[0][0] : groups[0][1]].strip() != ""
            self._choose(frame, start, groups[1:], given != (name == "IfNoValueTF"))

    def _if_file(self, frame: Frame, start: int, name: str) -> None:
        groups = self._groups(frame.source, frame.pos, 3)
        if not groups or groups[2][1] >= frame.end:
            return
        target = frame.source.text[groups[0][0] : groups[0][1]]
        bases = [frame.base, posixpath.dirname(frame.file), posixpath.dirname(self.main), ""]
        try:
            exists = self._resolver.resolve(target, bases, self.state.macros) is not None
        except Outside:
            exists = False
        self._choose(frame, start, groups[1:], exists)
        if exists and name == "InputIfFileExists":
            self._splice(frame, "input", target, bases, frame.base)

    def _catch_file(self, frame: Frame, start: int, name: str) -> None:
        """\\CatchFileDef{\\command}{file}{setup}: the command stands for the file's content."""
        groups = self._groups(frame.source, frame.pos, 3)
        if not groups:
            return
        command, target = (frame.source.text[first:last].strip() for first, last in groups[:2])
        frame.pos = min(groups[2][1] + 1, frame.end)
        path = self._find(frame, name, target, [frame.base, posixpath.dirname(self.main), ""])
        if path in self.files and not is_binary(self.files[path]):
            self.state.macros[command.lstrip("\\")] = Macro((), Source(self._read(path), self.dialect).text.strip())

    def _if_star(self, frame: Frame, start: int, name: str) -> None:
        self._if_character(frame, start, "*", self._groups(frame.source, frame.pos, 2), consume=True)

    def _if_next(self, frame: Frame, start: int, name: str) -> None:
        character = frame.source.argument(frame.pos)
        groups = self._groups(frame.source, character[1], 2) if character else None
        self._if_character(frame, start, character[0] if character else "", groups, consume=False)

    def _if_character(self, frame: Frame, start: int, character: str, groups: list[tuple[int, int]] | None, *, consume: bool) -> None:
        if not groups or groups[1][1] >= frame.end:
            return
        frame.pos = groups[1][1] + 1
        reader = self._behind(frame)
        at = reader.source.blanks(reader.pos)
        matches = bool(character) and reader.source.text.startswith(character, at, reader.end)
        first, last = groups[0] if matches else groups[1]
        chosen = frame.source.text[first:last]
        if reader is frame:
            self._replace(frame, start, at + len(character) if matches and consume else frame.pos)
        else:
            frame.end = start
            while self._frames[-1] is not reader:
                self._pop()
            self._replace(reader, reader.pos, at + len(character) if matches and consume else reader.pos)
        self._push_text(chosen, reader)
