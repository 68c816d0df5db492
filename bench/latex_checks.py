"""What a loader of LaTeX should find: small papers, one trap each, with what is to be read and what is not.

Texts are compared by their letters and digits without LaTeX's commands, so that a loader that gives plain text, one that gives Markdown and
one that leaves LaTeX are asked the same.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Loaded:
    """What a loader made of a paper. sections: level (1: \\section) and title, in order; text: all of the paper that it gives."""

    abstract: str
    sections: Sequence[tuple[int, str]]
    text: str


@dataclass(frozen=True)
class Check:
    """A small paper. titles: of all its sections; kept: what its text has; lost: what neither text nor titles have."""

    body: str | bytes
    preamble: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    titles: tuple[str, ...] = ("One",)
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    abstract: str = ""

    def write(self, folder: Path) -> None:
        """Writes it as main.tex and its other files."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        body = self.body if isinstance(self.body, bytes) else self.body.encode()
        head = f"\\documentclass{{article}}\n{self.preamble}\n\\begin{{document}}\n".encode()
        (folder / "main.tex").write_bytes(head + body + b"\n\\end{document}\n")

    def faults(self, loaded: Loaded) -> Iterator[str]:
        """What is wrong, a few words each."""
        text, titles = letters(f"{loaded.abstract} {loaded.text}"), [title for _, title in loaded.sections if title]
        if [letters(title) for title in titles] != [letters(title) for title in self.titles]:
            yield f"sections {titles}, not {list(self.titles)}"
        yield from (f"loses {phrase!r}" for phrase in self.kept if letters(phrase) not in text)
        yield from (f"keeps {phrase!r}" for phrase in self.lost if letters(phrase) in text + letters(" ".join(titles)))
        if self.abstract and letters(loaded.abstract) != letters(self.abstract):
            yield f"abstract {loaded.abstract[:60]!r}"


def letters(text: str) -> str:
    """Letters and digits, small, without LaTeX's commands."""
    return "".join(re.findall(r"[^\W_]+", re.sub(r"\\\\|\\[A-Za-z]+", " ", text))).casefold()


