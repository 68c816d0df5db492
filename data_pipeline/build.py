"""Papers -> environments: load, extract, compose, write. Every paper ends up in one of two files, with its reason if it is the second."""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import IO, Any

from papergym.data_pipeline.compose import question, reference
from papergym.data_pipeline.domains import guess_domain, read_sidecar
from papergym.data_pipeline.extract import Extraction, Extractor
from papergym.data_pipeline.journal import Journal
from papergym.data_pipeline.latex import Paper, load_paper
from papergym.data_pipeline.ledger import Job, Ledger, made_record, printable, rejected_record, source_digest
from papergym.data_pipeline.plain_text import plain_text
from papergym.data_pipeline.rubric import CRITERIA, rubric
from papergym.environment import DIMENSIONS, Criterion, Environment
from papergym.errors import InputError
from papergym.files import atomic_write, json_line
from papergym.progress import Bar, progress_bar
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
    engine: str = "process",
    workers: int | None = None,
) -> BuildSummary:
    """Turns papers into environments, one JSON object a line in `out`, in the order given; both files are written atomically.

    papers: folders or files that load_paper reads; no more than the first `limit`. extractor: "rules", module:function from Paper to
    Extraction, or a recipe, a .toml file, for language models (lm/recipe.py), which max_cost bounds in the recipe's currency.
    domain: of all papers; by default each paper's own, from its sidecar or by keywords (domains.py). created: ISO date in the
    provenance, today by default; the rest depends on the papers and the models' replies alone, so that two builds give the same bytes.
    rejects: {"paper", "reason"} for every paper that can't be read, yields too little or repeats another; by default OUT.rejects.jsonl.
    engine: "process", this one, or "ray", Ray Data over `workers` processes of one machine or several (on_ray.py), with the same result.
    A build that was stopped, in whatever way, goes on where it stopped, with either engine.
    Raises InputError when no paper is given, when none yields an environment (the rejects are written, `out` is not), or when a model
    can't be reached; what is done by then is kept.
    """
    paths, out = [Path(paper) for paper in papers][:limit], Path(out)
    rejects = Path(rejects) if rejects is not None else out.with_name(f"{out.stem}.rejects.jsonl")
    if not paths:
        raise InputError("no papers to build environments from: give at least one folder, .tex file or archive")
    by: Any
    if str(extractor).endswith(".toml"):
        from papergym.data_pipeline.lm.build import ModelBuild

        by = ModelBuild(extractor, out, domain, created, max_cost)
    elif max_cost is not None:
        raise InputError(f"max_cost {max_cost:g}: extractor {str(extractor)!r} costs nothing; only a recipe for language models does")
    else:
        by = RuleBuild(str(extractor), domain, created)
    run = by.run
    if engine == "ray":
        from papergym.data_pipeline.on_ray import run_on_ray

        run = partial(run_on_ray, by, workers)
    elif engine != "process":
        raise InputError(f"engine {engine!r}: use process or ray")
    elif workers is not None:
        raise InputError(f"workers {workers}: the engine 'process' has one, this process; more need the engine 'ray'")
    with atomic_write(out) as file, progress_bar("papers", len(paths)) as bar:
        journal = Journal(out.with_name(f".{out.name}.journal"), by.fingerprint)
        finished = False
        try:
            ledger = Ledger(paths, journal, bar)
            run(ledger, bar)
            made, rejected, left = _write(ledger, file, rejects)
            finished = not left
            if not made:
                raise InputError(_nothing(ledger, left, rejects))
            report = by.report(ledger.accounts())
        except BaseException:
            journal.close(finished=finished)
            raise
    journal.close(finished=finished)  # `out` is in its place
    return BuildSummary(made, rejected, out, rejects, left, report)


def _write(ledger: Ledger, file: IO[bytes], rejects: Path) -> tuple[int, int, int]:
    """Writes environments and rejects in the order of the papers. Returns their numbers, and how many papers are left over."""
    counts = {"environment": 0, "reason": 0, "left": 0}
    with atomic_write(rejects) as rejects_file:
        for paper, record in ledger.outcomes():
            if record is None:
                counts["left"] += 1
            elif "reason" in record:
                counts["reason"] += 1
                rejects_file.write(json_line({"paper": paper, "reason": record["reason"]}))
            else:
                counts["environment"] += 1
                file.write(json_line(record["environment"]))
    return counts["environment"], counts["reason"], counts["left"]


def _nothing(ledger: Ledger, left: int, rejects: Path) -> str:
    outcomes = list(ledger.outcomes())
    if left:
        return f"the budget was spent before one of the {len(outcomes)} papers gave an environment; run again with a higher one to go on"
    paper, record = outcomes[0]
    assert record is not None
    return (
        f"none of the {len(outcomes)} papers gives an environment; the first one, {paper}: {record['reason']}; all reasons are in {rejects}"
    )


class RuleBuild:
    """What an extractor that asks no model makes of papers. fingerprint: of all that decides what the environments are."""

    def __init__(self, extractor: str, domain: str | None, created: str | None):
        self.options = extractor, domain, created
        self._extract: Extractor = resolve("extractor", extractor, EXTRACTORS)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(repr(self.options).encode())
        own = Path(__file__).parent
        files = sorted(path for path in own.rglob("*") if path.suffix in (".py", ".txt", ".toml"))
        source = getattr(sys.modules.get(self._extract.__module__), "__file__", None)
        for path in (*files, *([Path(source)] if source else ())):
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def run(self, ledger: Ledger, bar: Bar) -> None:
        """Gives every paper its outcome."""
        for job in ledger.to_do():
            bar.note(printable(job.path.name))
            ledger.keep(job, self.outcome(job))

    def outcome(self, job: Job) -> dict[str, Any]:
        """What becomes of a paper, as the journal has it."""
        extractor, domain, created = self.options
        try:
            environment = build_one(job.path, self._extract, digest=job.digest, model=extractor, domain=domain, created=created)
        except (ValueError, OSError) as error:
            return rejected_record(str(error))
        return made_record(environment)

    def report(self, accounts: Iterable[Mapping[str, Any]]) -> str:
        """Nothing was asked."""
        return ""


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
