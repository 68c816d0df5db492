"""Files within files: \\input and its relatives, files that the document writes for itself, and style files read for their definitions."""

import posixpath
import re
from collections.abc import Callable

from papergym.data_pipeline.latex.branches import FLAG_MAKERS, FLAG_SETTERS, Branches
from papergym.data_pipeline.latex.commands import Commands
from papergym.data_pipeline.latex.decoding import declared_encoding, decode, is_binary
from papergym.data_pipeline.latex.frames import Frame, Frames
from papergym.data_pipeline.latex.macros import DEFINERS, Macro, read_definition
from papergym.data_pipeline.latex.names import IMPORTS, INPUTS
from papergym.data_pipeline.latex.resolve import Refused, Resolver
from papergym.data_pipeline.latex.scanner import ENVIRONMENT, WORD_WITH_AT, WRITTEN, Source
from papergym.data_pipeline.latex.sources import Sources

BEGIN_DOCUMENT = re.compile(r"\\begin\s*\{\s*document\s*\}")
BARE_NAME = re.compile(r'"[^"\n]{1,500}"|[^\s\\{}%]{1,500}')
FOLDER = re.compile(r"\{\s*([^{}\\]{1,200}?)\s*\}")
FILE_NAME = re.compile(r"\s*\{([^{}\n]{1,300})\}")
MAX_DEPTH = 60


