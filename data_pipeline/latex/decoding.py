"""Bytes to text: UTF-8 where it is UTF-8, line by line; else the declared or the likeliest single-byte encoding; newlines become LF."""

import codecs
import re

# Names that inputenc, inputenx and luainputenc know, by the Python codec that is a superset of each.
DECLARED = {
    "latin1": "cp1252", "ansinew": "cp1252", "cp1252": "cp1252", "latin9": "iso8859-15", "latin2": "iso8859-2", "latin3": "iso8859-3",
    "latin4": "iso8859-4", "latin5": "iso8859-9", "latin10": "iso8859-16", "applemac": "mac_roman", "macce": "mac_latin2",
    "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1257": "cp1257", "cp437": "cp437", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "koi8-r": "koi8_r",
    "koi8-u": "koi8_u",
    "iso-8859-5": "iso8859-5", "utf8": "utf-8", "utf8x": "utf-8",
}  # fmt: skip
CYRILLIC = frozenset(("cp1251", "cp866", "koi8_r", "koi8_u", "iso8859-5"))
COMMON_LETTERS = frozenset("éèêëàâáäöüßñçíóúôîïûùãåæøœ")
CONTRACTION = re.compile(r"’(?:s|t|re|ll|ve|d|m)\b")
DECLARATION = re.compile(
    rb"\\usepackage\s*\[([A-Za-z0-9-]{1,20})\]\s*\{(?:lua)?input(?:enc|enx)\}|\\inputencoding\s*\{([A-Za-z0-9-]{1,20})\}"
)


def is_binary(data: bytes) -> bool:
    """Whether the bytes are no text: NUL characters without a UTF-16 mark, or mostly control characters."""
    head = data[:8192].rstrip(b"\0")  # some programs fill a file up with them
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    controls = len(head) - len(head.translate(None, bytes(range(1, 9)) + bytes(range(14, 27)) + bytes(range(28, 32)) + b"\x7f"))
    return b"\0" in head or controls > 0.1 * len(head)


def declared_encoding(data: bytes) -> str | None:
    """The codec that the file's own inputenc line asks for, if it has one that is known."""
    match = next((found for found in DECLARATION.finditer(data) if not _in_comment(data, found.start())), None)
    name = (match[1] or match[2]).decode("ascii").lower() if match else ""
    return DECLARED.get(name)


def _in_comment(data: bytes, position: int) -> bool:
    line = max(data.rfind(b"\n", 0, position), data.rfind(b"\r", 0, position)) + 1
    return b"%" in data[line:position].replace(b"\\%", b"")


def decode(data: bytes, declared: str | None = None) -> str:
    """Text of a LaTeX file, never failing: a wrong declaration is overruled by valid UTF-8 or by what reads as words."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _line_feeds(data.decode("utf-16", "replace"))
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\r\n", b"\n").replace(b"\r\n", b"\n")
    data = data.replace(b"\r", b"\n").replace(b"\0", b" ")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    lines: list[str | bytes] = []
    for line in data.split(b"\n"):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(line)
    codec = _likeliest(b"\n".join(line for line in lines if isinstance(line, bytes)), declared)
    return "\n".join(line.decode(codec, "replace") if isinstance(line, bytes) else line for line in lines)


def _line_feeds(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", " ")


def _likeliest(sample: bytes, declared: str | None) -> str:
    """The declared codec or whichever of Windows-1252 and Mac Roman gives the more plausible letters; the first wins a draw."""
    sample = sample[:200_000]
    western = declared is None or declared in ("utf-8", "cp1252", "mac_roman")
    if not western and not (declared in CYRILLIC and _mixes_scripts(sample.decode(declared, "replace"))):
        return declared
    codecs_in_order = ["mac_roman", "cp1252"] if declared == "mac_roman" else ["cp1252", "mac_roman"]
    return max(codecs_in_order, key=lambda codec: _plausibility(sample.decode(codec, "replace")))


def _mixes_scripts(text: str) -> bool:
    """Whether a Cyrillic encoding's characters stand mostly alone beside Latin letters, as where Latin text was taken for Cyrillic."""
    return len(re.findall(r"[a-zA-Z][^\x00-\x7f]|[^\x00-\x7f][a-zA-Z]", text)) > len(re.findall(r"[\u0400-\u04ff]{2}", text))


def _plausibility(text: str) -> int:
    """Rewards accented lower-case letters inside words, and quotes and dashes where they belong; punishes what stands where it doesn't."""
    score = 0
    for match in re.finditer(r"[^\x00-\x7f]", text):
        character, at = match[0], match.start()
        before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
        beside = before.isalpha() or after.isalpha()
        if character == "\ufffd":
            score -= 3
        elif character in "“‘":
            score += 3 if not before.isalnum() and after.isalnum() else 1
        elif character == "”":
            score += 3 if not before.isspace() and not after.isalnum() else 1
        elif character == "’":
            score += 3 if CONTRACTION.match(text, at) or not after.isalnum() else 1
        elif character in "–—":
            score += 1 if before.isalpha() and after.isalpha() else 3
        elif character in "…«»":
            score += 1
        elif character.islower():
            score += (2 if character in COMMON_LETTERS else 1) if beside else -1
        elif before.islower() or (before.isalpha() and not character.isalpha()):
            score -= 2
    return score
