"""Papers -> environments: load, extract, compose, write. Every paper ends up in one of two files, with its reason if it is the second."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from papergym.data_pipeline.compose import question, reference
from papergym.data_pipeline.domains import guess_domain, read_sidecar
from papergym.data_pipeline.extract import Extractor
from papergym.data_pipeline.latex import Paper, load_paper
from papergym.data_pipeline.latex.sources import read_sources
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.rubric import CRITERIA, rubric
from papergym.environment import DIMENSIONS, Environment, checked_records
from papergym.errors import InputError
from papergym.files import atomic_write, json_line, write_jsonl
from papergym.progress import progress_bar
from papergym.registry import resolve

EXTRACTORS: Mapping[str, Any] = {"rules": "papergym.data_pipeline.extract:extract_stages"}
_SAYS = {"method": "how the work is done", "experiment": "how it is tested, measured or compared"}
MIN_REFERENCE_WORDS = 80
_SOURCE_SUFFIXES = (".tex", ".ltx", ".sty", ".cls", ".def", ".latex")


@dataclass(frozen=True)
class BuildSummary:
    """What a build did: environments written, papers rejected, and the two files."""

    environments: int
    rejected: int
    out: Path
    rejects: Path


def build(
    papers: Iterable[str | Path],
    out: str | Path,
    *,
    extractor: str = "rules",
    domain: str | None = None,
    rejects: str | Path | None = None,
    created: str | None = None,
) -> BuildSummary:
    """Turns papers into environments, one JSON object a line in `out`, in the order given; both files are written atomically.

    papers: folders or files that load_paper reads. extractor: "rules", or module:function from Paper to Extraction.
    domain: of all papers; by default each paper's own, from its sidecar or by keywords (domains.py). created: ISO date in the
    provenance, today by default; the rest depends on the papers alone, so that two builds give the same bytes.
    rejects: {"paper", "reason"} for every paper that can't be read, yields too little or repeats another; by default OUT.rejects.jsonl.
    Raises InputError when no paper is given or when none yields an environment (the rejects are written, `out` is not).
    """
    paths, out = [Path(paper) for paper in papers], Path(out)
    rejects = Path(rejects) if rejects is not None else out.with_name(f"{out.stem}.rejects.jsonl")
    extract = resolve("extractor", extractor, EXTRACTORS)
    if not paths:
        raise InputError("no papers to build environments from: give at least one folder, .tex file or archive")
    environments: dict[str, Environment] = {}
    rejected: list[dict[str, str]] = []
    with atomic_write(out) as file, progress_bar("papers", len(paths)) as bar:
        for paper in paths:
            bar.note(printable(paper.name))
            try:
                environment = build_one(paper, extract, model=extractor, domain=domain, created=created)
                if first := environments.get(environment.id):
                    raise InputError(f"has the same content as {first.provenance['paper']}, which is given before it")
                environments[environment.id] = environment
            except (ValueError, OSError) as error:
                rejected.append({"paper": printable(str(paper)), "reason": printable(str(error))})
            bar.advance()
        write_jsonl(rejects, rejected)
        if not environments:
            first_reason = f"{rejected[0]['paper']}: {rejected[0]['reason']}"
            raise InputError(
                f"none of the {len(paths)} papers gives an environment; the first one, {first_reason}; all reasons are in {rejects}"
            )
        file.writelines(map(json_line, checked_records(environments.values())))
    return BuildSummary(len(environments), len(rejected), out, rejects)


def build_one(
    path: Path, extract: Extractor, *, model: str = "rules", domain: str | None = None, created: str | None = None
) -> Environment:
    """Returns one paper's environment. Raises InputError with the reason when it yields too little, else what load_paper raises."""
    sidecar = read_sidecar(path)
    paper = load_paper(path)
    digest = source_digest(path)
    stages = extract(paper)
    asked = question(stages.goal, stages.background, stages.abbreviations, stages.names)
    if asked is None:
        raise InputError("no sentence states an aim or names what is open, so there is no question to ask")
    if not stages.background:
        raise InputError("no background stands before the paper's own work, so the question would have no context")
    plan = reference(stages.method, stages.experiment)
    if len(plan.split()) < MIN_REFERENCE_WORDS:
        raise InputError(f"method and experiment hold {len(plan.split())} words that can be quoted, and {MIN_REFERENCE_WORDS} are needed")
    criteria = rubric(asked, stages.method, stages.experiment, stages.abbreviations, stages.names)
    for dimension in DIMENSIONS:
        if all(criterion.dimension != dimension for criterion in criteria):
            raise InputError(f"its {dimension} gives no criterion: no sentence that can be quoted says {_SAYS[dimension]}")
    if len(criteria) < CRITERIA:
        raise InputError(f"only {len(criteria)} of {CRITERIA} criteria can be drawn from its method and experiment")
    return Environment(
        id=f"{printable(path.name).split('.')[0] or 'paper'}-{digest[:8]}",
        domain=domain or sidecar.get("domain") or guess_domain(_text(paper)),
        question=asked,
        rubric=criteria,
        reference=plan,
        stages=stages.stages(),
        split=sidecar.get("split"),
        provenance={
            "paper": printable(path.name),
            "sha256": digest,
            "date": sidecar.get("date"),
            "model": model,
            "prompts": "",
            "created": created or date.today().isoformat(),
            "sections": stages.sections(),
        },
    )


def printable(text: str) -> str:
    """Text with the bytes of a file name that are no UTF-8 replaced, as JSON can hold it."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def source_digest(path: Path) -> str:
    """SHA-256 of a paper's LaTeX files, names and bytes in the order of names: the same for a folder and for an archive of it."""
    files = read_sources(path).files
    digest = hashlib.sha256()
    for name in sorted(name for name in files if name.lower().endswith(_SOURCE_SUFFIXES)) or sorted(files):
        content = files[name]
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
    return digest.hexdigest()


def _text(paper: Paper) -> str:
    return "\n".join(
        (paper.title, *(plain_text(text, paper.macros) for text in (paper.abstract, *(section.text for section in paper.sections))))
    )
