"""Papers loaded by papergym and by three other tools, each as one would first use it, all to the same form.

Of the others only arxiv-to-prompt chooses a main file; pylatexenc and pandoc are told papergym's choice.
"""

import json
import logging
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from papergym.bench.latex_checks import Loaded
from papergym.data_pipeline.latex import load_paper
from papergym.data_pipeline.latex.main_file import choose_main
from papergym.data_pipeline.latex.sources import read_sources
from papergym.errors import InputError

try:
    import pypandoc
    from arxiv_to_prompt.core import extract_abstract, parse_section_tree, process_latex_source
    from pylatexenc.latex2text import LatexNodes2Text
    from pylatexenc.latexwalker import LatexEnvironmentNode, LatexMacroNode, LatexWalker
except ModuleNotFoundError as error:
    raise InputError(f"the bench of LaTeX loading needs {error.name}: pip install 'papergym[bench]'") from error

SECONDS = 60.0  # that pandoc has for a paper
_LEVELS = {"section": 1, "subsection": 2, "subsubsection": 3, "paragraph": 4, "subparagraph": 5}
_INPUTS = ("input", "include", "subfile", "import", "subimport")


def by_papergym(folder: Path) -> Loaded:
    """Archives and single files too."""
    paper = load_paper(folder)
    text = "\n".join(f"{section.title}\n{section.text}" for section in paper.sections)
    return Loaded(paper.abstract, [(section.level, section.title) for section in paper.sections], text)


def by_pylatexenc(folder: Path) -> Loaded:
    """The parsed main file and what it inputs, turned to text node by node."""
    main = _main_file(folder)
    to_text = LatexNodes2Text()
    to_text.set_tex_input_directory(str(main.parent))
    abstract, sections = "", []
    nodes = LatexWalker(_read(main)).get_latex_nodes()[0]
    for node in _walk(nodes, main.parent):
        if isinstance(node, LatexEnvironmentNode) and node.environmentname == "abstract":
            abstract = to_text.nodelist_to_text(node.nodelist)
        elif isinstance(node, LatexMacroNode) and node.macroname in _LEVELS and node.nodeargd and node.nodeargd.argnlist:
            sections.append((_LEVELS[node.macroname], to_text.nodelist_to_text([node.nodeargd.argnlist[-1]])))
    body = [node for node in nodes if isinstance(node, LatexEnvironmentNode) and node.environmentname == "document"]
    return Loaded(abstract, sections, to_text.nodelist_to_text(body[0].nodelist if body else nodes))


def _walk(nodes: Any, folder: Path) -> Iterator[Any]:
    """Every node, also of the files that are input."""
    for node in nodes:
        if node is None:
            continue
        yield node
        if isinstance(node, LatexMacroNode):
            arguments = [argument for argument in (node.nodeargd.argnlist if node.nodeargd else ()) if argument is not None]
            if node.macroname in _INPUTS and arguments:
                name = arguments[-1].latex_verbatim().strip("{}")
                found = [path for path in (folder / f"{name}.tex", folder / name) if path.is_file()]
                if found:
                    yield from _walk(LatexWalker(_read(found[0])).get_latex_nodes()[0], folder)
            yield from _walk(arguments, folder)
        elif getattr(node, "nodelist", None):
            yield from _walk(node.nodelist, folder)


def by_pandoc(folder: Path) -> Loaded:
    """pandoc's document tree: headings, the abstract from its metadata, and every string."""
    main = _main_file(folder)
    command = [pypandoc.get_pandoc_path(), "--from=latex", "--to=json", main.name]
    done = subprocess.run(command, cwd=main.parent, capture_output=True, timeout=SECONDS)
    if done.returncode:
        raise ValueError(f"pandoc: {done.stderr.decode(errors='replace').strip()[:200]}")
    tree = json.loads(done.stdout)
    sections = [(node["c"][0], _strings(node["c"][2])) for node in tree["blocks"] if node["t"] == "Header"]
    return Loaded(_strings(tree["meta"].get("abstract")), sections, _strings(tree["blocks"]))


def _strings(node: Any) -> str:
    """All text of a pandoc tree."""
    if isinstance(node, list):
        return "".join(map(_strings, node))
    if not isinstance(node, Mapping):
        return ""
    content = node.get("c")
    match node.get("t"):
        case "Str":
            return str(content)
        case "Space" | "SoftBreak" | "LineBreak":
            return " "
        case "Code" | "CodeBlock" | "Math" | "RawInline" | "RawBlock":
            return f" {content[1]} "
        case "Header":
            return f" {_strings(content[2])} "
        case "Para" | "Plain":
            return f"{_strings(content)}\n"
    return _strings(content if content is not None else list(node.values()))


def by_arxiv_to_prompt(folder: Path) -> Loaded:
    """Its flattened LaTeX without comments, macros expanded, and its tree of sections."""
    logging.disable(logging.WARNING)  # it sets up logging by itself, and talks of every paper
    try:
        text = process_latex_source(local_folder=str(folder), keep_comments=False, expand_macros_flag=True)
    finally:
        logging.disable(logging.NOTSET)
    if text is None:
        raise ValueError("arxiv-to-prompt: nothing comes back")
    return Loaded(extract_abstract(text) or "", list(_tree(parse_section_tree(text))), text)


def _tree(nodes: Any) -> Iterator[tuple[int, str]]:
    for node in nodes:
        yield node.level + 1, node.name
        yield from _tree(node.children)


def _main_file(folder: Path) -> Path:
    main = choose_main(read_sources(folder).files, [])
    if main is None:
        raise ValueError(f"no .tex file of {folder.name} is a document")
    return folder / main


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


LOADERS: Mapping[str, Callable[[Path], Loaded]] = {
    "papergym": by_papergym,
    "pylatexenc": by_pylatexenc,
    "pandoc": by_pandoc,
    "arxiv-to-prompt": by_arxiv_to_prompt,
}
