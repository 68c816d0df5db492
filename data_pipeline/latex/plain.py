"""A title's LaTeX as plain text: accents composed, commands undone, notes and labels left out, Greek letters as letters."""

import re
import unicodedata
from collections.abc import Mapping

from papergym.data_pipeline.latex.macros import DEFINERS, Macro, read_arguments, read_definition, substitute
from papergym.data_pipeline.latex.names import by_count
from papergym.data_pipeline.latex.scanner import Dialect, Source

SPECIAL = re.compile(r"\\([A-Za-z@]+|.|\Z)|[{}$~^_&]|---?|``|''|`|'|\s+", re.DOTALL)
ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", "=": "\u0304", "u": "\u0306", ".": "\u0307", '"': "\u0308", "r": "\u030a",
    "H": "\u030b", "v": "\u030c", "d": "\u0323", "c": "\u0327", "k": "\u0328", "b": "\u0331",
}  # fmt: skip
SYMBOLS = {
    "aa": "å", "AA": "Å", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ss": "ß", "i": "i", "j": "j",
    "dh": "ð", "DH": "Ð", "th": "þ", "TH": "Þ", "LaTeX": "LaTeX", "TeX": "TeX", "BibTeX": "BibTeX", "ldots": "…", "dots": "…", "cdots": "⋯",
    "textendash": "–", "textemdash": "—", "textquoteright": "’", "textquoteleft": "‘", "textasciitilde": "~", "textbackslash": "\\",
    "textdegree": "°", "degree": "°", "texttrademark": "™", "copyright": "©", "S": "§", "P": "¶", "pounds": "£", "euro": "€", "textmu": "µ",
    "times": "×", "cdot": "·", "pm": "±", "mp": "∓", "sim": "∼", "approx": "≈", "neq": "≠", "ne": "≠", "leq": "≤", "le": "≤", "geq": "≥",
    "ge": "≥", "ll": "≪", "gg": "≫", "equiv": "≡", "propto": "∝", "infty": "∞", "to": "→", "rightarrow": "→", "leftarrow": "←",
    "Rightarrow": "⇒", "leftrightarrow": "↔", "in": "∈", "subset": "⊂", "cup": "∪", "cap": "∩", "partial": "∂", "nabla": "∇", "sum": "∑",
    "int": "∫", "prod": "∏", "sqrt": "√", "star": "⋆", "ast": "∗", "circ": "∘", "bullet": "•", "dagger": "†", "ell": "ℓ", "hbar": "ℏ",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ",
    "vartheta": "ϑ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "varrho": "ϱ",
    "sigma": "σ", "varsigma": "ς", "tau": "τ", "upsilon": "υ", "phi": "φ", "varphi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
    "Gamma": "Γ",
    "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ", "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
    "lbrace": "{", "rbrace": "}", "textbar": "|", "vert": "|", "textunderscore": "_", "textless": "<", "textgreater": ">", "slash": "/",
    "newline": " ", "linebreak": " ", "quad": " ", "qquad": " ", "space": " ", "par": " ", "hfill": " ", "hfil": " ", "break": " ",
}  # fmt: skip
# Commands whose arguments are no part of the text, with the number of arguments.
SILENT = by_count(
    {
        0: "footnotemark vskip hskip phantomsection subtitle",
        1: "label thanks footnote footnotetext vspace hspace cite citep citet ref eqref pageref cref Cref autoref index color "
        "includegraphics includepdf orcidlink tnoteref titlenote phantom hypertarget linespread raisebox todo marginpar markright "
        "vphantom hphantom selectlanguage begin end fontfamily pagestyle thispagestyle bibliography bibliographystyle tnotetext "
        "corref pagenumbering titlerunning nocite input include enlargethispage setstretch",
        2: "fontsize setlength addtolength setcounter addtocounter markboth pdfbookmark",
        3: "addcontentsline",
    }
)
SECOND = {"texorpdfstring": 2, "href": 2, "textcolor": 2, "colorbox": 2, "hyperref": 1, "foreignlanguage": 2, "scalebox": 2, "resizebox": 3}
MAX_PLAIN = 20_000  # characters of LaTeX that are looked at
EXPANSION_COST = 200  # characters


