"""Abbreviations: found where a paper defines them, spelled out where a text meets them first."""

import re
from collections.abc import Mapping


def find_abbreviations(text: str) -> dict[str, str]:
    """Short form -> long form for every "long form (SF)" whose initials fit (after Schwartz and Hearst, 2003, restricted to initials)."""
    found: dict[str, str] = {}
    for match in re.finditer(r"((?:[\w'-]+ ){1,8})\(([A-Z][A-Za-z-]{1,7}?)(s?)[);,]", text):
        words, short = match.group(1).split(), match.group(2)
        letters = [letter.lower() for letter in short if letter.isalpha()]
        for start in range(len(words) - 1, -1, -1):
            initials = [
                part[0].lower()
                for word in words[start:]
                for part in word.split("-")
                if part and part.lower() not in ("of", "the", "and", "for")
            ]
            if initials == letters and words[start].lower() not in ("of", "the", "and", "for"):
                long = " ".join(words[start:])
                long = long[0].lower() + long[1:] if long[1:].islower() else long
                found.setdefault(short, long.removesuffix("s") if match.group(3) and not long.endswith("ss") else long)
                break
    return found


def spell_out(text: str, abbreviations: Mapping[str, str]) -> str:
    """Writes each abbreviation out where it first stands, unless its long form is there already."""
    for short, long in abbreviations.items():
        if long.lower() not in text.lower():
            pattern = rf"(?<![\w-]){re.escape(short)}(?P<plural>s?)(?![\w-])"
            text = re.sub(pattern, rf"{long}\g<plural> ({short}\g<plural>)", text, count=1)
    return text