_WORDS = "The rods are shaken slowly in the silo and their clogs are timed. " * 20
_PAPER = f"\\section{{One}} {_WORDS} The true paper ends here."
_DRAFT = "\\documentclass{article}\n\\begin{document}\n\\section{Stale} Words of a draft. " + 3 * _WORDS + "\n\\end{document}\n"
_SUBFILE = (
    "\\documentclass[../main]{subfiles}\n\\usepackage{tikzducks}\n\\begin{document}\nInside the part.\n\\end{document}\nJunk behind it."
)
CHECKS = {
    "escaped percent": Check(r"\section{One} A gain of 12\% in accuracy of the rods.", kept=("12% in accuracy of the rods",)),
    "line break before a comment": Check("\\section{One} row \\\\% secret note\nnext row", kept=("next row",), lost=("secret note",)),
    "percent in a URL": Check(r"\section{One} See \url{http://x.example/a%20b} and read on.", kept=("and read on",)),
    "commented end of the document": Check("\\section{One} Before.\n% \\end{document}\nStill there.", kept=("Still there",)),
    "iffalse with else": Check(
        r"\section{One} \iffalse old words \section{Dead} \else new words \fi after",
        kept=("new words", "after"),
        lost=("old words", "Dead"),
    ),
    "conditional of the paper": Check(
        r"\section{One} \ifdraft draft words \else final words \fi after",
        preamble=r"\newif\ifdraft \draftfalse",
        kept=("final words", "after"),
        lost=("draft words",),
    ),
    "listing with percent and section": Check(
        "\\section{One} Before.\n\\begin{lstlisting}\nx = 5 % 2 + tail\n\\section{No}\n\\end{lstlisting}\nAfter. \\section{Two} End.",
        preamble=r"\usepackage{listings}",
        titles=("One", "Two"),
        kept=("x = 5 % 2 + tail", "After", "End"),
    ),
    "verb with percent": Check(r"\section{One} Write \verb|a % b| and go on.", kept=("a % b", "and go on")),
    "Latin-1 byte": Check(b"\\section{One} The Caf\xe9 at night.", kept=("The Café at night",)),
    "nested braces in a note": Check(
        r"\section{One} Before. \todo{see \textbf{this {inner} thing}} After the note.", kept=("After the note",), titles=("One",)
    ),
    "commented input": Check(
        "\\section{One} Before.\n% \\input{old}\nAfter.", files={"old.tex": "Stale words."}, kept=("After",), lost=("Stale words",)
    ),
    "input without braces": Check("\\section{One} Before.\n\\input part\nAfter.", files={"part.tex": "Found."}, kept=("Found", "After")),
    "input by a macro path": Check(
        "\\section{One} Before.\n\\input{\\parts/a}\nAfter.",
        preamble=r"\newcommand{\parts}{sections}",
        files={"sections/a.tex": "Found."},
        kept=("Found", "After"),
    ),
    "import from a folder": Check(
        "\\section{One} Before.\n\\import{sec/}{part}\nAfter.",
        preamble=r"\usepackage{import}",
        files={"sec/part.tex": "Outer \\input{inner}", "sec/inner.tex": "found."},
        kept=("Outer found", "After"),
    ),
    "subfile with a preamble": Check(
        "\\section{One} Before.\n\\subfile{sec/part}\nAfter.",
        preamble=r"\usepackage{subfiles}",
        files={"sec/part.tex": _SUBFILE},
        kept=("Inside the part", "After"),
        lost=("tikzducks", "Junk behind it"),
    ),
    "circle of inputs": Check(
        "\\section{One} Start.\n\\input{a}\nEnd of it.", files={"a.tex": "a \\input{b}", "b.tex": "b \\input{a} c"}, kept=("End of it",)
    ),
    "section in a comment environment": Check(
        "\\section{One} Before.\n\\begin{comment}\n\\section{Dead}\n\\end{comment}\nAfter.",
        preamble=r"\usepackage{comment}",
        kept=("After",),
        lost=("Dead",),
    ),
    "short title": Check(r"\section[Short]{Long and \emph{full}} Text.", titles=("Long and full",), kept=("Text",)),
    "starred section": Check(r"\section*{Introduction} Text. \section {Two} More.", titles=("Introduction", "Two"), kept=("More",)),
    "section by the paper's command": Check(
        r"\mysec{Own} Text.", preamble=r"\newcommand{\mysec}[1]{\vspace{1em}\section{#1}}", titles=("Own",), kept=("Text",)
    ),
    "text behind the end": Check("\\section{One} Text.\n\\end{document}\n\\section{Junk} Behind.", kept=("Text",), lost=("Behind",)),
    "abstract in a file": Check(
        "\\begin{abstract}\\input{abs}\\end{abstract}\n\\section{One} Text.",
        files={"abs.tex": "Rods clog % often\nsilos."},
        abstract="Rods clog silos.",
    ),
    "abstract as a command": Check(r"\abstract{Rods clog silos.}\section{One} Text.", abstract="Rods clog silos."),
    "drafts beside the paper": Check(
        _PAPER,
        files={"main_old.tex": _DRAFT, "backup/main.tex": _DRAFT, "draft.tex": _DRAFT},
        kept=("The true paper ends here",),
        lost=("Words of a draft",),
    ),
    "supplement and response beside it": Check(
        _PAPER,
        files={"a-response-to-reviewers.tex": _DRAFT, "SI.tex": _DRAFT.replace("\n", "\n\\title{Supplementary material}\n", 1)},
        kept=("The true paper ends here",),
        lost=("Words of a draft",),
    ),
}  # fmt: skip


def faults_of_paper(loaded: Loaded, expected: Sequence[Any], kept: Sequence[str], lost: Sequence[str]) -> tuple[int, list[str]]:
    """How many checks there are of a paper whose truth was written by hand, and what is wrong.

    expected: main file, title, start and end of the abstract, titles of level 1 before the appendix and in it, number of sections.
    """
    _, _, start, end, body, appendix, count = expected
    abstract, text = letters(loaded.abstract), letters(f"{loaded.abstract} {loaded.text}")
    titles = [title for level, title in loaded.sections if level == 1]
    wrong = []
    if not abstract.startswith(letters(start)) or not abstract.endswith(letters(end)):
        wrong.append(f"abstract {loaded.abstract[:40]!r} … {loaded.abstract[-40:]!r}")
    if sorted(map(letters, titles)) != sorted(map(letters, (*body, *appendix))):
        wrong.append(f"{len(titles)} sections of level 1, not the {len(body) + len(appendix)} that there are")
    headed = len([title for _, title in loaded.sections if title])
    if headed not in (count, count - 1):  # text before the first heading, and a letter's, is a section without one
        wrong.append(f"{headed} sections in all, not {count}")
    kept, lost = (tuple(phrase for phrase in phrases if letters(phrase) and phrase[0] != "\\") for phrases in (kept, lost))  # no commands
    wrong += [f"loses {phrase!r}" for phrase in kept if letters(phrase) not in text]
    wrong += [f"keeps {phrase!r}" for phrase in lost if letters(phrase) in text]
    return 3 + len(kept) + len(lost), wrong