def to_plain(latex: str, macros: Mapping[str, Macro] | None = None) -> str:
    """Plain text, on one line. The paper's own commands are expanded where they have a definition. Never raises."""
    parts: list[str] = []
    frames = [[Source(latex[:MAX_PLAIN], Dialect()), 0, ""]]
    left = MAX_PLAIN
    while frames:
        source, position, accent = frames[-1]
        text = source.text
        match = SPECIAL.search(text, position)
        literal = text[position : match.start() if match else len(text)]
        if literal:
            left -= len(literal)
            parts.append(literal)
        if not match or left < 0:
            frames.pop()
            if accent:
                parts[-1:] = [_accented(parts[-1], accent)] if parts else []
            continue
        if match.start() in source.verbatim:
            end = source.verbatim[match.start()]
            if match[1] == "href":
                frames[-1][1] = end
            else:
                parts.append(_verbatim_content(text[match.start() : end]))
                frames[-1][1] = end
            continue
        frames[-1][1] = match.end()
        left -= 1
        name = match[1]
        if name is None:
            parts.append(_character(match[0]))
            continue
        inner = _command(name, source, frames[-1], macros or {}, parts)
        if inner is not None and len(frames) < 60:
            left -= len(inner[0]) + EXPANSION_COST
            frames.append([Source(inner[0], Dialect()), 0, inner[1]])
    return unicodedata.normalize("NFC", re.sub(r"\s+", " ", "".join(parts))).strip()


def _command(name: str, source: Source, frame: list, macros: Mapping[str, Macro], parts: list[str]) -> tuple[str, str] | None:
    """Writes what a command stands for, moves the frame past its arguments, and returns text still to be read, with its accent."""
    position = frame[1]
    if name in ("\\", ",", ";", ":", " ", "\n", "\t", ">"):
        option = source.optional(position) if name == "\\" else None
        frame[1] = option[1] + 1 if option else position
        parts.append(" ")
    elif name in ("(", ")", "[", "]", "!", "/", "-", "", "@"):
        pass
    elif name in ("{", "}", "%", "&", "$", "#", "_", "|"):
        parts.append("‖" if name == "|" else name)
    elif name in macros and (found := read_arguments(macros[name], source, position)):
        frame[1] = found[1]
        return substitute(macros[name].body, found[0]), ""
    elif name in ACCENTS and (argument := source.argument(position)):
        frame[1] = argument[1]
        return argument[0], ACCENTS[name]
    elif name in SYMBOLS:
        parts.append(SYMBOLS[name])
        frame[1] = _past_space(source, position, name)
    elif name in SECOND:
        frame[1] = _past_arguments(source, position, SECOND[name] - 1)
    elif name in DEFINERS and (definition := read_definition(source, name, position)):
        frame[1] = definition.end
    elif name in SILENT:
        frame[1] = _past_arguments(source, position, SILENT[name])
    else:
        frame[1] = _past_space(source, position, name)
    return None


def _past_space(source: Source, position: int, name: str) -> int:
    """TeX skips the spaces behind a command made of letters."""
    return source.blanks(position) if name.isalpha() else position


def _past_arguments(source: Source, position: int, count: int) -> int:
    if source.text.startswith("*", position):
        position += 1
    while option := source.optional(position):
        position = option[1] + 1
    for _ in range(count):
        group = source.group(position)
        if not group:
            break
        position = group[1] + 1
    return position


def _verbatim_content(text: str) -> str:
    match = re.match(r"\\[A-Za-z]+\*?\s*(?:\[[^\]]*\])?(.)", text, re.DOTALL)
    return text[match.end() : -1] if match and not text.startswith("\\begin") else ""


def _character(text: str) -> str:
    quotes = {"``": "“", "''": "”", "`": "‘", "'": "’", "---": "—", "--": "–", "~": " ", "&": " "}
    if text in quotes:
        return quotes[text]
    return "" if text in "{}$" else text if text in "^_" else " "


def _accented(text: str, accent: str) -> str:
    return text[:1] + accent + text[1:]


def has_words(latex: str) -> bool:
    """Whether anything would be left to read in plain text."""
    return bool(re.search(r"[^\W\d_]{2}", to_plain(latex)))
