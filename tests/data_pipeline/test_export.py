"""Environments to parquet and back: what is read is what was written."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from papergym.data_pipeline.export import export_environments
from papergym.data_pipeline.imports import import_files
from papergym.environment import Criterion, Environment, read_environments, write_environments
from papergym.errors import InputError

parquet = pytest.importorskip("pyarrow.parquet")

FULL = Environment(
    "full",
    "cs",
    "Why?\n\n“So”?",
    (Criterion("a", "method", "both", 2.5), Criterion("b", weight=-1.0)),
    reference="Plan.",
    stages={"goal": "g", "background": "", "method": "m", "experiment": "e"},
    provenance={"paper": "p", "date": None, "sections": {"method": [["Design", 3]]}, "criteria": [{"tags": []}]},
    messages=({"role": "user", "content": "Why?"}, {"role": "assistant", "content": ""}),
    benchmark="B",
    split="heldout",
)
BARE = Environment("bare", "other", "How?", (Criterion("c"),))


def read_back(exported, tmp_path):
    import_files("papergym", [exported], tmp_path / "back.jsonl")
    return read_environments(tmp_path / "back.jsonl")


@pytest.mark.parametrize("name", ["one.parquet", "folder"])
def test_a_round_trip_loses_nothing(tmp_path, name):
    export_environments([BARE, FULL], tmp_path / name)
    found = read_back(tmp_path / name, tmp_path)
    assert sorted(found, key=lambda environment: environment.id) == [BARE, FULL]
    write_environments(tmp_path / "same.jsonl", found)
    assert (tmp_path / "back.jsonl").read_bytes() == (tmp_path / "same.jsonl").read_bytes()


TEXT = st.text(min_size=1, max_size=20).filter(lambda text: text.strip())
ENVIRONMENT = st.builds(
    Environment,
    id=TEXT,
    domain=TEXT,
    question=TEXT,
    rubric=st.lists(
        st.builds(
            Criterion,
            TEXT,
            st.sampled_from([None, "method", "experiment"]),
            st.sampled_from([None, "question", "both"]),
            st.floats(-1e9, 1e9).map(lambda weight: abs(weight) + 0.5),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    reference=st.none() | TEXT,
    provenance=st.dictionaries(TEXT, st.none() | TEXT | st.integers(-5, 5) | st.lists(TEXT, max_size=2), max_size=3),
    benchmark=st.none() | TEXT,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ENVIRONMENT, min_size=1, max_size=3, unique_by=lambda environment: environment.id))
def test_any_environments_come_back(tmp_path, environments):
    export_environments(environments, tmp_path / "any.parquet")
    assert read_back(tmp_path / "any.parquet", tmp_path) == environments


def test_files_of_environments_are_joined_and_checked(tmp_path):
    for name, made in (("a", [FULL]), ("b", [BARE, FULL])):
        write_environments(tmp_path / f"{name}.jsonl", made)
    summary = import_files("papergym", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "all.jsonl")
    assert read_environments(summary.out) == [FULL, BARE] and summary.rejected == 1
    (tmp_path / "c.jsonl").write_text(json.dumps(BARE.to_record() | {"provenance": "{"}))
    with pytest.raises(InputError, match="record 1, provenance: not valid JSON"):
        import_files("papergym", [tmp_path / "c.jsonl"], tmp_path / "all.jsonl")


def test_the_folder_is_laid_out_by_split(tmp_path):
    files = export_environments([BARE, FULL], tmp_path / "set")
    assert [str(path.relative_to(tmp_path / "set")) for path in files] == [
        "data/train-00000-of-00001.parquet",
        "data/test-00000-of-00001.parquet",
        "README.md",
    ]
    assert parquet.read_table(files[0]).column("id").to_pylist() == ["bare"]
    assert parquet.read_table(files[1]).column("id").to_pylist() == ["full"]
    card = files[2].read_text().split("---\n")
    assert card[0] == "" and "- split: test\n    path: data/test-00000-of-00001.parquet" in card[1] and "2 environments" in card[2]
    assert json.loads(parquet.read_table(files[1]).column("provenance")[0].as_py()) == FULL.provenance


def test_what_can_not_be_exported_is_refused(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="there: is there already"):
        export_environments([BARE], tmp_path / "there")
    with pytest.raises(InputError, match=r"'bare', split: '\.\./x' can't name a split"):
        export_environments([Environment("bare", "cs", "Q", (Criterion("c"),), split="../x")], tmp_path / "set")
    with pytest.raises(InputError, match=r"'bare', messages\[0\]: 'name' has no column"):
        messages = ({"role": "user", "content": "Q", "name": "n"},)
        export_environments([Environment("bare", "cs", "Q", (Criterion("c"),), messages=messages)], tmp_path / "a.parquet")
    with pytest.raises(InputError, match="'bare', id: used twice"):
        export_environments([BARE, BARE], tmp_path / "a.parquet")
    assert not (tmp_path / "set").exists() and not (tmp_path / "a.parquet").exists()
    with pytest.raises(InputError, match="empty: holds no data"):
        (tmp_path / "empty").mkdir()
        import_files("papergym", [tmp_path / "empty"], tmp_path / "back.jsonl")
