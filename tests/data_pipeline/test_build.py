"""From papers to files: what is written, what is rejected and why, and that two builds give the same bytes."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build, source_digest
from papergym.data_pipeline.domains import guess_domain, read_sidecar
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.files import atomic_write

EXAMPLES = Path(__file__).parents[2] / "examples/papers"
ROD, LABELS = EXAMPLES / "rod-silo", EXAMPLES / "rare-label-errors"
MARK = "zyzzyva"


def run(papers, out, **options):
    return build(papers, out, created="2026-11-30", **options)


def test_environments_carry_question_reference_ten_criteria_and_provenance(tmp_path):
    summary = run([ROD, LABELS], tmp_path / "out.jsonl")
    assert (summary.environments, summary.rejected) == (2, 0)
    assert (tmp_path / "out.rejects.jsonl").read_bytes() == b""
    rod, labels = read_environments(tmp_path / "out.jsonl")
    assert (rod.domain, labels.domain) == ("physics", "cs")
    assert len(rod.rubric) == len(labels.rubric) == 10
    assert rod.question.endswith("how you would judge the outcome.") and "what sets the lifetime of a clog of rods" in rod.question
    assert "voice coils" in rod.reference and "voice coils" not in rod.question
    assert set(rod.provenance) == {"paper", "sha256", "date", "model", "prompts", "created", "sections"}
    assert rod.provenance["paper"] == "rod-silo" and rod.provenance["date"] == "2023-06-27" and rod.provenance["model"] == "rules"
    assert rod.id == "rod-silo-" + rod.provenance["sha256"][:8]
    assert {title for runs in rod.provenance["sections"].values() for title, _ in runs} == {"", "Abstract"}  # a letter has no headings
    for name, text in labels.stages.items():  # each stage can be cut along the sections that it comes from
        lengths = [length for _, length in labels.provenance["sections"][name]]
        assert sum(lengths) + len(lengths) - 1 == len(text)
    titles = [title for title, _ in labels.provenance["sections"]["method"]]
    assert titles == ["Abstract", "Intuition", "Estimator"]


def test_every_sample_paper_becomes_an_environment(tmp_path):
    papers = sorted(path.parent for path in EXAMPLES.glob("*/paper.toml"))
    summary = run(papers, tmp_path / "out.jsonl")
    assert summary.rejected == 0, (tmp_path / "out.rejects.jsonl").read_text()
    for environment in read_environments(tmp_path / "out.jsonl"):
        assert {criterion.dimension for criterion in environment.rubric} == {"method", "experiment"}
        texts = [criterion.text for criterion in environment.rubric]
        assert len(texts) == len(set(texts)) == 10
        for text in (environment.question, environment.reference, *texts):
            assert not any(residue in text for residue in ("\\", "{}", "\ufffc", "\ufff9", "~\\", "``", "  ", "()"))
        assert 60 <= len(environment.question.split()) <= 260


def test_two_builds_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        run([LABELS, ROD], tmp_path / f"{name}.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_folder_and_its_archive_are_the_same_paper(tmp_path):
    with tarfile.open(tmp_path / "rod-silo.tar.gz", "w:gz") as archive:
        for path in sorted(ROD.rglob("*.tex")):
            archive.add(path, path.relative_to(ROD).as_posix())
    assert source_digest(ROD) == source_digest(tmp_path / "rod-silo.tar.gz")
    content = (ROD / "letter.tex").read_bytes()
    assert source_digest(ROD) == hashlib.sha256(f"letter.tex\0{len(content)}\0".encode() + content).hexdigest()
    (tmp_path / "rod-silo.tar.gz.toml").write_text('domain = "granular"\n')
    run([tmp_path / "rod-silo.tar.gz"], tmp_path / "out.jsonl")
    assert read_environments(tmp_path / "out.jsonl")[0].domain == "granular"
    summary = run([ROD, tmp_path / "rod-silo.tar.gz"], tmp_path / "both.jsonl")
    assert (summary.environments, summary.rejected) == (1, 1)
    assert "same content as rod-silo" in (tmp_path / "both.rejects.jsonl").read_text()


def test_papers_given_by_file_are_themselves_and_their_inputs_whatever_lies_beside_them(tmp_path):
    for paper in (ROD / "letter.tex", EXAMPLES / "active-ring/main.tex"):
        shutil.copy(paper, tmp_path / f"{paper.parent.name}.tex")
    rod, ring = tmp_path / "rod-silo.tex", tmp_path / "active-ring.tex"
    summary = run([rod, ring], tmp_path / "out.jsonl")
    assert (summary.environments, summary.rejected) == (2, 0)
    assert source_digest(rod) != source_digest(ring)
    assert source_digest(ROD / "letter.tex") == source_digest(ROD)

    whole = tmp_path / "whole"  # no suffix: the file counts all the same
    whole.write_text(r"\documentclass{article}\usepackage{own}\begin{document}\input{part}\bibliography{refs}\end{document}")
    digests = [source_digest(whole)]
    for name in ("part.tex", "own.sty"):
        for text in ("Rods.", "Spheres."):
            (tmp_path / name).write_text(text)
            digests.append(source_digest(whole))
    whole.write_text(whole.read_text() + "% end")
    digests.append(source_digest(whole))
    assert len(set(digests)) == 6
    for name in ("other.tex", "other.sty", "notes.txt"):
        (tmp_path / name).write_text("Rods.")
    assert source_digest(whole) == digests[-1]
    for content in (b"", b"\0\1\2" * 100):  # refused when it is read as a paper
        whole.write_bytes(content)
        assert source_digest(whole) not in digests


def test_what_cannot_be_used_is_rejected_with_its_reason(tmp_path):
    texts = {
        "empty": "",
        "binary": "\0\1\2" * 100,
        "aimless": r"\documentclass{article}\begin{document}\section{Introduction}Rods are long.\end{document}",
        "thin": r"\documentclass{article}\begin{document}\section{Introduction}Rods clog silos often and everywhere. "
        r"We ask whether vibration clears the clogs of rods.\section{Method}We shake rods in a silo for two days.\end{document}",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "main.tex").write_text(text)
    papers = [tmp_path / name for name in texts] + [tmp_path / "absent", ROD]
    summary = run(papers, tmp_path / "out.jsonl", rejects=tmp_path / "why.jsonl")
    assert (summary.environments, summary.rejected, summary.rejects) == (1, 5, tmp_path / "why.jsonl")
    reasons = {
        Path(record["paper"]).name: record["reason"] for record in map(json.loads, (tmp_path / "why.jsonl").read_text().splitlines())
    }
    assert list(reasons) == ["empty", "binary", "aimless", "thin", "absent"]
    assert "no sentence states an aim" in reasons["aimless"]
    assert "words that can be quoted" in reasons["thin"]
    assert all(reasons.values())


def test_no_environment_at_all_is_an_error_and_writes_only_the_rejects(tmp_path):
    with pytest.raises(InputError, match="none of the 1 papers gives an environment"):
        run([tmp_path / "absent"], tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    assert len((tmp_path / "out.rejects.jsonl").read_text().splitlines()) == 1
    with pytest.raises(InputError, match="no papers"):
        run([], tmp_path / "out.jsonl")


def test_extractors_are_a_registry(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "outside_extractor.py").write_text(
        "from papergym.data_pipeline.extract import Extraction, extract_stages\n"
        "from papergym.data_pipeline.passages import Sentence\n"
        f"def marked(paper):\n    s = extract_stages(paper)\n"
        f"    return Extraction(s.goal, s.background, (Sentence('{MARK} ' + s.method[0].text), *s.method), s.experiment)\n"
    )
    run([ROD], tmp_path / "out.jsonl", extractor="outside_extractor:marked")
    environment = read_environments(tmp_path / "out.jsonl")[0]
    assert environment.provenance["model"] == "outside_extractor:marked"
    assert MARK in environment.reference and MARK not in environment.question  # nothing of the method reaches the question
    with pytest.raises(InputError, match="unknown extractor 'rule': use one of rules"):
        run([ROD], tmp_path / "x.jsonl", extractor="rule")


def test_domains(tmp_path):
    assert run([ROD], tmp_path / "out.jsonl", domain="grain").environments == 1
    assert read_environments(tmp_path / "out.jsonl")[0].domain == "grain"
    assert guess_domain("Stars, galaxies, telescopes, photometry and spectra of a planet.") == "physics"
    assert guess_domain("Household income, wages, taxes, inflation and unemployment.") == "econ"
    assert guess_domain("A neural encoder, its training data, a GPU and a benchmark with a dataset.") == "cs"
    assert guess_domain("Leaves fall.") == "other"


def test_a_broken_sidecar_names_file_and_key(tmp_path):
    paper = tmp_path / "paper"
    shutil.copytree(ROD, paper)
    (paper / "paper.toml").write_text("domain = 3\n")
    with pytest.raises(InputError, match=r"paper\.toml, domain: a non-empty string is needed, not 3"):
        read_sidecar(paper)
    (paper / "paper.toml").write_text("domain = \n")
    with pytest.raises(InputError, match="not valid TOML"):
        read_sidecar(paper)
    (paper / "paper.toml").write_text("date = 2023-06-27\n")
    assert read_sidecar(paper)["date"] == "2023-06-27"
    (paper / "paper.toml").unlink()
    assert read_sidecar(paper) == {}


def test_a_second_build_into_the_same_file_is_refused_before_it_reads_a_paper(tmp_path, monkeypatch):
    monkeypatch.setattr("papergym.data_pipeline.build.build_one", lambda *arguments, **options: pytest.fail("it began"))
    with (
        atomic_write(tmp_path / "out.jsonl"),
        pytest.raises(InputError, match=r"out\.jsonl: another process is writing this file"),
    ):
        run([ROD], tmp_path / "out.jsonl")
