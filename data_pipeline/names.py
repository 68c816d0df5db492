"""Names that a paper gives to its own work. No plan can know them, so questions and criteria speak of "the method", "the benchmark", ..."""

import re
from collections.abc import Iterable, Mapping

from papergym.data_pipeline.english import STOP_WORDS

KINDS = (
    "framework|benchmark|method|tool|package|library|system|algorithm|approach|model|toolkit|corpus|dataset|data set|compiler|solver|"
    "scheduler|policy|controller|procedure|protocol|architecture|network|platform|simulator|language|scheme|test|estimator|code|marketplace|service"
)
_NAME = r"[\"']?([A-Za-z][\w+]*)[\"']?(?![\w-])"
_GIVES = "introduce|present|propose|develop|describe|report|release|build|built"
# A name given outright may be any word; elsewhere it must look like a name.
_OUTRIGHT = re.compile(
    rf"\b[Ww]e (?:call|name|dub|term) (?:our|the|this) (?:\w+ ){{0,2}}?(?:{KINDS})s?(?: and its \w+)? {_NAME}(?=[.,;:)]| and| to\b)"
)
_GIVEN = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?:which|that) (?:we|I) (?:have )?(?:call|name|dub|term)(?:d|ed|bed)? {_NAME}",
        rf"\b(?:[Ww]e|[Pp]aper|work) (?:\w+ly )?(?:{_GIVES})s? "
        rf"(?:(?! and )[^.;,]){{0,100}}?\b(?:{KINDS})s?,? (?:called|named|dubbed|termed) {_NAME}",
        rf"\b[Ww]e (?:here )?(?:{_GIVES}) {_NAME}",
        rf"\b[Oo]ur (?:[\w-]+ ){{0,3}}?(?:{KINDS}),? {_NAME}",
    )
)
_TYPESET = re.compile(r"\s*\\(?:textsf|textsc|texttt|textit|textbf|textrm|emph|mbox)\{([A-Z]\w{3,})\}\s*(?:\\xspace)?\s*$")
_PREPOSITIONS = "by|of|with|in|using|for|from|and|to"
_NOUN = rf"(?!(?:{'|'.join(sorted(STOP_WORDS))})\b)[a-z][\w-]+"
_TITLED = re.compile(r"^[\"']?(?P<name>[A-Z][\w+-]*)[\"']?:\s")
_SUBJECT = re.compile(r"\b(?P<kind>[A-Za-z]+): (?P<name>[\w'/-]*\d?[A-Z][\w'/-]*[A-Z\d][\w'/-]*)$")


def coined_names(title: str, text: str, macros: Iterable[str] = ()) -> dict[str, str]:
    """Returns the names that a paper gives to its own work or object, each with the noun that can stand for it: {"Foo": "solver"}.

    macros: the bodies of the paper's own commands; one that only sets a name in type (\\textsf{Foo}) tells a name.
    """
    found: dict[str, str] = {}
    for name in (match.group(1) for body in macros if (match := _TYPESET.match(body))):
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            found[name] = _kind(name, text)
    if match := _TITLED.match(title):
        name = match.group("name")
        if re.search("[a-z][A-Z]", name) or not re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", text):
            found[name] = _kind(name, text)
    if match := _SUBJECT.search(title):  # "a third interstellar object: 3I/ATLAS"
        found[match.group("name")] = match.group("kind").lower()
    for name in _OUTRIGHT.findall(text):
        found.setdefault(name, _kind(name, text))
    for name in (name for pattern in _GIVEN for name in pattern.findall(text)):
        if re.search(r"^[A-Z]\w*[A-Z]|[a-z][A-Z]", name) and re.search("[a-z]", name):
            found.setdefault(name, _kind(name, text))
    return found


def _kind(name: str, text: str) -> str:
    escaped = re.escape(name)
    after = re.search(rf"(?<![\w-]){escaped}[\"']?,?[\"']? (?:is |was |, )?(?:an?|our|the) [^.;]{{0,80}}?\b({KINDS})\b", text)
    before = re.search(rf"\b({KINDS})s?,? (?:(?:which|that) (?:we|I) \w+ |called |named |dubbed )?[\"']?{escaped}(?![\w-])", text)
    match = after or before
    return match.group(1) if match else "method"


def is_named(text: str, names: Mapping[str, str]) -> bool:
    return any(re.search(rf"(?<![\w/-]){re.escape(name)}(?!\w)", text) for name in names)


def without_names(text: str, names: Mapping[str, str]) -> str | None:
    """The text with each name as "the method"; a mere epithet ("the Foo kernel") goes. None when a name lives on in another (Foo-Mini)."""
    for name, kind in names.items():
        escaped = re.escape(name)
        if re.search(rf"(?<![\w/]){escaped}-(?=\w)|[\w/.]{escaped}|{escaped}[./_(]\w", text):
            return None
        if re.search(rf"\b[Aa]n? {escaped} (?={_NOUN})", text):  # "a Foo process": of which kind, only the paper says
            return None
        text = re.sub(rf"\b(the|this|these|each|our|any|every) {escaped} (?={_NOUN})", r"\1 ", text, flags=re.IGNORECASE)
        text = re.sub(rf"\b({_PREPOSITIONS}) {escaped} (?={_NOUN})", rf"\1 the {kind}'s ", text)
        text = re.sub(rf"\b[Tt]he {escaped}(?!\w)", f"the {kind}", text)
        text = re.sub(rf"(?<![\w/-])[\"']?{escaped}[\"']?(?!\w)", f"the {kind}", text)
        text = re.sub(rf"\bthe {kind} {kind}\b", f"the {kind}", text)
    return text[:1].upper() + text[1:]
