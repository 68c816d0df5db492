"""Papers and questions that are the same, or nearly: MinHash over shingles finds candidates, the exact similarity decides.

The similarity of two texts is the Jaccard index of their sets of shingles, three consecutive words. Shingles that many texts hold, as the
closing line of questions made by one program, do not count. A pair as similar as the threshold is missed with a chance below 1 in 1,000;
nothing that is less similar is ever reported.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from papergym.environment import STAGES, Environment
from papergym.errors import InputError

SIMILARITY = 0.5
SHINGLE = 3  # words
PERMUTATIONS = 256
COMMON, LEAST_COMMON = 0.05, 10  # a shingle does not count that more than this share of the texts hold, and more than this number
_MISSED = 1e-3
_WORD = re.compile(r"\w+")


class Link(NamedTuple):
    """Two environments, by their places in a sequence, first < second, whose paper, source file or question is the same or alike."""

    first: int
    second: int
    kind: str  # "paper", "source" or "question"
    similarity: float  # 1 for the same


def shingles(text: str) -> frozenset[str]:
    """Runs of SHINGLE words, case-folded; a shorter text is one shingle."""
    words = _WORD.findall(text.casefold())
    return frozenset(" ".join(words[start : start + SHINGLE]) for start in range(max(1, len(words) - SHINGLE + 1)))


def near_duplicates(texts: Sequence[str | None], similarity: float = SIMILARITY) -> list[tuple[int, int, float]]:
    """(i, j, similarity) of texts alike at least so far, i < j, in order; of equal ones each with the first only. None is like nothing.

    Raises InputError without datasketch and for a similarity outside (0, 1].
    """
    if not 0 < similarity <= 1:
        raise InputError(f"similarity {similarity}: a number above 0, up to 1, is needed")
    pairs: list[tuple[int, int, float]] = []
    first_with: dict[frozenset[str], int] = {}
    for place, text in enumerate(texts):
        if text is not None and (first := first_with.setdefault(shingles(text), place)) != place:
            pairs.append((first, place, 1.0))
    distinct = list(zip(first_with.values(), _telling(list(first_with)), strict=True))
    if similarity < 1:
        for one, other in _candidates([found for _, found in distinct], similarity):
            (first, a), (second, b) = distinct[one], distinct[other]
            alike = len(a & b) / len(a | b)
            if alike >= similarity:
                pairs.append((first, second, alike))
    return sorted(pairs)


def links(environments: Sequence[Environment], similarity: float | None = None) -> list[Link]:
    """Environments of the same paper (provenance.paper or sha256) or with the same question, each linked with the first of its kind.

    similarity: link also those whose questions, or whose papers' stages (else references), are alike at least so far; needs datasketch.
    """
    found: list[Link] = []
    for kind, keys in (
        ("paper", [_text(e.provenance.get("paper")) for e in environments]),
        ("source", [_text(e.provenance.get("sha256")) for e in environments]),
        ("question", [" ".join(_WORD.findall(e.question.casefold())) for e in environments]),
    ):
        first_with: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key and (first := first_with.setdefault(key, place)) != place:
                found.append(Link(first, place, kind, 1.0))
    if similarity is not None:
        for kind, texts in (("question", [e.question for e in environments]), ("paper", [paper_text(e) for e in environments])):
            found += [Link(i, j, kind, alike) for i, j, alike in near_duplicates(texts, similarity)]
    return sorted(set(found))


def groups(count: int, linked: Sequence[Link]) -> list[int]:
    """The group of each of `count` environments: the place of its first member. Linked ones, also through others, share a group."""
    parent = list(range(count))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for link in linked:
        one, other = sorted((root(link.first), root(link.second)))
        parent[other] = one
    return [root(place) for place in range(count)]


def paper_text(environment: Environment) -> str | None:
    """What an environment tells of its paper: the four stages, else the reference, else None."""
    if environment.stages is not None:
        return "\n".join(environment.stages[name] for name in STAGES)
    return environment.reference


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _telling(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """The sets without common shingles; the whole set where these are most of it, as they are when many texts are alike."""
    held_by = Counter(shingle for found in sets for shingle in found)
    common = {shingle for shingle, count in held_by.items() if count > max(LEAST_COMMON, COMMON * len(sets))}
    return [found - common if 2 * len(found & common) < len(found) else found for found in sets]


def _candidates(sets: Sequence[frozenset[str]], similarity: float) -> Iterator[tuple[int, int]]:
    """Pairs i < j that share a band of their MinHash signatures."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as error:
        raise InputError("near-duplicates need the package datasketch: pip install datasketch") from error
    index = MinHashLSH(num_perm=PERMUTATIONS, params=_bands(similarity))
    for place, found in enumerate(sets):
        signature = MinHash(PERMUTATIONS, hashfunc=_hash)
        signature.update_batch([shingle.encode() for shingle in sorted(found)])
        for other in sorted(index.query(signature)):
            yield other, place
        index.insert(place, signature)


def _hash(shingle: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(shingle, digest_size=4).digest(), "little")


def _bands(similarity: float) -> tuple[int, int]:
    """(bands, rows): the most rows a band with which two texts as similar as this share one with a chance of 1 - _MISSED."""
    for rows in range(PERMUTATIONS, 1, -1):
        bands = PERMUTATIONS // rows
        if (1 - similarity**rows) ** bands <= _MISSED:
            return bands, rows
    return PERMUTATIONS, 1
