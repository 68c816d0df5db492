"""LaTeX sources to papers: `load_paper(path) -> Paper`."""

from papergym.data_pipeline.latex.macros import Macro
from papergym.data_pipeline.latex.paper import Paper, load_paper
from papergym.data_pipeline.latex.sections import Section

__all__ = ["Macro", "Paper", "Section", "load_paper"]
