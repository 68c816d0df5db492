"""What `papergym audit` does: one or several data sets, measured, tabled and drawn beside each other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papergym.data_pipeline.audits.ask import LEAKAGE, TYPE, Examiner, open_examiner
from papergym.data_pipeline.audits.composition import composition, duplicates, type_shares
from papergym.data_pipeline.audits.faithfulness import faithfulness
from papergym.data_pipeline.audits.labels import Answer, Key, Labels, Verdicts, by_name, compare, read_answers, read_labels
from papergym.data_pipeline.audits.rates import rates_by_group
from papergym.data_pipeline.audits.sheet import leakage_items, verdict_items, write_sheet
from papergym.data_pipeline.audits.words import leaked, overlaps, shares_above
from papergym.data_pipeline.subsets import shuffled
from papergym.environment import Environment, read_environments
from papergym.files import atomic_write, write_json, write_jsonl

Datasets = Mapping[str, Sequence[Environment]]
_TYPES = {None: None, True: "experiment", False: "method"}


@dataclass(frozen=True)
class Examined:
    """One file's environments, and by their ids what is known of the criteria: overlaps; leakage and types, if a model was asked."""

    environments: Sequence[Environment]
    overlaps: Mapping[str, Sequence[float | None]]
    leakage: Mapping[str, Sequence[bool | None]]
    types: Mapping[str, Sequence[str | None]]


def run_audit(
    files: Sequence[Path],
    out: Path,
    *,
    judge: str | None = None,
    papers: Path | None = None,
    sample: int = 1000,
    seed: int = 0,
    sheet: int = 0,
    answers: Sequence[Path] = (),
    labels: Sequence[Path] = (),
) -> str:
    """Audits environments into OUT and returns what to print.

    Written are audit.json, audit.md, composition.svg, leakage.svg and criteria.jsonl, a line for each criterion with what was found of it.
    judge: a .toml file of kind llm, whose model is asked about `sample` environments of each file. papers: the folder that the environments
    were extracted from, for faithfulness. sheet: so many environments of each file, and answers of each file of `answers`, go into
    sheet.html and sheet.csv to be labelled. labels: sheets that came back, compared with the model and the words, and with the verdicts
    that stand in `answers`. Raises InputError as its parts do, and for two files of one name.
    """
    datasets = {name: read_environments(path) for name, path in by_name(files).items()}
    rows = {name: read_answers(path, datasets) for name, path in by_name(answers).items()}
    if sheet:
        chosen = {name: shuffled(environments, seed)[:sheet] for name, environments in datasets.items()}
        return write_sheet(out, [*leakage_items(chosen), *verdict_items(rows, sheet, seed)])
    people = read_labels(labels, datasets, rows)
    examiner = open_examiner(judge) if judge else None
    found = {name: _examine(environments, examiner, sample, seed) for name, environments in datasets.items()}
    figures: dict[str, Any] = {
        "files": {name: _figures(of) for name, of in found.items()},
        "duplicates": duplicates(datasets),
        "agreement": {"leakage": _agreement_on_leakage(found, people), "verdicts": _agreement_on_verdicts(rows, people)},
    }
    if papers is not None:
        for name, environments in datasets.items():
            figures["files"][name]["faithfulness"] = faithfulness(environments, papers)
    write_jsonl(out / "criteria.jsonl", (record for name, of in found.items() for record in _criteria(name, of)))
    write_json(out / "audit.json", figures)
    text = _report(figures, examiner, out)
    with atomic_write(out / "audit.md") as file:
        file.write(text.encode())
    return text


def _examine(environments: Sequence[Environment], examiner: Examiner | None, sample: int, seed: int) -> Examined:
    leakage: list[list[bool | None]] = []
    types: list[list[bool | None]] = []
    drawn = shuffled(environments, seed)[:sample]
    if examiner:
        leakage, types = examiner.ask(LEAKAGE, drawn), examiner.ask(TYPE, drawn)
    return Examined(
        environments,
        {environment.id: overlaps(environment) for environment in environments},
        {environment.id: answers for environment, answers in zip(drawn, leakage)},
        {environment.id: [_TYPES[answer] for answer in answers] for environment, answers in zip(drawn, types)},
    )


def _figures(found: Examined) -> dict[str, Any]:
    environments, asked = found.environments, [environment for environment in found.environments if environment.id in found.leakage]
    figures: dict[str, Any] = {"composition": composition(environments), "types": {}}
    figures["leakage"] = {"words": rates_by_group(environments, [list(map(leaked, found.overlaps[e.id])) for e in environments])}
    if asked:
        figures["leakage"]["model"] = rates_by_group(asked, [found.leakage[e.id] for e in asked])
        figures["types"]["model"] = type_shares(list(found.types.values()))
    figures["types"]["labels"] = figures["composition"].pop("types")
    figures["overlaps"] = shares_above([overlap for row in found.overlaps.values() for overlap in row])
    return figures


def _agreement_on_leakage(found: Mapping[str, Examined], people: Mapping[str, Labels]) -> dict[str, Any] | None:
    """Of words, model and people."""
    judges: dict[str, Verdicts] = {
        "words": {(name, e): list(map(leaked, row)) for name, of in found.items() for e, row in of.overlaps.items()},
        "model": {(name, e): row for name, of in found.items() for e, row in of.leakage.items()},
    }
    environments: dict[Key, Environment] = {(name, e.id): e for name, of in found.items() for e in of.environments}
    return compare(judges, {person: labels.leakage for person, labels in people.items()}, environments)


def _agreement_on_verdicts(rows: Mapping[str, Sequence[Answer]], people: Mapping[str, Labels]) -> dict[str, Any] | None:
    """Of the judge whose verdicts stand in the answers, and people."""
    answers: dict[Key, Answer] = {(row, answer.environment.id, answer.sample): answer for row, found in rows.items() for answer in found}
    verdicts = {"judge": {key: answer.verdicts for key, answer in answers.items()}}
    environments = {key: answer.environment for key, answer in answers.items()}
    return compare(verdicts, {person: labels.verdicts for person, labels in people.items()}, environments)


def _criteria(name: str, found: Examined) -> Iterator[dict[str, Any]]:
    """A record for each criterion; what the model was not asked about lacks its fields."""
    for environment in found.environments:
        for index, criterion in enumerate(environment.rubric):
            overlap = found.overlaps[environment.id][index]
            record = {"file": name, "environment": environment.id, "criterion": index, "text": criterion.text}
            record |= {"overlap": overlap, "leaked_by_words": leaked(overlap)}
            if environment.id in found.leakage:
                record |= {"leaked_by_model": found.leakage[environment.id][index], "type_by_model": found.types[environment.id][index]}
            yield record


def _report(figures: Mapping[str, Any], examiner: Examiner | None, out: Path) -> str:
    from papergym.data_pipeline.audits.figures import draw_composition, draw_leakage, markdown  # matplotlib takes a second to import

    draw_composition(figures["files"], out / "composition.svg")
    draw_leakage(figures["files"], out / "leakage.svg")
    text = f"{markdown(figures)}\n{out / 'composition.svg'}\n{out / 'leakage.svg'}\n{out / 'audit.json'}\n"
    if examiner:
        usage = examiner.usage
        text += (
            f"{usage.requests} requests, {usage.refused} of them refused, {usage.from_cache} answered from the cache; "
            f"{usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated\n"
        )
    return text
