"""Papers -> environments: load, extract, compose, write. Every paper ends up in one of two files, with its reason if it is the second."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from papergym.data_pipeline.compose import question, reference
from papergym.data_pipeline.domains import guess_domain, read_sidecar
from papergym.data_pipeline.extract import Extraction, Extractor
from papergym.data_pipeline.journal import Journal
from papergym.data_pipeline.latex import Paper, load_paper
from papergym.data_pipeline.ledger import Job, Ledger, printable, source_digest
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.rubric import CRITERIA, rubric
from papergym.environment import DIMENSIONS, Criterion, Environment
from papergym.errors import InputError
from papergym.files import atomic_write, write_jsonl
from papergym.progress import progress_bar
from papergym.registry import resolve

EXTRACTORS: Mapping[str, Any] = {"rules": "papergym.data_pipeline.extract:extract_stages"}
_SAYS = {"method": "how the work is done", "experiment": "how it is tested, measured or compared"}
MIN_REFERENCE_WORDS = 80


@dataclass(frozen=True)
class BuildSummary:
    """What a build did: environments written, papers rejected, and the two files; papers left over at the end of the budget.

    report: what language models were asked and what it cost, a sentence for a person; "" without any.
    """

    environments: int
    rejected: int
    out: Path
    rejects: Path
    left: int = 0
    report: str = ""


@dataclass(frozen=True)
class Source:
    """A paper that was read, with what its sidecar or its words say of it."""

    paper: Paper
    domain: str
    date: str | None
    split: str | None


def build(
    papers: Iterable[str | Path],
    out: str | Path,
    *,
    extractor: str | Path = "rules",
    domain: str | None = None,
    rejects: str | Path | None = None,
    created: str | None = None,
    limit: int | None = None,
    max_cost: float | None = None,
) -> BuildSummary:
    """Turns papers into environments, one JSON object a line in `out`, in the order given; both files are written atomically.

    papers: folders or files that load_paper reads; no more than the first `limit`. extractor: "rules", module:function from Paper to
    Extraction, or a recipe, a .toml file, for language models (lm/recipe.py), which max_cost bounds in the recipe's currency.
    domain: of all papers; by default each paper's own, from its sidecar or by keywords (domains.py). created: ISO date in the
    provenance, today by default; the rest depends on the papers and the models' replies alone, so that two builds give the same bytes.
    rejects: {"paper", "reason"} for every paper that can't be read, yields too little or repeats another; by default OUT.rejects.jsonl.
    With language models, a build that was stopped, in whatever way, goes on where it stopped.
    Raises InputError when no paper is given, when none yields an environment (the rejects are written, `out` is not), or when a model
    can't be reached; what is done by then is kept.
    """
    paths, out = [Path(paper) for paper in papers][:limit], Path(out)
    rejects = Path(rejects) if rejects is not None else out.with_name(f"{out.stem}.rejects.jsonl")
    if not paths:
        raise InputError("no papers to build environments from: give at least one folder, .tex file or archive")
    by_model = None
    if str(extractor).endswith(".toml"):
        from papergym.data_pipeline.lm.build import ModelBuild

        by_model = ModelBuild(extractor, out, domain, created, max_cost)
    elif max_cost is not None:
        raise InputError(f"max_cost {max_cost:g}: extractor {str(extractor)!r} costs nothing; only a recipe for language models does")
    else:
        extract = resolve("extractor", str(extractor), EXTRACTORS)
    with atomic_write(out) as file, progress_bar("papers", len(paths)) as bar:
        journal = Journal(out.with_name(f".{out.name}.journal"), by_model.fingerprint if by_model else None)
        finished = by_model is None
        try:
            ledger = Ledger(paths, journal, bar)
            if by_model:
                by_model.run(ledger, bar)
            else:
                for job in ledger.to_do():
                    bar.note(printable(job.path.name))
                    _by_rules(ledger, job, extract, model=str(extractor), domain=domain, created=created)
            made, rejected, accounts, left = ledger.write(file)
            finished = not left
            write_jsonl(rejects, rejected)
            if not made:
                raise InputError(_nothing(len(paths), rejected, left, rejects))
        except BaseException:
            journal.close(finished=finished)
            raise
    journal.close(finished=finished)  # `out` is in its place
    return BuildSummary(made, len(rejected), out, rejects, left, by_model.report(accounts) if by_model else "")


def _nothing(papers: int, rejected: list[dict[str, str]], left: int, rejects: Path) -> str:
    if left:
        return f"the budget was spent before one of the {papers} papers gave an environment; run again with a higher one to go on"
    first = f"{rejected[0]['paper']}: {rejected[0]['reason']}"
    return f"none of the {papers} papers gives an environment; the first one, {first}; all reasons are in {rejects}"


def _by_rules(ledger: Ledger, job: Job, extract: Extractor, **options: Any) -> None:
    try:
        environment = build_one(job.path, extract, digest=job.digest, **options)
    except (ValueError, OSError) as error:
        ledger.rejected(job, str(error))
    else:
        ledger.made(job, environment)


def build_one(
    path: Path,
    extract: Extractor,
    *,
    model: str = "rules",
    domain: str | None = None,
    created: str | None = None,
    digest: str | None = None,
) -> Environment:
    """Returns one paper's environment. Raises InputError with the reason when it yields too little, else what load_paper raises."""
    source = read_paper(path, domain)
    stages = extract(source.paper)
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
    return assemble(path, digest or source_digest(path), source, asked, plan, criteria, stages, model=model, created=created)


def read_paper(path: Path, domain: str | None) -> Source:
    """Reads a paper and its sidecar. Raises as load_paper does."""
    sidecar = read_sidecar(path)
    paper = load_paper(path)
    return Source(paper, domain or sidecar.get("domain") or guess_domain(_text(paper)), sidecar.get("date"), sidecar.get("split"))


def assemble(
    path: Path,
    digest: str,
    source: Source,
    asked: str,
    plan: str,
    criteria: tuple[Criterion, ...],
    stages: Extraction,
    *,
    model: str,
    prompts: str = "",
    created: str | None = None,
    benchmark: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Environment:
    """The environment of a paper. prompts: a digest of what models were told. more: further provenance."""
    return Environment(
        id=f"{printable(path.name).split('.')[0] or 'paper'}-{digest[:8]}",
        domain=source.domain,
        question=asked,
        rubric=criteria,
        reference=plan,
        stages=stages.stages(),
        benchmark=benchmark,
        split=source.split,
        provenance={
            "paper": printable(path.name),
            "sha256": digest,
            "date": source.date,
            "model": model,
            "prompts": prompts,
            "created": created or date.today().isoformat(),
            "sections": stages.sections(),
            **(more or {}),
        },
    )


def _text(paper: Paper) -> str:
    return "\n".join(
        (paper.title, *(plain_text(text, paper.macros) for text in (paper.abstract, *(section.text for section in paper.sections))))
    )
