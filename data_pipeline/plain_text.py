"""LaTeX section text -> plain paragraphs: commands, floats, citations, references and footnotes go, inline formulas stay readable.

What can't be said in plain text (`\\ref`, a citation that is part of the sentence, an unknown command) becomes HOLE and a displayed formula
DISPLAY, so that whoever picks sentences leaves such a one out, or cuts it, instead of quoting it with a word missing.
Time is linear in the length of the text.
"""

import re
import unicodedata
from collections.abc import Mapping

from papergym.data_pipeline import commands
from papergym.data_pipeline.latex import Macro
from papergym.data_pipeline.macros import expand
from papergym.data_pipeline.math_text import DISPLAY, HOLE, math_text, read_script

_TOKEN = re.compile(r"\\[A-Za-z@]+\*?|\\.|\$\$|\$|[{}~&%]|[^\\${}~&%]+", re.S)
_BREAK = "\n\n"
_LONGEST_FORMULA = 1000  # characters; nobody reads a longer one inside a line


def plain_text(latex: str, macros: Mapping[str, Macro] | None = None) -> str:
    """Returns the prose of LaTeX source (comments already removed) as paragraphs separated by blank lines; HOLE marks what prose can't say.

    macros: the paper's own commands (Paper.macros), written out first.
    """
    return tidy(_Reader(expand(latex, macros) if macros else latex).read())


