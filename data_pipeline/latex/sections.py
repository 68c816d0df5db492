"""A spliced document taken apart: title, abstract, and the sections in their order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from papergym.data_pipeline.latex.macros import DEFINERS, Macro, read_definition
from papergym.data_pipeline.latex.names import ABSTRACTS, APPENDICES, HEADINGS, by_count, names
from papergym.data_pipeline.latex.plain import has_words, to_plain
from papergym.data_pipeline.latex.scanner import ENVIRONMENT, WORD_WITH_AT, Dialect, Source

TITLES = frozenset(("title", "Title", "icmltitle", "papertitle"))
ABSTRACT_COMMANDS = frozenset(("abstract", "Abstract", "abst"))
# Commands about headings, which take one as an argument without making one.
ABOUT_HEADINGS = names("titleformat titlespacing patchcmd pretocmd apptocmd sectionfont protect string noexpand meaning addcontentsline")
# What may stand between \begin{document} and the first sentence, with the number of arguments.
FRONT_MATTER = by_count(
    {
        0: "maketitle linenumbers tableofcontents listoffigures listoftables IEEEpeerreviewmaketitle showyourwork",
        1: "title Title icmltitle icmltitlerunning author Author authors address altaffiliation altaffilmark email "
        "ead date thanks institute keywords keyword preprint pacs received accepted revised published correspondingauthor "
        "corresponding shorttitle shortauthors titlerunning authorrunning authornote orcid collaboration homepage newcounter "
        "stepcounter submitjournal jelclass cortext fntext nonumnote icmlkeywords subjclass dedicatory curraddr urladdr ccsdesc "
        "authorcontributions facilities software printAffiliationsAndNotice pagestyle thispagestyle label bibliographystyle "
        "correspondingauthors",
        2: "affil affiliation altaffiltext markboth setcounter icmlauthor icmlaffiliation icmlcorrespondingauthor",
    }
)
FRONT_ENVIRONMENTS = names("keywords keyword IEEEkeywords CCSXML highlights titlepage aug teaserfigure keypoints")
APPENDIX_TITLE = re.compile(
    r"(?:(?:online |technical )?appendi(?:x|ces)|supplement(?:ary|al)?(?: materials?| information)?)\b.{0,60}", re.IGNORECASE
)
BEGIN_DOCUMENT = re.compile(r"\\begin\s*\{\s*document\s*\}")
MAX_TITLE = 4000


@dataclass(frozen=True)
class Section:
    """A stretch of the paper under one heading.

    title: plain text, "" for what stands before the first heading.
    level: LaTeX's own numbering: 1 for \\section, 2 for \\subsection and so on, -1 for \\part, 0 for \\chapter and for what stands before
        the first heading.
    text: LaTeX without comments up to the next heading of any level.
    appendix: whether the section belongs to an appendix.
    """

    title: str
    level: int
    text: str
    appendix: bool


@dataclass
class Document:
    title: str = ""
    abstract: str = ""
    sections: list[Section] = field(default_factory=list)


@dataclass
class _Heading:
    start: int
    end: int
    title: str
    level: int
    appendix: bool


class _Reader:
    """Walks the document once and notes where things are."""

    def __init__(self, text: str, macros: Mapping[str, Macro], dialect: Dialect):
        self.source, self.macros = Source(text, dialect), macros
        self.headings: list[_Heading] = []
        self.titles: list[tuple[int, str]] = []
        self.maketitle: int | None = None
        self.abstract = ""
        self.removed: list[tuple[int, int]] = []  # the abstract and appendix marks
        self.front: list[tuple[int, int]] = []  # front matter and definitions, which the lead is freed from
        self.body, self.end = 0, len(self.source.text)
        self._has_body = BEGIN_DOCUMENT.search(self.source.text) is not None
        self._appendix = False
        self._abstract_begins: tuple[int, int] | None = None

    def read(self) -> None:
        source, position = self.source, 0
        while match := WORD_WITH_AT.search(source.text, position):
            start, position, name = match.start(), match.end(), match[1]
            if start in source.verbatim:
                position = source.verbatim[start]
            elif name in DEFINERS:
                definition = read_definition(source, name, position)
                if definition:
                    position = definition.end
                    self.front.append((start, position))
            elif name in HEADINGS:
                position = self._heading(name, start, position)
            elif name in ("begin", "end"):
                position = self._environment(name, start, position)
                if position < 0:
                    break
            elif name in TITLES:
                position = self._title(start, position)
            elif name in ABSTRACT_COMMANDS:
                position = self._abstract_command(start, position)
            elif name in APPENDICES:
                self._appendix = True
                self.removed.append((start, position))
            elif name in ABOUT_HEADINGS:
                position = self._about_headings(position)
            elif name in FRONT_MATTER:
                self._front_matter(name, start, position)
        if self._abstract_begins and not self.abstract:
            self._close_abstract(min((h.start for h in self.headings if h.start > self._abstract_begins[0]), default=self.end), 0)

    def _heading(self, name: str, start: int, position: int) -> int:
        source = self.source
        if source.text.startswith("*", source.blanks(position)):
            position = source.blanks(position) + 1
        for _ in range(2):
            if option := source.optional(position):
                position = option[1] + 1
        group = source.group(position)
        if not group:
            opening = source.blanks(position)
            if not source.text.startswith("{", opening):
                return position
            line_end = source.text.find("\n", opening, opening + MAX_TITLE)
            group = (opening + 1, line_end if line_end > 0 else min(opening + MAX_TITLE, len(source.text)))
        first, last = group
        if last - first > MAX_TITLE:
            line_end = source.text.find("\n", first, first + MAX_TITLE)
            last = line_end if line_end > 0 else first + MAX_TITLE
        title = to_plain(source.text[first:last], self.macros)
        if self.body or not self._has_body:
            if APPENDIX_TITLE.fullmatch(title) and HEADINGS[name] <= 1:
                self._appendix = True
            end = last + source.text.startswith("}", last)
            self.headings.append(_Heading(start, end, title, HEADINGS[name], self._appendix))
            return end
        return last

    def _environment(self, name: str, start: int, position: int) -> int:
        """Position to go on from; -1 at the document's end."""
        match = ENVIRONMENT.match(self.source.text, position)
        if not match:
            return position
        environment = match[1]
        if environment == "document":
            if name == "end":
                self.end = start
                return -1
            self.body = match.end()
        elif environment in ABSTRACTS:
            if name == "begin" and not self._abstract_begins:
                self._abstract_begins = (start, match.end())
            elif name == "end" and self._abstract_begins and not self.abstract:
                self._close_abstract(start, match.end() - start)
        elif environment in APPENDICES:
            self._appendix = name == "begin"
            self.removed.append((start, match.end()))
        elif environment in FRONT_ENVIRONMENTS and name == "begin":
            closing = self.source.text.find(f"\\end{{{environment}}}", match.end(), match.end() + 20_000)
            if closing > 0 and not self.headings:
                self.front.append((start, closing + len(f"\\end{{{environment}}}")))
        return match.end()

    def _close_abstract(self, end: int, closing: int) -> None:
        assert self._abstract_begins
        self.abstract = self.source.text[self._abstract_begins[1] : end].strip()
        self.removed.append((self._abstract_begins[0], end + closing))

    def _abstract_command(self, start: int, position: int) -> int:
        """\\abstract{…}; some classes give it several groups, one for each part of a structured abstract."""
        group = self.source.group(position)
        if not group or self.abstract or self._abstract_begins:
            return position
        parts: list[str] = []
        end = position
        while group and len(parts) < 6:
            parts.append(self.source.text[slice(*group)].strip())
            end = group[1] + 1
            group = self.source.group(end)
        self.abstract = "\n\n".join(parts).strip()
        self.removed.append((start, end))
        return end

    def _title(self, start: int, position: int) -> int:
        option = self.source.optional(position)
        group = self.source.group(option[1] + 1 if option else position)
        if not group:
            return position
        self.titles.append((start, to_plain(self.source.text[group[0] : group[1]][:MAX_TITLE], self.macros)))
        self.front.append((start, group[1] + 1))
        return group[1] + 1

    def _about_headings(self, position: int) -> int:
        argument = self.source.argument(self.source.blanks(position))
        return argument[1] if argument else position

    def _front_matter(self, name: str, start: int, position: int) -> None:
        if name == "maketitle" and self.maketitle is None:
            self.maketitle = start
        if self.headings:
            return
        if self.source.text.startswith("*", position):
            position += 1
        for _ in range(max(FRONT_MATTER[name], 1)):
            if option := self.source.optional(position):
                position = option[1] + 1
            group = self.source.group(position) if FRONT_MATTER[name] else None
            if group:
                position = group[1] + 1
        self.front.append((start, position))


