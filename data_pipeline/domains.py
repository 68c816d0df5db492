"""A paper's domain: what its sidecar says, else the field whose words it uses most."""

import re
import tomllib
from pathlib import Path
from typing import Any

from papergym.errors import InputError

SIDECAR = "paper.toml"
OTHER = "other"
# Words that one field uses and the others hardly do. A domain wins with at least MIN_HITS hits and more than any other.
_KEYWORDS = {
    "cs": "neural|dataset|benchmark|compiler|classifier|language model|machine learning|training data|runtime|source code|github|"
    "python|programming|"
    "query|queries|network traffic|latency|cache|encoder|transformer|robot|user study|open[- ]source|api|gpu|test suite|accuracy",
    "physics": "stars?\\b|stellar|galax|telescope|photometr|spectr|orbit|quantum|qubit|photon|electron|magnetic|viscous|viscosity|"
    "reynolds|turbulen|droplet|fluid|plasma|"
    "particle|lattice|phonon|scattering|laser|superconduct|thermal|kinetic energy|grains?|granular|cosmolog|planet|comet|astronom",
    "econ": "econom|consumption|household|welfare|wage|labou?r market|fiscal|monetary|inflation|unemployment|gdp|tax|procurement|"
    "auction|bidder|firm|supplier|payoff|"
    "incentive|subsid|income|price|trade credit|equilibrium|stimulus|game theor|prisoner's dilemma|marginal propensity|"
    "treatment effect|regression discontinuity",
}
MIN_HITS = 5


def guess_domain(text: str) -> str:
    """Returns "cs", "physics", "econ" or "other" by counting keywords in plain text; a tie is "other"."""
    lowered = text.lower()
    hits = sorted(((len(re.findall(rf"\b(?:{words})", lowered)), domain) for domain, words in _KEYWORDS.items()), reverse=True)
    return hits[0][1] if hits[0][0] >= MIN_HITS and hits[0][0] > hits[1][0] else OTHER


def read_sidecar(paper: Path) -> dict[str, Any]:
    """Returns the table of `paper.toml` in a paper's folder, or of NAME.toml beside a paper that is one file; {} where there is none.

    Raises InputError when the file isn't TOML, or when `domain`, `date` or `split` isn't a string or a date.
    """
    path = paper / SIDECAR if paper.is_dir() else paper.with_name(paper.name + ".toml")
    if not path.is_file():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error})") from error
    if "date" in table and hasattr(table["date"], "isoformat"):
        table["date"] = table["date"].isoformat()
    for key in ("domain", "date", "split"):
        if key in table and (not isinstance(table[key], str) or not table[key].strip()):
            raise InputError(f"{path}, {key}: a non-empty string is needed, not {table[key]!r}")
    return table