class _Reader:
    """One pass over the source. Braces are skipped rather than nested, so depth costs nothing."""

    def __init__(self, source: str):
        self.source, self.position = source, 0
        self.closing = _brace_pairs(source)
        self.out: list[str] = []

    def read(self) -> str:
        while self.position < len(self.source):
            match = _TOKEN.match(self.source, self.position)
            if match is None:  # a lone backslash at the very end
                break
            token, self.position = match.group(), match.end()
            if token == "$":
                self._formula("$")
            elif token == "$$" or token == "\\[":
                self._skip_to("$$" if token == "$$" else "\\]")
                self.out.append(f" {DISPLAY}{self._stop()} ")
            elif token == "\\(":
                self._formula("\\)")
            elif token[0] == "\\":
                self._command(token[1:])
            elif token in "~&":
                self.out.append(" ")
            elif token not in "{}":
                self.out.append(token)
        return "".join(self.out)

    def _formula(self, closing: str) -> None:
        end, limit = self.position, self.source.find("\n\n", self.position)
        limit = len(self.source) if limit < 0 else limit
        while (end := self.source.find(closing, end, limit)) >= 0 and closing == "$" and self.source[end - 1] == "\\":
            end += 1
        if end < 0:
            self.out.append(HOLE)
            return
        self.out.append(math_text(self.source[self.position : end]) if end - self.position <= _LONGEST_FORMULA else HOLE)
        self.position = end + len(closing)

    def _skip_to(self, closing: str) -> None:
        end = self.source.find(closing, self.position)
        self.position = len(self.source) if end < 0 else end + len(closing)

    def _command(self, name: str) -> None:
        name = name.rstrip("*")
        if name in commands.ACCENTS and self._accent(name):
            return
        if not name or not name[0].isalpha():
            self.out.append(
                {"\\": " ", ",": " ", " ": " ", "\n": " ", ";": " ", ":": " ", "/": "", "-": "", "@": "", "!": "", "]": ""}.get(name, name)
            )
        elif name == "begin":
            self._begin()
        elif name == "end":
            self.out.append(_BREAK if self._group() not in commands.DISPLAYS else "")
        elif name == "item":
            self._options()
            self.out.append(_BREAK)
        elif name == "verb":
            self._verbatim()
        elif name in ("lstinline", "mintinline"):
            self._options()
            if name == "mintinline":
                self._group()
            self._verbatim()
        elif name == "par":
            self.out.append(_BREAK)
        elif name in commands.WORDS and not (name in "oOlLij" and self.source[self.position : self.position + 1] == "{"):
            self.out.append(commands.WORDS[name])
            self._swallow_blank()
        elif name in commands.STYLES:
            pass  # its argument is read on as text
        elif name in commands.IGNORED:
            self._swallow_blank()
        elif name in commands.DROPPED_ARGUMENTS:
            self._options()
            for _ in range(commands.DROPPED_ARGUMENTS[name]):
                self._group()
            if name in commands.HEADINGS:
                self.out.append(_BREAK)
        elif commands.CITES.match(name) or commands.TEXT_CITES.match(name):
            self._cite(name)
        elif commands.REFERENCES.match(name):
            self._options()
            self._group()
            self.out.append(HOLE)
        elif glossary := commands.GLOSSARY.match(name):
            self._acronym(glossary)
        elif name in ("SI", "qty", "SIrange", "qtyrange", "num", "si", "unit", "ang"):
            self._quantity(name)
        elif name == "enquote":
            self._options()
            self.out.append(f'"{_Reader(self._group()).read()}"')
        elif name in ("texorpdfstring", "ifthenelse"):
            first = self._group()
            self._group()
            self.out.append(_Reader(first).read())
        else:
            self._unknown()

    def _begin(self) -> None:
        name = self._group().strip().rstrip("*")
        if name in commands.DROPPED or name in commands.DISPLAYS:
            self._skip_environment(name)
            self.out.append(f" {DISPLAY}{self._stop()} " if name in commands.DISPLAYS else " ")
            return
        self._options()
        if name in ("multicols", "adjustwidth", "spacing", "tabbing"):
            self._group()
        self.out.append(_BREAK)

    def _skip_environment(self, name: str) -> None:
        depth = 1
        for match in re.compile(rf"\\(begin|end)\s*\{{\s*{re.escape(name)}\*?\s*\}}").finditer(self.source, self.position):
            depth += 1 if match.group(1) == "begin" else -1
            if depth == 0:
                self.position = match.end()
                return
        self.position = len(self.source)

    def _stop(self) -> str:
        """The full stop of a display that a new sentence follows."""
        return "." if re.compile(r"\s*[A-Z][a-z]").match(self.source, self.position) else ""

    def _group(self) -> str:
        start = self.position
        while self.source[start : start + 1].isspace():
            start += 1
        if self.source[start : start + 1] != "{":
            return ""
        end = self.closing.get(start)
        if end is None:
            return ""
        self.position = end + 1
        return self.source[start + 1 : end]

    def _options(self) -> None:
        start = self.position
        while self.source[start : start + 1].isspace():
            start += 1
        while self.source[start : start + 1] == "[":
            depth, end = 0, start
            for end in range(start, min(len(self.source), start + 500)):
                depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(self.source[end], 0)
                if depth == 0:
                    break
            if depth:
                return
            self.position = start = end + 1

    def _swallow_blank(self) -> None:
        if self.source[self.position : self.position + 1] in (" ", "\t"):
            self.position += 1
            if self.out and self.out[-1] not in ("", " ") and not self.out[-1][-1:].isalnum():
                return
        if self.source.startswith("{}", self.position):
            self.position += 2

    def _accent(self, name: str) -> bool:
        if name.isalpha() and self.source[self.position : self.position + 1] not in ("{", " ", "\\"):
            return False
        argument, end = read_script(self.source[self.position : self.position + 20], 0)
        letter = argument.strip()
        if letter.startswith("\\"):  # \'{\i}: the accent takes the dot's place
            letter = {"i": "i", "j": "j"}.get(letter[1:].strip(), commands.WORDS.get(letter[1:].strip(), letter))
        if len(letter) != 1 or not letter.isalpha():
            return False
        self.position += end
        self.out.append(unicodedata.normalize("NFC", letter + commands.ACCENTS[name]))
        return True

    def _verbatim(self) -> None:
        mark = self.source[self.position : self.position + 1]
        end = self.source.find("}" if mark == "{" else mark, self.position + 1) if mark else -1
        if end < 0:
            self.out.append(HOLE)
            return
        self.out.append(self.source[self.position + 1 : end])
        self.position = end + 1

    def _cite(self, name: str) -> None:
        self._options()
        self._group()
        before = "".join(self.out[-3:]).rstrip()
        is_word = bool(commands.TEXT_CITES.match(name)) or (
            name.lower() in ("cite", "cites", "onlinecite") and bool(commands.NEEDS_CITE.search(before))
        )
        is_word = is_word or (name == "cite" and self.source[self.position : self.position + 2] in ("'s", "’s"))
        self.out.append(HOLE if is_word else "")

    def _acronym(self, match: re.Match) -> None:
        """The glossary's key stands for its short form, which it is, in capitals, nearly always."""
        self._options()
        key = self._group()
        plural = bool(match.group(1)) or bool(match.group(3)) or (match.group(2) or "").endswith("p")
        self.out.append((key.upper() if len(key) <= 6 else key) + ("s" if plural else ""))

    def _quantity(self, name: str) -> None:
        self._options()
        values = [self._group() for _ in range({"SIrange": 3, "qtyrange": 3, "SI": 2, "qty": 2}.get(name, 1))]
        if name == "ang":
            values[0] += "°"
        elif name != "num":
            values[-1] = unit_text(values[-1])
        self.out.append(" to ".join(values[:-1]) + " " + values[-1] if len(values) > 1 else values[0])

    def _unknown(self) -> None:
        """One argument: most likely a way of setting text, so its content is kept. None or several: a hole."""
        self._options()
        if self.source[self.position : self.position + 1] != "{":
            self.out.append(HOLE)
            return
        start = self.position
        content = self._group()
        if self.source[self.position : self.position + 1] == "{" or re.fullmatch(r"[\w./:-]*[/:_][\w./:-]*", content):
            while self.source[self.position : self.position + 1] == "{" and self._group():
                pass
            self.out.append(HOLE)
            return
        self.position = start  # read on inside the group


