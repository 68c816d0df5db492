"""What `papergym audit` does: one or several data sets, measured, tabled and drawn beside each other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papergym.data_pipeline.audits.ask import LEAKAGE, TYPE, Examiner, Probe, open_examiner
from papergym.data_pipeline.audits.composition import composition, duplicates, type_shares
from papergym.data_pipeline.audits.faithfulness import faithfulness
from papergym.data_pipeline.audits.labels import Answer, Key, Verdicts, compare, read_answers, read_labels
from papergym.data_pipeline.audits.rates import rates_by_group
from papergym.data_pipeline.audits.sheet import leakage_items, verdict_items, write_sheet
from papergym.data_pipeline.audits.words import leaked, overlaps, shares_above
from papergym.data_pipeline.subsets import shuffled
from papergym.environment import Environment, read_environments
from papergym.errors import InputError
from papergym.files import atomic_write, write_json, write_jsonl

Datasets = Mapping[str, Sequence[Environment]]


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
    datasets = _read(files)
    rows = {path.stem: read_answers(path, datasets) for path in answers}
    if sheet:
        chosen = {name: shuffled(environments, seed)[:sheet] for name, environments in datasets.items()}
        return write_sheet(out, [*leakage_items(chosen), *verdict_items(rows, sheet, seed)])
    examiner = open_examiner(judge) if judge else None
    drawn = {name: shuffled(environments, seed)[:sample] if examiner else [] for name, environments in datasets.items()}
    found = {probe.name: _asked(examiner, probe, drawn) for probe in (LEAKAGE, TYPE)}
    words = {name: {e.id: overlaps(e) for e in environments} for name, environments in datasets.items()}
    figures: dict[str, Any] = {
        "files": {name: _figures(environments, words[name], drawn[name], found, name) for name, environments in datasets.items()},
        "duplicates": duplicates(datasets),
    }
    if papers is not None:
        for name, environments in datasets.items():
            figures["files"][name]["faithfulness"] = faithfulness(environments, papers)
    by_judge = {"words": {(n, i): [leaked(o) for o in row] for n, of in words.items() for i, row in of.items()}}
    if examiner:
        by_judge["model"] = {(name, i): row for name, of in found[LEAKAGE.name].items() for i, row in of.items()}
    figures["agreement"] = _agreement(datasets, by_judge, rows, labels)
    write_jsonl(out / "criteria.jsonl", _criteria(datasets, words, found))
    write_json(out / "audit.json", figures)
    text = _report(figures, examiner, out)
    with atomic_write(out / "audit.md") as file:
        file.write(text.encode())
    return text


def _read(files: Sequence[Path]) -> dict[str, list[Environment]]:
    datasets: dict[str, list[Environment]] = {}
    for path in files:
        if path.stem in datasets:
            raise InputError(f"{path}: another file is named {path.stem} too; rename one, the name is its row in tables")
        datasets[path.stem] = read_environments(path)
    return datasets


def _asked(examiner: Examiner | None, probe: Probe, drawn: Datasets) -> dict[str, dict[str, list[bool | None]]]:
    """file -> environment -> answers; empty without an examiner."""
    if examiner is None:
        return {}
    return {name: dict(zip((e.id for e in chosen), examiner.ask(probe, chosen), strict=True)) for name, chosen in drawn.items()}


def _figures(
    environments: Sequence[Environment],
    words: Mapping[str, Sequence[float | None]],
    drawn: Sequence[Environment],
    found: Mapping[str, Mapping[str, Mapping[str, list[bool | None]]]],
    name: str,
) -> dict[str, Any]:
    by_words = rates_by_group(environments, [[leaked(overlap) for overlap in words[e.id]] for e in environments])
    figures: dict[str, Any] = {"composition": composition(environments), "leakage": {"words": by_words}, "types": {}}
    if drawn:
        verdicts, types = found[LEAKAGE.name][name], found[TYPE.name][name]
        figures["leakage"]["model"] = rates_by_group(drawn, [verdicts[e.id] for e in drawn])
        dimensions = {None: None, True: "experiment", False: "method"}
        figures["types"]["model"] = type_shares([[dimensions[answer] for answer in types[e.id]] for e in drawn])
    figures["types"]["labels"] = figures["composition"].pop("types")
    figures["overlaps"] = shares_above([overlap for row in words.values() for overlap in row])
    return figures


def _agreement(
    datasets: Datasets, by_judge: dict[str, Verdicts], rows: Mapping[str, Sequence[Answer]], labels: Sequence[Path]
) -> dict[str, Any]:
    """ "leakage": words, model and people; "verdicts": the verdicts in the answers, and people."""
    environments: dict[Key, Environment] = {(name, e.id): e for name, found in datasets.items() for e in found}
    in_answers: dict[str, Verdicts] = {}
    if rows:
        in_answers["judge"] = {(row, a.environment.id, a.sample): list(a.verdicts) for row, found in rows.items() for a in found}
        environments |= {(row, a.environment.id, a.sample): a.environment for row, found in rows.items() for a in found}
    people = read_labels(labels, datasets, rows)
    return {
        "leakage": compare(by_judge, {person: leakage for person, (leakage, _) in people.items()}, environments),
        "verdicts": compare(in_answers, {person: verdicts for person, (_, verdicts) in people.items()}, environments),
    }


def _criteria(datasets: Datasets, words: Mapping[str, Mapping[str, Any]], found: Mapping[str, Any]) -> list[dict[str, Any]]:
    records = []
    for name, environments in datasets.items():
        for environment in environments:
            asked = {probe: answers[name][environment.id] for probe, answers in found.items() if environment.id in answers.get(name, {})}
            for index, criterion in enumerate(environment.rubric):
                record = {"file": name, "environment": environment.id, "criterion": index, "text": criterion.text}
                record |= {"overlap": words[name][environment.id][index], "leaked_by_words": leaked(words[name][environment.id][index])}
                records.append(record | {f"{probe}_by_model": answers[index] for probe, answers in asked.items()})
    return records


def _report(figures: Mapping[str, Any], examiner: Examiner | None, out: Path) -> str:
    from papergym.data_pipeline.audits.figures import draw_composition, draw_leakage, markdown  # matplotlib takes a second to import

    draw_composition(figures["files"], out / "composition.svg")
    draw_leakage(figures["files"], out / "leakage.svg")
    text = f"{markdown(figures)}\n{out / 'composition.svg'}\n{out / 'leakage.svg'}\n{out / 'audit.json'}\n"
    if examiner:
        usage = examiner.usage
        text += (
            f"{usage.requests} requests, {usage.from_cache} answered from the cache; {usage.prompt_tokens} prompt tokens, "
            f"{usage.completion_tokens} generated\n"
        )
    return text
