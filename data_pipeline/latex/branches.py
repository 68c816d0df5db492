"""Conditionals in all their spellings: \\if…\\else…\\fi, \\ifthenelse, toggles, \\@ifstar, and the tests of document commands."""

import re
from collections.abc import Callable

from papergym.data_pipeline.latex import argument_tests, conditionals
from papergym.data_pipeline.latex.conditionals import State
from papergym.data_pipeline.latex.frames import Frame, Frames
from papergym.data_pipeline.latex.names import names
from papergym.data_pipeline.latex.scanner import WORD_WITH_AT, Source

NEW_FLAG = re.compile(r"\s*\{?\s*\\if([A-Za-z@]+)\s*\}?")
FLAG_MAKERS = names("newif newboolean provideboolean newbool providebool newtoggle providetoggle")
FLAG_SETTERS = names("setboolean setbool settoggle booltrue boolfalse toggletrue togglefalse")
FLAG_TESTS = names("iftoggle ifbool nottoggle notbool")
Span = tuple[int, int]


class Branches:
    """Handlers (frame, start of the command, its name) that go on in the branch that holds, or in all when that is unknown."""

    def __init__(self, frames: Frames, state: State):
        self._frames, self._state = frames, state
        self.handlers: dict[str, Callable[[Frame, int, str], None]] = {
            "unless": self._unless, "ifthenelse": self._if_then_else, "@ifstar": self._if_star, "@ifnextchar": self._if_next,
            "IfBooleanTF": self._if_value, "IfNoValueTF": self._if_value, "IfValueTF": self._if_value, "else": self._skip, "fi": self._skip,
        }  # fmt: skip
        self.handlers |= dict.fromkeys(FLAG_MAKERS | FLAG_SETTERS, self._learn) | dict.fromkeys(FLAG_TESTS, self._if_flag)
        self.handlers |= dict.fromkeys(argument_tests.ARGUMENTS, self._if_argument)

    def conditional(self, frame: Frame, start: int, name: str, *, negation: int | None = None) -> None:
        """\\name … \\else … \\fi, when \\name is a conditional whose truth the source tells. negation: where its \\unless stands."""
        pair = conditionals.pair_conditionals(frame.source, self._state.flags).get(start)
        if pair is None or pair[1] >= frame.end:
            return
        truth, behind = conditionals.evaluate(name, frame.source, frame.pos, self._state)
        if truth is None:
            return
        if negation is not None:
            truth, start = not truth, negation
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

    def _unless(self, frame: Frame, start: int, name: str) -> None:
        if match := WORD_WITH_AT.match(frame.source.text, frame.source.blanks(frame.pos), frame.end):
            frame.pos = match.end()
            self.conditional(frame, match.start(), match[1], negation=start)

    def learn(self, source: Source, position: int, name: str) -> int:
        """Learns a switch from \\name, which makes or sets one, and returns the position behind it."""
        flags = self._state.flags
        if name == "newif":
            match = NEW_FLAG.match(source.text, position)
            if match:
                flags.setdefault(match[1], False)
            return match.end() if match else position
        flag = source.argument(position)
        if not flag:
            return position
        if name in FLAG_MAKERS:
            flags.setdefault(flag[0].strip(), False)
            return flag[1]
        value: tuple[str, int] | None = (name, flag[1]) if name.endswith(("true", "false")) else source.argument(flag[1])
        if not value or not value[0].strip().lower().endswith(("true", "false")):
            return position
        flags[flag[0].strip()] = value[0].strip().lower().endswith("true")
        return value[1]

    def _learn(self, frame: Frame, start: int, name: str) -> None:
        """Switches are no text, their names least of all."""
        end = self.learn(frame.source, frame.pos, name)
        if frame.pos < end <= frame.end:
            self._frames.replace(frame, start, end)

    def choose(self, frame: Frame, start: int, branches: list[Span], truth: bool | None) -> None:
        """Goes on inside the branch that holds; when that is unknown, inside both."""
        if truth is None or branches[-1][1] >= frame.end:
            return
        self._frames.replace(frame, start, branches[-1][1] + 1)
        self._frames.push_part(frame, branches[0] if truth else branches[1])

    def _if_then_else(self, frame: Frame, start: int, name: str) -> None:
        if groups := frame.source.groups(frame.pos, 3):
            test = frame.source.text[slice(*groups[0])]
            self.choose(frame, start, groups[1:], argument_tests.evaluate_test(test, self._state) if len(test) < 500 else None)

    def _if_argument(self, frame: Frame, start: int, name: str) -> None:
        arguments, position = [], frame.pos
        for _ in range(argument_tests.ARGUMENTS[name]):
            argument = frame.source.argument(position)
            if not argument:
                return
            arguments.append(argument[0])
            position = argument[1]
        if groups := frame.source.groups(position, 2):
            self.choose(frame, start, groups, argument_tests.evaluate_command(name, arguments, self._state))

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