class Inputs:
    """Handlers (frame, start of the command, its name) that splice files in. A file that is missing or outside the paper is warned of."""

    def __init__(self, sources: Sources, main: str, frames: Frames, commands: Commands, branches: Branches):
        self._files, self._frames, self._commands, self._branches = sources.files, frames, commands, branches
        self._folder = posixpath.dirname(main)
        self._written: dict[str, str] = {}
        self._styles: set[str] = set()
        self._resolver = Resolver(sources.files, sources.skipped)
        self._declared = declared_encoding(sources.files[main])
        commands.state.macros["jobname"] = Macro((), posixpath.splitext(posixpath.basename(main))[0])
        self.handlers: dict[str, Callable[[Frame, int, str], None]] = {
            **dict.fromkeys(INPUTS, self.input), **dict.fromkeys(IMPORTS, self._import), **dict.fromkeys(DEFINERS, self._define),
            "usepackage": self._package, "RequirePackage": self._package, "CatchFileDef": self._catch_file,
            "IfFileExists": self._if_file, "InputIfFileExists": self._if_file,
        }  # fmt: skip

    def read(self, path: str) -> str:
        """A file's text, in its own or else the main file's encoding."""
        data = self._files[path]
        return decode(data, declared_encoding(data) or self._declared)

    def input(self, frame: Frame, start: int, name: str) -> None:
        """\\input{file}, \\input file, \\include{file}, \\subfile{file}."""
        source, text = frame.source, frame.source.text
        if group := source.group(frame.pos):
            target, end = text[slice(*group)], group[1] + 1
        elif name in ("input", "@input", "@@input") and (match := BARE_NAME.match(text, source.blanks(frame.pos), frame.end)):
            target, end = match[0], match.end()
            end += text.startswith((" ", "\n"), end)
        else:
            return
        if end <= frame.end and "#" not in target:
            self._frames.replace(frame, start, end)
            self._splice(frame, name, target, self._folders(frame), frame.base)

    def _import(self, frame: Frame, start: int, name: str) -> None:
        """\\import{folder}{file} and \\import*; the file's own inputs then start from its folder."""
        groups = frame.source.groups(frame.pos + frame.source.text.startswith("*", frame.pos), 2)
        if not groups or groups[1][1] >= frame.end:
            return
        self._frames.replace(frame, start, groups[1][1] + 1)
        folder, file = (frame.source.text[slice(*group)].strip() for group in groups)
        folders = self._folders(frame) if name.startswith("sub") else [self._folder, frame.base, ""]
        self._splice(frame, name, f"{folder.rstrip('/')}/{file}" if folder else file, folders, None)

    def _folders(self, frame: Frame) -> list[str]:
        path = self._commands.state.macros.get("input@path")
        listed = [posixpath.join(self._folder, folder) for folder in FOLDER.findall(path.body)] if path else []
        return [frame.base, posixpath.dirname(frame.file), self._folder, "", *listed]

    def _splice(self, frame: Frame, command: str, target: str, folders: list[str], base: str | None) -> None:
        """Pushes the file that is meant, or warns. `base` is the folder that its own inputs start from; None for the file's own."""
        path = self._find(frame, command, target, folders)
        if path is None:
            return
        shown = f"\\{command}{{{target.strip()[:200]}}}"
        if path in self._frames.open:
            self._frames.warn(f"{frame.file}: {shown} leads back to {path}, which is being read; skipped")
        elif len(self._frames.open) >= MAX_DEPTH:
            self._frames.warn(f"{frame.file}: {shown} is nested more than {MAX_DEPTH} files deep, skipped")
        elif path in self._files and is_binary(self._files[path]):
            self._frames.warn(f"{frame.file}: {path} is no text, {shown} skipped")
        else:
            text = self.read(path) if path in self._files else self._written[path]
            # TeX ends every file with a line end; where the line of the \input ends too, one of them would make a paragraph.
            text = text.removesuffix("\n") + ("" if frame.source.text.startswith("\n", frame.pos) else "\n")
            source = Source(text, self._frames.dialect)
            begins = (match.end() for match in BEGIN_DOCUMENT.finditer(source.text) if not source.is_verbatim(match.start()))
            self._frames.push_file(path, source, next(begins, 0), posixpath.dirname(path) if base is None else base)

    def _find(self, frame: Frame, command: str, target: str, folders: list[str]) -> str | None:
        shown = f"\\{command}{{{target.strip()[:200]}}}"
        try:
            path = self._resolver.resolve(target, folders, self._commands.state.macros)
        except Refused as refusal:
            self._frames.warn(f"{frame.file}: {shown}: {refusal}")
            return None
        if path is None:
            written = posixpath.basename(target.strip())
            path = next((name for name in (written, f"{written}.tex") if name in self._written), None)
        if path is None:
            self._frames.warn(f"{frame.file}: {shown} not found")
        return path

    def written_file(self, frame: Frame, start: int) -> None:
        """A verbatim environment has been passed: when it writes a file, that is kept for a later \\input and is no part of the text."""
        text, end = frame.source.text, frame.pos
        environment = ENVIRONMENT.match(text, start + len("\\begin"))
        if not environment or environment[1] not in WRITTEN:
            return
        option = frame.source.optional(environment.end())
        if name := FILE_NAME.match(text, option[1] + 1 if option else environment.end()):
            self._written[posixpath.basename(name[1].strip())] = text[name.end() : end - len(f"\\end{{{environment[1]}}}")]
        self._frames.replace(frame, start, end)

    def _if_file(self, frame: Frame, start: int, name: str) -> None:
        """\\IfFileExists{file}{then}{else}; the other one also inputs the file."""
        groups = frame.source.groups(frame.pos, 3)
        if not groups or groups[2][1] >= frame.end:
            return
        target = frame.source.text[slice(*groups[0])]
        try:
            exists = self._resolver.resolve(target, self._folders(frame), self._commands.state.macros) is not None
        except Refused:
            exists = False
        self._branches.choose(frame, start, groups[1:], exists)
        if exists and name == "InputIfFileExists":
            self._splice(frame, "input", target, self._folders(frame), frame.base)

    def _catch_file(self, frame: Frame, start: int, name: str) -> None:
        """\\CatchFileDef{\\command}{file}{setup}: the command stands for the file's content."""
        groups = frame.source.groups(frame.pos, 3)
        if not groups or groups[2][1] >= frame.end:
            return
        frame.pos = groups[2][1] + 1
        command, target = (frame.source.text[slice(*group)].strip() for group in groups[:2])
        path = self._find(frame, name, target, self._folders(frame))
        if path is not None and path in self._files and path not in self._frames.open and not is_binary(self._files[path]):
            self._frames.charge(len(self._files[path]))
            self._commands.state.macros[command.lstrip("\\")] = Macro((), Source(self.read(path), self._frames.dialect).text.strip())

    def _define(self, frame: Frame, start: int, name: str) -> None:
        definition = read_definition(frame.source, name, frame.pos)
        if definition and definition.end <= frame.end:
            frame.pos = definition.end
            if name != "providecommand" or definition.name not in self._commands.state.macros:
                self._commands.learn(definition)

    def _package(self, frame: Frame, start: int, name: str) -> None:
        """Definitions in the paper's own style files; their text is never part of the paper's."""
        option = frame.source.optional(frame.pos)
        group = frame.source.group(option[1] + 1 if option else frame.pos)
        if not group or group[1] >= frame.end:
            return
        frame.pos = group[1] + 1
        for package in frame.source.text[slice(*group)][:2000].split(","):
            for folder in (self._folder, posixpath.dirname(frame.file)):
                path = posixpath.normpath(posixpath.join(folder, f"{package.strip()}.sty"))
                if path in self._files and path not in self._styles and not is_binary(self._files[path]):
                    self._styles.add(path)
                    self._definitions(Source(self.read(path), self._frames.dialect))

    def _definitions(self, source: Source) -> None:
        self._frames.charge(len(source.text))
        skip_until = 0
        for match in WORD_WITH_AT.finditer(source.text):
            if match.start() < skip_until:
                continue
            if match[1] in DEFINERS and (definition := read_definition(source, match[1], match.end())):
                skip_until = definition.end
                self._commands.learn(definition)
            elif match[1] in FLAG_MAKERS or match[1] in FLAG_SETTERS:
                skip_until = self._branches.learn(source, match.end(), match[1])
            elif match[1].endswith(("true", "false")):
                self._branches.switch(match[1])