def read_document(text: str, macros: Mapping[str, Macro], dialect: Dialect) -> Document:
    """Takes a spliced document apart. Sections without a word in front of the first heading are left out."""
    reader = _Reader(text, macros, dialect)
    reader.read()
    document = Document(title=_title(reader))
    document.abstract = _abstract_text(reader.abstract, macros)
    first = reader.headings[0].start if reader.headings else reader.end
    lead = _without(reader.source.text, _lead_start(reader, first), first, [*reader.removed, *reader.front]).strip()
    if has_words(lead):
        document.sections.append(Section("", 0, lead, False))
    for index, heading in enumerate(reader.headings):
        end = reader.headings[index + 1].start if index + 1 < len(reader.headings) else reader.end
        content = _without(reader.source.text, heading.end, end, reader.removed).strip()
        document.sections.append(Section(heading.title, heading.level, content, heading.appendix))
    if not document.abstract:
        _abstract_from_section(document)
    return document


def _title(reader: _Reader) -> str:
    """The last title before \\maketitle, as in LaTeX; else the first."""
    titles = [(start, title) for start, title in reader.titles if title]
    before = [title for start, title in titles if reader.maketitle is not None and start < reader.maketitle]
    return before[-1] if before else titles[0][1] if titles else ""


def _lead_start(reader: _Reader, first: int) -> int:
    return reader.maketitle if reader.maketitle is not None and reader.body <= reader.maketitle < first else min(reader.body, first)


def _abstract_text(text: str, macros: Mapping[str, Macro]) -> str:
    """The abstract's LaTeX; when it is but one of the paper's commands, what that stands for."""
    for _ in range(4):
        match = re.fullmatch(r"\{?\\([A-Za-z@]+)\s*(?:\{\})?\}?", text)
        macro = macros.get(match[1]) if match else None
        if not macro or macro.parameters:
            break
        text = macro.body.strip()
    return text


def _abstract_from_section(document: Document) -> None:
    """\\section*{Abstract} in place of the environment."""
    for index, section in enumerate(document.sections[:3]):
        if section.title.rstrip(".:").casefold() in ("abstract", "summary") and section.text:
            document.abstract = section.text
            del document.sections[index]
            return


def _without(text: str, start: int, end: int, spans: list[tuple[int, int]]) -> str:
    """text[start:end] without the spans that begin inside it."""
    parts, position = [], start
    for first, last in sorted(span for span in spans if start <= span[0] < end):
        if first >= position:
            parts.append(text[position:first])
        position = max(position, last)
    parts.append(text[position:end])
    return "".join(parts)
