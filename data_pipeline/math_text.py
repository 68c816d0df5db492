"""Inline LaTeX mathematics as readable plain text: `D_\\text{max}/D_0 \\sim Re^{1/5}` is "D_max/D_0 ~ Re^(1/5)"."""

import re
import unicodedata

from papergym.data_pipeline.words import words

HOLE = "\ufffc"  # stands where something can't be said in plain text (a reference, a matrix): its sentence is left out, never bent
DISPLAY = "\ufff9"  # stands where a displayed formula was

_TOKEN = re.compile(r"\\[A-Za-z@]+\*?|\\.|[{}^_&~]|\s+|.", re.S)
_GREEK = words("alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega")
_SYMBOLS = {name: unicodedata.lookup(f"GREEK SMALL LETTER {name.replace('lambda', 'lamda').upper()}") for name in _GREEK}
_SYMBOLS |= {name.title(): unicodedata.lookup(f"GREEK CAPITAL LETTER {name.replace('lambda', 'lamda').upper()}") for name in _GREEK}
_SYMBOLS |= {f"var{name}": _SYMBOLS[name] for name in ("epsilon", "theta", "phi", "rho", "sigma", "kappa", "pi")}
_SYMBOLS |= {
    "infty": "∞", "partial": "∂", "nabla": "∇", "ell": "l", "hbar": "ħ", "emptyset": "∅", "varnothing": "∅", "forall": "for all ",
    "exists": "there is ", "degree": "°", "circ": "°", "prime": "'", "dagger": "†", "star": "*", "ast": "*", "bullet": "•", "cdot": "·",
    "pm": "±", "mp": "∓", "sum": "∑", "prod": "∏", "int": "∫", "langle": "<", "rangle": ">", "lfloor": "⌊", "rfloor": "⌋",
    "lceil": "⌈", "rceil": "⌉", "mid": " | ", "vert": "|", "Vert": "‖", "|": "‖", "%": "%", "&": "&", "#": "#", "$": "$", "_": "_",
    "{": "{", "}": "}", "colon": ": ", "setminus": " \\ ", "top": "T", "odot": "⊙", "oplus": "⊕", "otimes": "⊗", "AA": "Å", "l": "ł",
    "ldots": "...", "dots": "...", "cdots": "...", "lbrace": "{", "rbrace": "}", "farcs": "″", "arcsec": "″", "arcmin": "′", "S": "§",
}  # fmt: skip
_RELATIONS = {
    "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "neq": "≠", "ne": "≠", "approx": "≈", "simeq": "≈",
    "sim": "~", "equiv": "≡", "propto": "∝", "ll": "≪", "gg": "≫", "in": "∈", "notin": "∉", "subset": "⊂", "subseteq": "⊆", "cup": "∪",
    "cap": "∩", "to": "→", "rightarrow": "→", "leftarrow": "←", "mapsto": "→", "Rightarrow": "⇒", "times": "×", "lesssim": "≲",
    "gtrsim": "≳", "lt": "<", "gt": ">", "cong": "≅", "perp": "⊥", "parallel": "∥", "div": "÷", "wedge": "∧", "vee": "∨", "implies": "⇒",
    "iff": "⇔", "leftrightarrow": "↔", "longrightarrow": "→", "triangleq": "≡", "coloneqq": ":=", "bmod": "mod", "gets": "←",
}  # fmt: skip
_OPERATORS = words(
    "log ln exp sin cos tan sinh cosh tanh arcsin arccos arctan max min sup inf lim argmax argmin det tr dim ker Pr gcd deg arg"
)
_ACCENTS = {
    "hat": "\u0302", "widehat": "\u0302", "tilde": "\u0303", "widetilde": "\u0303", "bar": "\u0304", "overline": "\u0304",
    "dot": "\u0307", "ddot": "\u0308", "vec": "\u20d7",
}  # fmt: skip
_IGNORED = words(
    "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr limits nolimits displaystyle textstyle scriptstyle mathrm mathbf mathit "
    "mathsf mathtt mathcal mathbb mathfrak mathscr boldsymbol bm bf rm it text textrm textbf textit textsf texttt textnormal mbox hbox "
    "ensuremath operatorname mathop mathrel mathbin mathord normalfont em emph boldmath pmb boxed mathsurround protect textsc "
    "qquad quad xspace nonumber notag"
)
_SPACES = {",", ";", ":", "!", ">", " ", "\\", "quad", "qquad", "thinspace", "enspace", "hspace", "vspace"}
_DEPTH = 12  # nesting of arguments; deeper is not something to read aloud


