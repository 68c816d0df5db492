"""Sections with their subsections, cut at paragraphs to what a model can hold."""

from papergym.data_pipeline.latex import Paper, Section
from papergym.data_pipeline.lm.pieces import Piece, halves, pieces, split


def paper(*sections, abstract="We ask why."):
    return Paper("T", abstract, sections, "main.tex", ())


def test_a_section_comes_with_its_subsections_and_the_rest_stays_out():
    found = pieces(
        paper(
            Section("", 0, "A lead before the first heading.", False),
            Section("Method", 1, "Shake it.", False),
            Section("Hopper", 2, "The hopper is steel.", False),
            Section("Outlet", 3, "The outlet is round.", False),
            Section("Funding", 2, "Money came.", False),
            Section("Acknowledgements", 1, "Thanks.", False),
            Section("Tests", 1, "\\begin{tabular}{c}9.9\\end{tabular} We test it. \\begin{tikzpicture} no end", False),
            Section("Proofs", 1, "Long proofs.", True),
        ),
        10_000,
    )
    assert found == [
        Piece("Abstract", "We ask why."),
        Piece("", "A lead before the first heading."),
        Piece("Method", "Shake it.\n\nHopper.\n\nThe hopper is steel.\n\nOutlet.\n\nThe outlet is round."),
        Piece("Tests", "We test it. \\begin{tikzpicture} no end"),
    ]


def test_long_text_is_cut_at_paragraphs_then_sentences_and_nothing_is_lost():
    paragraphs = [" ".join(f"Sentence {p} {s} is here." for s in range(6)) for p in range(5)]
    text = "\n\n".join(paragraphs)
    parts = split(text, 300)
    assert all(len(part) <= 300 for part in parts) and parts[0] == "\n\n".join(paragraphs[:2])
    assert " ".join(" ".join(parts).split()) == " ".join(text.split())
    fine = split(text, 60)
    assert all(len(part) <= 60 for part in fine) and all(part.endswith(".") for part in fine)
    assert " ".join(" ".join(fine).split()) == " ".join(text.split())
    assert [len(part) for part in split("x" * 250, 100)] == [100, 100, 50]
    assert split("", 100) == []


def test_halves_get_smaller_and_end():
    piece = Piece("M", "\n\n".join("A sentence of some length stands here." for _ in range(20)))
    parts = halves(piece)
    assert len(parts) >= 2 and all(len(part.text) < len(piece.text) for part in parts)
    assert halves(Piece("M", "Short.")) == [Piece("M", "Short.")]


def test_many_beginnings_without_an_end_take_linear_time():
    assert pieces(paper(Section("M", 1, "\\begin{tabular}" * 50_000 + " The end is here.", False)), 10**9)
