"""The stack of what is being read and the text that has been written: the state of an expansion."""

import re

from papergym.data_pipeline.latex.scanner import Dialect, Source
from papergym.errors import InputError

MAX_TEXT = 24_000_000  # characters that all expansion together may read
FILE_COST, EXPANSION_COST = 5000, 200  # in characters, so that empty ones can't multiply without end
MAX_FRAMES = 400
ENDS_IN_COMMAND = re.compile(r"\\[A-Za-z@]+\Z")


class Frame:
    """A stretch of one source that is being read. `mark` is where text that hasn't been written out yet begins.

    base: the folder that inputs start from. skips: {position of an \\else or \\fi: where to go on}, shared by the frames of one source.
    """

    __slots__ = ("base", "end", "file", "is_expansion", "is_file", "mark", "pos", "skips", "source")

    def __init__(
        self, source: Source, span: tuple[int, int], file: str, base: str, skips: dict[int, int], *, is_file: bool, is_expansion: bool
    ):
        self.source, self.file, self.base, self.skips = source, file, base, skips
        self.pos, self.end = span
        self.mark = self.pos
        self.is_file, self.is_expansion = is_file, is_expansion


class Frames:
    """Frames on top of each other, the innermost last. `main` names the paper in errors; `warnings` is added to."""

    def __init__(self, main: str, dialect: Dialect, warnings: list[str]):
        self.main, self.dialect, self.warnings = main, dialect, warnings
        self.stack: list[Frame] = []
        self.open: list[str] = []  # files being read
        self._output: list[str] = []
        self._left = MAX_TEXT
        self._warned = set(warnings)

    def text(self) -> str:
        """All that has been written."""
        return "".join(self._output)

    def write(self, text: str) -> None:
        self._output.append(text)

    def warn(self, warning: str) -> None:
        """Notes a warning once."""
        if warning not in self._warned:
            self._warned.add(warning)
            self.warnings.append(warning)

    def charge(self, characters: int) -> None:
        """Counts what is about to be read. Raises InputError when the document seems endless."""
        self._left -= characters
        if self._left < 0:
            reason = "is an \\input or a command nested in itself?"
            raise InputError(f"{self.main}: inputs and commands expand to more than {MAX_TEXT:,} characters; {reason}")

    def push_file(self, path: str, source: Source, start: int, base: str) -> None:
        """Reads a file next, from `start`."""
        self.charge(len(source.text) - start + FILE_COST)
        if self._has_room(path):
            self.open.append(path)
            self.stack.append(Frame(source, (start, len(source.text)), path, base, {}, is_file=True, is_expansion=False))

    def push_text(self, text: str, parent: Frame) -> None:
        """Reads an expansion next."""
        self.charge(len(text) + EXPANSION_COST)
        if self._has_room(parent.file):
            source = Source(f"{text} " if ENDS_IN_COMMAND.search(text[-100:]) else text, self.dialect)
            self.stack.append(Frame(source, (0, len(source.text)), parent.file, parent.base, {}, is_file=False, is_expansion=True))

    def push_part(self, parent: Frame, span: tuple[int, int]) -> None:
        """Reads a part of the parent's own source next, such as one branch of a conditional."""
        self.charge(span[1] - span[0] + EXPANSION_COST)
        if self._has_room(parent.file):
            frame = Frame(parent.source, span, parent.file, parent.base, parent.skips, is_file=False, is_expansion=parent.is_expansion)
            self.stack.append(frame)

    def _has_room(self, file: str) -> bool:
        if len(self.stack) < MAX_FRAMES:
            return True
        self.warn(f"{file}: commands nested more than {MAX_FRAMES} deep, the innermost skipped")
        return False

    def pop(self) -> None:
        """Writes out the rest of the innermost frame and leaves it."""
        frame = self.stack.pop()
        self._output.append(frame.source.text[frame.mark : frame.end])
        if frame.is_file:
            self.open.pop()

    def leave_file(self) -> None:
        """Leaves the current file, whatever is still open in it."""
        while self.stack:
            frame = self.stack[-1]
            frame.end = max(frame.mark, min(frame.pos, frame.end))
            self.pop()
            if frame.is_file:
                break

    def replace(self, frame: Frame, start: int, end: int) -> None:
        """Writes what precedes `start` and goes on at `end`; the text between is left out."""
        self._output.append(frame.source.text[frame.mark : start])
        frame.mark = frame.pos = end

    def behind(self, frame: Frame) -> Frame:
        """The frame in which the next token stands, when the innermost ones are expansions with nothing left."""
        for candidate in reversed(self.stack):
            if not candidate.is_expansion or candidate.source.text[candidate.pos : candidate.end].strip():
                return candidate
        return frame

    def unwind(self, frame: Frame, start: int, reader: Frame) -> None:
        """Leaves everything above `reader`; the innermost frame's text from `start` on is not written."""
        frame.end = start
        while self.stack[-1] is not reader:
            self.pop()
