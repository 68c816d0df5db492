"""Environments as parquet: one file, or a folder that the `datasets` library and the Hugging Face hub read.

`papergym import papergym` reads both back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from papergym.data_pipeline.imports.files import load_pyarrow
from papergym.environment import STAGES, Environment, checked_records
from papergym.errors import InputError
from papergym.files import atomic_directory, atomic_write

_SPLITS = {None: "train", "heldout": "test"}  # what the hub calls ours
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
_CARD = """\
---
configs:
- config_name: default
  data_files:
{files}
size_categories:
- {size}
tags:
- rubrics
- research-plans
---

# {name}

{count} environments for training on research plans with rubrics, written by papergym.

| field | |
|---|---|
| `id`, `domain` | |
| `question` | what a model is asked; with `messages`, the same conversation as one text |
| `rubric` | criteria: `text`, `dimension` (method, experiment), `source` (question, answer, both), `weight` (negative: lost when met) |
| `reference` | a plan of the source's authors |
| `stages` | {stages} of the source |
| `provenance` | where it comes from, a JSON object as text |
| `messages` | a chat prompt, where the source has one |
| `benchmark`, `split` | |

Splits: {splits}. Domains: {domains}. Whoever publishes this adds the licence of the sources.
"""


def export_environments(environments: Sequence[Environment], out: str | Path) -> list[Path]:
    """Writes OUT, a .parquet file, or a new folder OUT with data/SPLIT-00000-of-00001.parquet and README.md. Returns the files.

    An environment's split names its file: "train" without one, "test" for "heldout". Nothing is lost but the order across splits.
    Raises InputError for a folder that is there already, a split that is no word, and a message that has more than role and content.
    """
    out = Path(out)
    checked_records(environments)
    if out.suffix == ".parquet":
        _write_parquet(out, environments)
        return [out]
    if out.exists():
        raise InputError(f"{out}: is there already; choose another folder or remove it")
    splits: dict[str, list[Environment]] = {}
    for environment in environments:
        name = _SPLITS.get(environment.split, environment.split)
        if name is None or not name.isidentifier():
            raise InputError(f"environment {environment.id!r}, split: {environment.split!r} can't name a split of a data set; use a word")
        splits.setdefault(name, []).append(environment)
    names = {split: f"data/{split}-00000-of-00001.parquet" for split in splits}
    with atomic_directory(out) as folder:
        (folder / "data").mkdir()
        for split, members in splits.items():
            _write_parquet(folder / names[split], members)
        (folder / "README.md").write_text(_card(out.name, splits, names), encoding="utf-8")
    return [out / name for name in (*names.values(), "README.md")]


def _write_parquet(path: Path, environments: Sequence[Environment]) -> None:
    pyarrow, parquet = load_pyarrow()
    table = pyarrow.Table.from_pylist([_row(environment) for environment in environments], schema=_schema(pyarrow))
    with atomic_write(path) as file:
        parquet.write_table(table, file, row_group_size=1000)


def _row(environment: Environment) -> dict[str, Any]:
    for index, message in enumerate(environment.messages or ()):
        if extra := sorted(set(message) - {"role", "content"}):
            raise InputError(f"environment {environment.id!r}, messages[{index}]: {extra[0]!r} has no column; only role and content have")
    return environment.to_record() | {"provenance": orjson.dumps(environment.provenance).decode()}


def _schema(pyarrow: Any) -> Any:
    text = pyarrow.string()
    criterion = pyarrow.struct({"text": text, "dimension": text, "source": text, "weight": pyarrow.float64()})
    columns = dict.fromkeys(("id", "domain", "question"), text) | {"rubric": pyarrow.list_(criterion), "reference": text}
    columns |= {"stages": pyarrow.struct(dict.fromkeys(STAGES, text)), "provenance": text}
    columns |= {"messages": pyarrow.list_(pyarrow.struct({"role": text, "content": text})), "benchmark": text, "split": text}
    return pyarrow.schema(list(columns.items()))


def _card(name: str, splits: Mapping[str, Sequence[Environment]], files: Mapping[str, str]) -> str:
    count = sum(map(len, splits.values()))
    domains = Counter(environment.domain for members in splits.values() for environment in members)
    return _CARD.format(
        files="\n".join(f"  - split: {split}\n    path: {file}" for split, file in files.items()),
        size=next((label for limit, label in _SIZES.items() if count < limit), "1M<n<10M"),
        name=name,
        count=count,
        stages=", ".join(f"`{stage}`" for stage in STAGES),
        splits=", ".join(f"{split} {len(members)}" for split, members in splits.items()),
        domains=", ".join(f"{domain} {number}" for domain, number in domains.most_common()),
    )
