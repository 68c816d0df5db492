"""Conditionals in all their spellings: \\if…\\else…\\fi, \\ifthenelse, toggles, \\@ifstar, and the tests of document commands."""

import re
from collections.abc import Callable

from papergym.data_pipeline.latex import conditionals
from papergym.data_pipeline.latex.conditionals import State
from papergym.data_pipeline.latex.frames import Frame, Frames
from papergym.data_pipeline.latex.scanner import Source

NEW_FLAG = re.compile(r"\s*\{?\s*\\if([A-Za-z@]+)\s*\}?")
Span = tuple[int, int]


class Branches:
    """Handlers (frame, start of the command, its name) that go on in the branch that holds, or in all when that is unknown."""

    def __init__(self, frames: Frames, state: State):
        self._frames, self._state = frames, state
        self.handlers: dict[str, Callable[[Frame, int, str], None]] = {
            "newif": self._new_if, "ifthenelse": self._if_then_else, "@ifstar": self._if_star, "@ifnextchar": self._if_next,
            "IfBooleanTF": self._if_value, "IfNoValueTF": self._if_value, "IfValueTF": self._if_value, "else": self._skip, "fi": self._skip,
        }  # fmt: skip
        for name in ("newboolean", "provideboolean", "newbool", "providebool", "newtoggle", "providetoggle"):
            self.handlers[name] = self._new_flag
        for name in ("setboolean", "setbool", "settoggle", "booltrue", "boolfalse", "toggletrue", "togglefalse"):
            self.handlers[name] = self._set_flag
        for name in ("iftoggle", "ifbool", "nottoggle", "notbool"):
            self.handlers[name] = self._if_flag

    def conditional(self, frame: Frame, start: int, name: str) -> None:
        """\\name … \\else … \\fi, when \\name is a conditional whose truth the source tells."""
        pair = conditionals.pair_conditionals(frame.source, self._state.flags).get(start)
        if pair is None or pair[1] >= frame.end:
            return
        truth, behind = conditionals.evaluate(name, frame.source, frame.pos, self._state)
        if truth is None:
            return
        otherwise, fi = pair
        after = fi + len("\\fi")
        if truth:
            self._frames.replace(frame, start, behind)
            frame.skips[fi if otherwise is None else otherwise] = after
        elif otherwise is None:
            self._frames.replace(frame, start, after)
        else:
            self._frames.replace(frame, start, otherwise + len("\\else"))
            frame.skips[fi] = after

    def _skip(self, frame: Frame, start: int, name: str) -> None:
        end = frame.skips.get(start)
        if end is not None and end <= frame.end:
            self._frames.replace(frame, start, end)

    def switch(self, name: str) -> None:
        """\\drafttrue and \\draftfalse of a known switch."""
        value = name.endswith("true")
        stem = name.removesuffix("true" if value else "false")
        if stem in self._state.flags:
            self._state.flags[stem] = value

    def new_flag(self, source: Source, position: int) -> int:
        """Learns the switch of \\newif and returns the position behind it."""
        match = NEW_FLAG.match(source.text, position)
        if match:
            self._state.flags.setdefault(match[1], False)
        return match.end() if match else position

    def _new_if(self, frame: Frame, start: int, name: str) -> None:
        frame.pos = self.new_flag(frame.source, frame.pos)

    def _new_flag(self, frame: Frame, start: int, name: str) -> None:
        if argument := frame.source.argument(frame.pos):
            self._state.flags.setdefault(argument[0].strip(), False)
            frame.pos = argument[1]

    def _set_flag(self, frame: Frame, start: int, name: str) -> None:
        flag = frame.source.argument(frame.pos)
        if not flag:
            return
        value, end = name, flag[1]
        if not name.endswith(("true", "false")):
            argument = frame.source.argument(end)
            if not argument:
                return
            value, end = argument[0].strip().lower(), argument[1]
        if value.endswith(("true", "false")) and end <= frame.end:
            self._state.flags[flag[0].strip()] = value.endswith("true")
            frame.pos = end

    def choose(self, frame: Frame, start: int, branches: list[Span], truth: bool | None) -> None:
        """Goes on inside the branch that holds; when that is unknown, inside both."""
        if truth is None or branches[-1][1] >= frame.end:
            return
        self._frames.replace(frame, start, branches[-1][1] + 1)
        self._frames.push_part(frame, branches[0] if truth else branches[1])

    def _if_then_else(self, frame: Frame, start: int, name: str) -> None:
        if groups := frame.source.groups(frame.pos, 3):
            test = frame.source.text[slice(*groups[0])]
            self.choose(frame, start, groups[1:], conditionals.evaluate_test(test, self._state) if len(test) < 500 else None)

    def _if_flag(self, frame: Frame, start: int, name: str) -> None:
        if groups := frame.source.groups(frame.pos, 3):
            truth = self._state.flags.get(frame.source.text[slice(*groups[0])].strip())
            self.choose(frame, start, groups[1:], truth if truth is None or name.startswith("if") else not truth)

    def _if_value(self, frame: Frame, start: int, name: str) -> None:
        """Tests of a document command's arguments, which stand in the body once it is expanded."""
        if groups := frame.source.groups(frame.pos, 3):
            given = frame.source.text[slice(*groups[0])].strip() != ""
            self.choose(frame, start, groups[1:], given != (name == "IfNoValueTF"))

    def _if_star(self, frame: Frame, start: int, name: str) -> None:
        if groups := frame.source.groups(frame.pos, 2):
            self._if_character(frame, start, "*", groups, consume=True)

    def _if_next(self, frame: Frame, start: int, name: str) -> None:
        character = frame.source.argument(frame.pos)
        if character and character[0] and (groups := frame.source.groups(character[1], 2)):
            self._if_character(frame, start, character[0], groups, consume=False)

    def _if_character(self, frame: Frame, start: int, character: str, groups: list[Span], *, consume: bool) -> None:
        """Looks at the next token, which may stand behind the expansion that this command ends."""
        if groups[1][1] >= frame.end:
            return
        frame.pos = groups[1][1] + 1
        reader = self._frames.behind(frame)
        at = reader.source.blanks(reader.pos)
        matches = reader.source.text.startswith(character, at, reader.end)
        chosen = frame.source.text[slice(*groups[0 if matches else 1])]
        position = at + len(character) if matches and consume else reader.pos
        if reader is frame:
            self._frames.replace(frame, start, position)
        else:
            self._frames.unwind(frame, start, reader)
            self._frames.replace(reader, reader.pos, position)
        self._frames.push_text(chosen, reader)