def _brace_pairs(source: str) -> dict[int, int]:
    """Position of each opening brace -> position of the one that closes it."""
    pairs, opened = {}, []
    for match in re.finditer(r"\\.|[{}]", source, re.DOTALL):
        if match.group() == "{":
            opened.append(match.start())
        elif match.group() == "}" and opened:
            pairs[opened.pop()] = match.start()
    return pairs


def unit_text(unit: str) -> str:
    """siunitx's macros as symbols: `\\micro\\metre\\per\\second` is "µm/s"."""
    parts = re.findall(r"\\([A-Za-z]+)|([^\\\s{}]+)", unit)
    symbols = [plain or commands.UNITS.get(name, name) for name, plain in parts]
    text = ""
    for symbol in symbols:
        joined = (
            not text
            or text[-1] in "/^"
            or symbol in ("/", "²", "³")
            or (text.split(" ")[-1].split("/")[-1] in commands.PREFIXES and symbol not in commands.PREFIXES)
        )
        text += symbol if joined else " " + symbol
    return text


def tidy(text: str) -> str:
    """Normalises quotes, dashes, blanks and what removed citations and references leave behind."""
    text = (
        text.replace("\r\n", "\n")
        .replace("``", '"')
        .replace("''", '"')
        .replace("”", '"')
        .replace("“", '"')
        .replace("’", "'")
        .replace("‘", "'")
    )
    text = text.replace("`", "'")
    text = text.replace("---", "—").replace("--", "–").replace("\u00a0", " ")
    paragraphs = (re.sub(r"\s+", " ", paragraph).strip() for paragraph in re.split(r"\n[ \t]*\n", text))
    return _BREAK.join(filter(None, map(_tidy_paragraph, paragraphs)))


