"""What plain_text does with LaTeX's environments and commands, as tables."""

import re

from papergym.data_pipeline.words import words

# Environments that aren't prose. Proofs and statements of theorems are findings, which belong to no stage.
DROPPED = words(
    "figure table wrapfigure wraptable sidewaysfigure sidewaystable deluxetable longtable tabular tabularx tabulary algorithm algorithm2e "
    "algorithmic algorithmicx lstlisting verbatim Verbatim minted comment tikzpicture picture thebibliography filecontents "
    "theorem lemma proposition corollary claim proof thm lem prop cor acknowledgements acknowledgments acknowledgement acks keywords "
    "CCSXML IEEEkeywords titlepage verbatimwrite tcblisting code pseudocode subfigure minipage"
)
DISPLAYS = words(
    "equation eqnarray align alignat aligned gather multline math displaymath flalign array dmath subequations cases split gathered"
)
DROPPED_ARGUMENTS = {
    "label": 1, "vspace": 1, "hspace": 1, "footnote": 1, "footnotetext": 1, "footnotemark": 0, "thanks": 1, "todo": 1, "index": 1,
    "includegraphics": 1, "bibliography": 1, "bibliographystyle": 1, "caption": 1, "input": 1, "include": 1, "subfile": 1, "setcounter": 2,
    "addtocounter": 2, "setlength": 2, "addtolength": 2, "pagestyle": 1, "thispagestyle": 1, "pagenumbering": 1, "textcolor": 1, "color": 1,
    "colorbox": 1, "fontsize": 2, "newcommand": 2, "renewcommand": 2, "providecommand": 2, "marginpar": 1, "phantomsection": 0,
    "addcontentsline": 3, "stepcounter": 1, "refstepcounter": 1, "hypertarget": 1, "hyperlink": 1, "rule": 2, "resizebox": 2, "scalebox": 1,
    "usepackage": 1, "author": 1, "affiliation": 1, "email": 1, "date": 1, "title": 1, "keywords": 1, "captionsetup": 1,
    "selectlanguage": 1,
    "paragraph": 1, "subparagraph": 1, "section": 1, "subsection": 1, "subsubsection": 1, "footnoteref": 1, "sidenote": 1, "endnote": 1,
    "printbibliography": 0, "nocite": 1, "foreignlanguage": 1, "altaffilmark": 1, "bibitem": 1,
    "newpage": 0, "graphicspath": 1, "linespread": 1, "raisebox": 1, "parbox": 1, "phantom": 1,
    "newcounter": 1, "href": 1,
}  # fmt: skip
HEADINGS = frozenset(("paragraph", "subparagraph", "section", "subsection", "subsubsection"))
REFERENCES = re.compile(
    r"(?:[cC]ref|[cC]refrange|(?:eq|auto|page|name|v|V|sub|labelc|full|hyper|C|A|F)?ref|url|nolinkurl|path|variable|doi|footnotemark)$"
)
TEXT_CITES = re.compile(r"(?:[cC]itet|[tT]extcite|[cC]iteauthor|[cC]iteyear|[cC]iteyearpar|[cC]itealt|citetext|shortcite[aN]|[nN]oun)s?$")
CITES = re.compile(
    r"(?:[cC]ite|[cC]itep|[cC]itealp|[aA]utocite|[pP]arencite|supercite|footcite|footfullcite|onlinecite|citenum|fullcite)s?$"
)
# A bare \cite is a word of the sentence behind one of these, or at its beginning.
NEEDS_CITE = re.compile(
    r"(?i)(?:^|[.?!:]|\b(?:in|at|for|by|of|from|see|with|to|following|follow|as|and|on|than|like|refs?\.?|papers?|cf\.?|e\.g\.,?|also|"
    r"both))"
    r"[\s(]*$"
)
IGNORED = words(
    "it bf rm sf tt sl sc em itshape bfseries mdseries rmfamily sffamily ttfamily upshape scshape slshape normalfont normalsize small tiny "
    "scriptsize footnotesize large Large LARGE huge Huge centering raggedright raggedleft noindent indent smallskip medskip bigskip "
    "newline "
    "linebreak pagebreak clearpage cleardoublepage par maketitle appendix protect xspace hfill vfill null relax unskip ignorespaces "
    "sloppy fussy onecolumn twocolumn flushbottom frontmatter mainmatter backmatter tableofcontents allowbreak nobreak break boldmath "
    "unboldmath displaystyle doublespacing singlespacing makeatletter makeatother begingroup endgroup bgroup egroup sloppypar balance "
    "hspace vspace @ leavevmode strut nonumber"
)
WORDS = {
    "LaTeX": "LaTeX", "TeX": "TeX", "BibTeX": "BibTeX", "ldots": "...", "dots": "...", "textellipsis": "...", "textendash": "–",
    "textemdash": "—", "ss": "ß", "o": "ø", "O": "Ø", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł",
    "i": "ı", "j": "ȷ", "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textquotesingle": "'", "textquoteright": "'",
    "textdegree": "°", "degree": "°", "textmu": "µ", "S": "§", "dag": "†", "copyright": "©", "pounds": "£", "euro": "€", "texteuro": "€",
    "textperiodcentered": "·", "quad": " ", "qquad": " ", "ie": "i.e.", "eg": "e.g.", "etal": "et al.", "etc": "etc.", "slash": "/",
    "textbar": "|", "textless": "<", "textgreater": ">", "textpm": "±", "texttimes": "×", "lbrack": "[", "rbrack": "]",
    "textregistered": "",
    "texttrademark": "", "textunderscore": "_", "nobreakspace": " ", "enspace": " ", "thinspace": " ", "newline": " ",
}  # fmt: skip
ACCENTS = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307", "u": "\u0306", "v": "\u030c",
    "H": "\u030b", "c": "\u0327", "k": "\u0328", "r": "\u030a", "b": "\u0331", "d": "\u0323",
}  # fmt: skip
PREFIXES = words("n µ m k M G T c d p f h")
UNITS = {
    "nano": "n", "micro": "µ", "milli": "m", "kilo": "k", "mega": "M", "giga": "G", "tera": "T", "centi": "c", "deci": "d", "pico": "p",
    "femto": "f", "hecto": "h", "metre": "m", "meter": "m", "second": "s", "gram": "g", "kilogram": "kg", "hertz": "Hz", "kelvin": "K",
    "pascal": "Pa", "newton": "N", "joule": "J", "watt": "W", "volt": "V", "ampere": "A", "ohm": "Ω", "tesla": "T", "litre": "L",
    "liter": "L", "minute": "min", "hour": "h", "day": "d", "percent": "%", "degree": "°", "celsius": "°C", "degreeCelsius": "°C",
    "decibel": "dB", "electronvolt": "eV", "mole": "mol", "byte": "B", "bit": "bit", "per": "/", "squared": "²", "cubed": "³",
    "square": "", "cubic": "", "um": "µm", "nm": "nm", "mm": "mm", "cm": "cm", "km": "km", "ms": "ms", "us": "µs", "ns": "ns", "GHz": "GHz",
    "MHz": "MHz", "kHz": "kHz", "dB": "dB", "radian": "rad", "candela": "cd", "farad": "F", "coulomb": "C", "weber": "Wb", "henry": "H",
}  # fmt: skip
STYLES = words(
    "emph textbf textit textsc texttt textsf textrm textup textsl textmd textnormal underline uline mbox text hbox textsuperscript "
    "textsubscript uppercase lowercase MakeUppercase MakeLowercase centerline ensuremath"
)
GLOSSARY = re.compile(r"(?:[gG]ls|GLS|ac|Ac)(pl|p)?$|(?:[aA]cr|ac)(short|long|full|s|l|f|sp|lp|fp)(pl)?$")
