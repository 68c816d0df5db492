"""One document out of many files: inputs spliced in, comments and dead branches out, structural commands of the author's own made plain.

A user command is expanded only when its body holds something structural (a heading, an input, the abstract, the appendix, a switch); all
others stay as they are, and their definitions are returned beside the text.
"""

import posixpath

from papergym.data_pipeline.latex.branches import Branches
from papergym.data_pipeline.latex.commands import Commands
from papergym.data_pipeline.latex.frames import Frame, Frames
from papergym.data_pipeline.latex.inputs import BEGIN_DOCUMENT, Inputs
from papergym.data_pipeline.latex.macros import Macro, read_arguments, substitute
from papergym.data_pipeline.latex.names import INPUTS
from papergym.data_pipeline.latex.scanner import ENVIRONMENT, WORD, WORD_WITH_AT, Dialect, Source
from papergym.data_pipeline.latex.sources import Sources


def expand_document(sources: Sources, main: str, dialect: Dialect) -> tuple[str, dict[str, Macro]]:
    """The whole document from the main file's first character to \\end{document}, and the paper's own commands.

    `dialect` learns what the paper makes verbatim; `sources.warnings` is added to. Raises InputError when the expansion doesn't end.
    """
    expander = _Expander(sources, main, dialect)
    return expander.expand(), expander.commands.state.macros


class _Expander:
    """Walks from command to command in TeX's order and hands each that matters to its handler."""

    def __init__(self, sources: Sources, main: str, dialect: Dialect):
        self._main, self._dialect = main, dialect
        self._at_is_letter, self._in_body = True, False
        self.commands = Commands()
        self._frames = Frames(main, dialect, sources.warnings)
        self._branches = Branches(self._frames, self.commands.state)
        self._inputs = Inputs(sources, main, self._frames, self.commands, self._branches)
        self._handlers = {
            "begin": self._begin, "end": self._end, "endinput": self._end_input, "makeatletter": self._make_at,
            "makeatother": self._make_at, "documentclass": self._document_class, "documentstyle": self._document_class,
            **self._branches.handlers, **self._inputs.handlers,
        }  # fmt: skip

    def expand(self) -> str:
        source = Source(self._inputs.read(self._main), self._dialect)
        self._size_when_read = self._dialect.size()
        self._frames.push_file(self._main, source, 0, posixpath.dirname(self._main))
        while self._frames.stack:
            frame = self._frames.stack[-1]
            pattern = WORD_WITH_AT if self._at_is_letter or frame.is_expansion else WORD
            match = pattern.search(frame.source.text, frame.pos, frame.end)
            if match is None:
                self._frames.pop()
            elif match.start() in frame.source.verbatim:
                frame.pos = frame.source.verbatim[match.start()]
                if match[1] == "begin":
                    self._inputs.written_file(frame, match.start())
            else:
                frame.pos = match.end()
                self._command(frame, match.start(), match[1])
        return self._frames.text()

    def _command(self, frame: Frame, start: int, name: str) -> None:
        if handler := self._handlers.get(name):
            handler(frame, start, name)
        elif name in self.commands.aliases:
            self._alias(frame, start, self.commands.aliases[name])
        elif name in self.commands.structural:
            self._structural(frame, start, self.commands.state.macros[name])
        elif name.startswith("if"):
            self._branches.conditional(frame, start, name)
        elif name.endswith(("true", "false")):
            self._branches.switch(name)

    def _alias(self, frame: Frame, start: int, target: str) -> None:
        if target in INPUTS:
            self._inputs.input(frame, start, target)
        else:
            self._frames.replace(frame, start, frame.pos)
            self._frames.write(f"\\{target}")

    def _structural(self, frame: Frame, start: int, macro: Macro) -> None:
        """Puts a structural command's body in its place; its arguments may stand behind the expansion that it ends."""
        reader = self._frames.behind(frame) if macro.parameters else frame
        found = read_arguments(macro, reader.source, reader.pos)
        if not found or found[1] > reader.end:
            return
        if reader is frame:
            self._frames.replace(frame, start, found[1])
        else:
            self._frames.unwind(frame, start, reader)
            self._frames.replace(reader, reader.pos, found[1])
        self._frames.push_text(substitute(macro.body, found[0]), reader)

    def _begin(self, frame: Frame, start: int, name: str) -> None:
        match = ENVIRONMENT.match(frame.source.text, frame.pos, frame.end)
        if not match:
            return
        frame.pos = match.end()
        if match[1] == "document":
            self._in_body, self._at_is_letter = True, False
            if frame.file != self._main:
                self._frames.replace(frame, start, frame.pos)
            elif self._dialect.size() != self._size_when_read:
                self._read_again(frame, start)
        elif definition := self.commands.environments.get(match[1]):
            assert definition.macro
            found = read_arguments(definition.macro, frame.source, frame.pos)
            if found and found[1] <= frame.end:
                self._frames.replace(frame, start, found[1])
                self._frames.push_text(substitute(definition.macro.body, found[0]), frame)

    def _read_again(self, frame: Frame, start: int) -> None:
        """Reads the main file's body anew when files that the preamble inputs have defined verbatim environments or the like."""
        before = len(BEGIN_DOCUMENT.findall(frame.source.text, 0, start))
        source = Source(self._inputs.read(self._main), self._dialect)
        places = [match.end() for match in BEGIN_DOCUMENT.finditer(source.text)]
        if before < len(places) and frame.is_file:
            self._frames.replace(frame, frame.pos, frame.pos)
            frame.source, frame.end, frame.skips = source, len(source.text), {}
            frame.mark = frame.pos = places[before]

    def _end(self, frame: Frame, start: int, name: str) -> None:
        match = ENVIRONMENT.match(frame.source.text, frame.pos, frame.end)
        if not match:
            return
        if match[1] == "document":
            frame.pos = start
            self._frames.leave_file()
            if frame.file == self._main:
                self._frames.write("\\end{document}")
                self._frames.stack.clear()
        elif definition := self.commands.environments.get(match[1]):
            self._frames.replace(frame, start, match.end())
            self._frames.push_text(definition.ending or "", frame)

    def _end_input(self, frame: Frame, start: int, name: str) -> None:
        frame.pos = start
        self._frames.leave_file()

    def _make_at(self, frame: Frame, start: int, name: str) -> None:
        self._at_is_letter = name == "makeatletter" or not self._in_body

    def _document_class(self, frame: Frame, start: int, name: str) -> None:
        if option := frame.source.optional(frame.pos):
            self.commands.state.class_options |= {word.strip() for word in frame.source.text[slice(*option)].split(",")}