def _tidy_paragraph(text: str) -> str:
    hole = re.escape(HOLE)
    text = re.sub(rf"\s*\((?:[^()]|\([^()]{{0,40}}\)){{0,200}}?{hole}[^()]{{0,200}}\)", _without_hole, text)
    text = re.sub(
        rf" of (?:the )?(?:figs?|figures?|tables?|secs?|sections?|appendix)\.? ?{hole}(?:\([a-z]\)|[a-z]\b)?(?=[,.;:) ])", "", text
    )
    text = re.sub(
        rf", (?:as )?(?:listed|described|defined|shown|given|detailed|discussed|summari[sz]ed|illustrated|explained|presented|"
        rf"visuali[sz]ed)"
        rf"(?: \([^()]*\))?(?: \w+)? (?:in|by|at) (?:\w+\.? ){{0,2}}{hole}\w?(?P<end>[,.;])",
        lambda m: "" if m.group("end") == "," else m.group("end"), text,
    )  # fmt: skip
    text = re.sub(  # what is shown there is shown
        rf"\b((?:is|are|was|were|be) (?:\w+ly )?(?:shown|plotted|listed|displayed|reported|compared|examined|analy[sz]ed|investigated|"
        rf"validated)(?: more closely| in detail)?) in (?:the )?(?:[Ff]igs?\.?|[Ff]igures?|[Tt]ables?|[Ss]ections?|[Aa]lgorithms?) ?{hole}"
        rf"(?:\([a-z]\)|[a-z]\b)?(?:(?:, and|,| and|–) {hole}(?:\([a-z]\)|[a-z]\b)?)*", r"\1", text,
    )  # fmt: skip
    text = re.sub(
        rf",? (?:see|cf\.?|see also)(?: also)? (?:\w{{3,4}}\. ?)?[^,.;:()]{{0,60}}{hole}[^,.;:()]{{0,40}}(?=[.;]|, and )", "", text
    )
    text = re.sub(
        rf"(?<!\bis)(?<!\bare)(?<!\bwas)(?<!\bwere)(?<!\bbeen)(?<!\bfirst)(?<!ly),? (?:as )?(?:introduced|proposed|presented|"
        rf"developed|studied|reported|suggested|collected|measured|"
        rf"estimated|documented|published|used|discussed|defined|given) (?:in|by) {hole}(?:,? (?:and )?{hole})*(?=[.,;:])", "", text,
    )  # fmt: skip
    text = re.sub(
        r"\s*\[[^\[\]]{0,160}\((?:19|20)\d\d\)[^\[\]]{0,160}\]", "", text
    )  # a reference written out: [J. Fluid Mech. 407, 27 (2000)]
    text = re.sub(r"(?<!\w)\(\s*(?:[;,]\s*)*(?:e\.g\.,?|see(?: also)?|i\.e\.,?|cf\.?)?\s*\)|\[\s*[,;]*\s*\]", "", text)
    text = re.sub(r"\s+([,.;:!?)\]])|(?<=\d)\s+(?=%)", r"\1", text)
    text = re.sub(r"([(\[])\s+", r"\1", text)
    text = re.sub(r",(?:\s*,)+", ",", text)
    return re.sub(r"\s+", " ", text).strip()


def _without_hole(match: re.Match) -> str:
    """A parenthesis that only points elsewhere goes; one that holds a formula's place keeps its hole, so that its sentence is left out."""
    inside = match.group()
    pointing = re.search(
        r"(?i)\b(see|cf|figs?|figures?|eqs?|eqn|equations?|sec|sect|sections?|tables?|tab|appendix|app|refs?|chapter|supplement\w*|"
        r"algorithms?|"
        r"details?|described|discussed|given|shown|available|following|e\.g|i\.e)\b",
        inside,
    )
    if re.search(
        r"(?i)\b(?:eqs?|eqns?|equations?|figs?|figures?|tables?|tab|sec|sections?|algorithms?|appendix)\.?$", match.string[: match.start()]
    ):
        return f" {HOLE}"  # "eq. (3)": the number is the sentence's object
    bare = re.fullmatch(rf"\s*\([\s{HOLE},;–a-zA-Z0-9]{{0,12}}\)", inside)
    return "" if pointing or bare else inside