def math_text(source: str, depth: int = 0) -> str:
    """Returns the plain text of an inline formula; HOLE stands for what has none (matrices, unknown commands)."""
    if depth > _DEPTH or "\\begin" in source:
        return HOLE
    out, position = [], 0
    while position < len(source):
        token, position = _next(source, position)
        if token.isspace() or token == "~":
            out.append(" ")
        elif token == "{" and source.startswith(",}", position):  # 1{,}000
            out.append(",")
            position += 2
        elif token in "{}&":
            continue
        elif token in "^_":
            argument, position = read_script(source, position)
            out.append(_script(token, math_text(argument, depth + 1)))
        elif token in "=<>":
            out.append(f" {token} ")
        elif token == ",":
            out.append("," if depth else ", ")
        elif token[0] == "\\":
            text, position = _command(token[1:].rstrip("*"), source, position, depth)
            out.append(text)
        else:
            out.append(token)
    text = re.sub(r" +([,;)\]])", r"\1", re.sub(r"\s+", " ", "".join(out)))
    return text.strip() if depth else text  # a thin space at an edge separates a number from its unit


def _command(name: str, source: str, position: int, depth: int) -> tuple[str, int]:
    def argument(position: int) -> tuple[str, int]:
        text, position = read_script(source, position)
        return math_text(text, depth + 1), position

    if name in _SYMBOLS:
        return _SYMBOLS[name], position
    if name in _RELATIONS:
        return f" {_RELATIONS[name]} ", position
    if name in _OPERATORS:
        return f"{name} " if source[position : position + 1].isspace() or source[position : position + 1] == "\\" else name, position
    if name in ("frac", "tfrac", "dfrac", "nicefrac", "sfrac"):
        numerator, position = argument(position)
        denominator, position = argument(position)
        return f"{_grouped(numerator)}/{_grouped(denominator)}", position
    if name in ("binom", "tbinom", "dbinom"):
        upper, position = argument(position)
        lower, position = argument(position)
        return f"({upper} choose {lower})", position
    if name == "sqrt":
        inside, position = argument(position)
        return f"sqrt({inside})", position
    if name in _ACCENTS:
        inside, position = argument(position)
        return unicodedata.normalize("NFC", inside + _ACCENTS[name]) if len(inside) == 1 else inside, position
    if name in ("hspace", "vspace", "label", "phantom", "vphantom", "hphantom", "color", "textcolor"):
        return "", read_script(source, position)[1]
    if name in _SPACES or name in _IGNORED:
        return (" " if name in _SPACES - {"!"} else ""), position
    return HOLE, position


def read_script(source: str, position: int) -> tuple[str, int]:
    """Returns a command's next argument (a group, one command with its own groups, or one character) and the position behind it."""
    while position < len(source) and source[position].isspace():
        position += 1
    if position >= len(source):
        return "", position
    if source[position] == "{":
        end = _closing_brace(source, position)
        return (source[position + 1 : end], end + 1) if end >= 0 else ("", position + 1)
    token, end = _next(source, position)
    while token[0] == "\\" and source[end : end + 1] == "{":
        close = _closing_brace(source, end)
        if close < 0:
            break
        end = close + 1
    return source[position:end], end


def _closing_brace(source: str, position: int) -> int:
    """Index of the brace that closes the one at position, or -1."""
    depth, index = 0, position
    while index < len(source):
        character = source[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1


def _next(source: str, position: int) -> tuple[str, int]:
    match = _TOKEN.match(source, position)
    return (match.group(), match.end()) if match else (source[position], position + 1)


def _script(mark: str, text: str) -> str:
    if not text or text in ("°", "'", "″", "′", "†", "*", "th", "st", "nd", "rd"):
        return text
    return mark + (text if re.fullmatch(r"-?[^\W_]+|.", text) else f"({text})")


def _grouped(text: str) -> str:
    return text if re.fullmatch(r"[\w.^∂]+", text) else f"({text})"
