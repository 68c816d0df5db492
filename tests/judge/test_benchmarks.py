"""papergym generate and papergym eval over several benchmarks, and their table."""

import json
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from papergym.cli import main
from papergym.environment import write_environments
from papergym.errors import InputError
from papergym.files import write_json, write_jsonl
from papergym.judge.benchmark_table import base_of, benchmark_table
from papergym.judge.benchmark_text import as_latex, as_markdown, as_text
from papergym.statistics import estimate


def write_row(folder, row, coverages, digest="d", judge="j"):
    """coverages: environment -> of its answers."""
    folder.mkdir(exist_ok=True)
    answers = [
        {"environment": name, "plan": "" if value == 0 else "I can't help with that." if value is None else "A plan.", "coverage": value}
        for name, values in coverages.items()
        for value in values
    ]
    write_jsonl(folder / f"{row}.jsonl", answers)
    write_json(folder / f"{row}.json", {"arguments": {"environments_sha256": digest, "judge": {"kind": judge, "version": "1"}}})


@pytest.fixture
def folders(tmp_path):
    one, two = tmp_path / "innov", tmp_path / "de_sign"
    write_row(one, "base", {"a": [0.2, 0.4], "b": [0.1]})
    write_row(one, "base-opsd", {"a": [0.5, None], "b": [0.3]})
    write_row(two, "base", {"x": [0.0], "y": [0.6]})
    write_row(two, "base-opsd", {"x": [0.1], "y": [0.5]})
    write_row(two, "base-grpo", {"x": [0.3], "y": [0.9]})
    write_row(two, "other", {"x": [1.0]}, digest="of other environments")
    write_json(one / "notes.json", [1])
    return {"innov": one, "de_sign": two}


DIGESTS = {"innov": "d", "de_sign": "d"}


def test_table_by_hand(folders):
    table = benchmark_table(folders, DIGESTS)
    base, grpo, opsd = table["rows"]
    assert [row["row"] for row in table["rows"]] == ["base", "base-grpo", "base-opsd"] and opsd["base"] == base["base"] == "base"
    assert base["cells"]["innov"]["coverage"] == estimate([30.0, 10.0]) and base["cells"]["innov"]["difference"] is None
    cell = opsd["cells"]["innov"]
    assert cell["coverage"]["mean"] == pytest.approx(40) and cell["difference"]["mean"] == pytest.approx(20)
    assert cell["difference"] == pytest.approx(estimate([20.0, 20.0]))
    assert (cell["environments"], cell["answers"], cell["unscored"], cell["empty"], cell["refused"]) == (2, 3, 1, 0, 1)
    assert base["cells"]["de_sign"]["empty"] == 1
    assert opsd["average"]["coverage"]["mean"] == pytest.approx((40 + 30) / 2)
    assert opsd["average"]["difference"]["mean"] == pytest.approx((20 + 0) / 2)
    assert opsd["average"]["difference"]["low"] == pytest.approx(5) and opsd["average"]["difference"]["high"] == pytest.approx(15)
    assert (
        grpo["cells"]["innov"] is None and grpo["average"] is None and grpo["cells"]["de_sign"]["difference"]["mean"] == pytest.approx(30)
    )
    with pytest.raises(InputError, match="--base sft: no row of that name; there are base, base-grpo, base-opsd"):
        benchmark_table(folders, DIGESTS, ["sft"])


def test_rows_go_to_the_base_that_their_name_begins_with():
    bases = ["qwen3-1.7b", "qwen3-1.7b-it"]
    assert [base_of(row, bases) for row in ("qwen3-1.7b-it-opsd", "qwen3-1.7b-opsd", "gpt")] == [bases[1], bases[0], None]
    assert base_of("opsd", ["base"]) == base_of("base", ["base"]) == "base"


def test_the_table_in_three_forms(folders):
    table = benchmark_table(folders, DIGESTS)
    text, markdown, latex = as_text(table), as_markdown(table), as_latex(table)
    lines = text.splitlines()
    assert lines[0].split() == ["innov", "de_sign", "Avg"]
    assert lines[1].split() == ["base", "20.00", "30.00", "25.00"]
    assert lines[2].split() == ["w/", "grpo", "–", "60.00*", "+30.00", "–"]
    assert lines[3].split() == ["w/", "opsd", "40.00*", "+20.00", "30.00", "+0.00", "35.00*", "+10.00"]
    assert "base-opsd: average 35.00 [" in text and "difference +10.00 [+5.00, +15.00], answers 5, unscored 1, empty 0, refused 1" in text
    assert "| w/ opsd | **40.00**<sub>+20.00</sub> | 30.00<sub>+0.00</sub>" in markdown
    assert r" & innov & de\_sign & Avg \\" in latex and latex.count(r"\midrule") == 1
    assert r"w/ grpo & -- & \textbf{60.00}$_{+30.00}$ & -- \\" in latex
    assert as_latex(benchmark_table(folders, DIGESTS, ["base-opsd", "base-grpo"])).count(r"\midrule") == 3


@pytest.fixture
def files(tmp_path, environments):
    for name, chosen in (("innov", environments[:2]), ("design", [replace(environments[2], id="x"), environments[0]])):
        write_environments(tmp_path / f"{name}.jsonl", chosen)
    return [word for name in ("innov", "design") for word in ("--environments", str(tmp_path / f"{name}.jsonl"))]


def call(command, *arguments):
    return CliRunner().invoke(main, [command, *map(str, arguments)])


def test_several_benchmarks_with_one_command(tmp_path, tiny_policy, files):
    options = ["--model", tiny_policy, "--samples", "2", "--max-tokens", "6", "--dtype", "float32", *files]
    for row, seed in (("base", 0), ("opsd", 1)):
        done = call("eval", *options, "--seed", seed, "--out", tmp_path / "out" / row)
        assert done.exit_code == 0, (done.output, done.exception)
    assert "innov: reward" in done.stdout and "w/ opsd" in done.stdout
    assert done.stdout.rstrip().endswith((tmp_path / "out/coverage.txt").read_text().rstrip())
    table = json.loads((tmp_path / "out/coverage.json").read_text())
    assert [row["row"] for row in table["rows"]] == ["base", "opsd"] and table["benchmarks"] == ["innov", "design"]
    assert table["judge"]["kind"] == "lexical" and table["judge"]["version"].startswith("3-")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "innov",
        "design",
        *(f"coverage.{e}" for e in ("json", "txt", "md", "tex")),
    }

    (tmp_path / "strict.toml").write_text('kind = "lexical"\nalpha = 1.0\n')
    other = call("eval", *options, "--out", tmp_path / "out" / "grpo", "--judge", tmp_path / "strict.toml")
    assert other.exit_code == 2 and "scored by the judge {'kind': 'lexical'" in other.output and "'alpha': 1.0" in other.output
    assert not (tmp_path / "out/innov/grpo.jsonl").exists()

    # Answered first and scored afterwards, each with one command, they are the same.
    assert call("generate", *options, "--out", tmp_path / "answers" / "base").exit_code == 0
    assert "reward" not in (tmp_path / "answers/innov/base.jsonl").read_text()
    written = [word for name in ("innov", "design") for word in ("--answers", tmp_path / "answers" / name / "base.jsonl")]
    done = call("eval", *files, *written, "--out", tmp_path / "later" / "base")
    assert done.exit_code == 0, (done.output, done.exception)
    for name in ("innov", "design"):
        assert (tmp_path / "later" / name / "base.jsonl").read_bytes() == (tmp_path / "out" / name / "base.jsonl").read_bytes()


def test_an_engine_of_another_kind_and_what_can_not_be_done(tmp_path, tiny_policy, files):
    engine = tmp_path / "engine.toml"
    engine.write_text(f'kind = "torch"\npath = "{tiny_policy}"\ndtype = "float32"\n')
    options = ["--model", tiny_policy, "--samples", "1", "--max-tokens", "6", *files]
    assert call("generate", *options, "--engine", engine, "--out", tmp_path / "a" / "base").exit_code == 0
    assert call("generate", *options, "--dtype", "float32", "--out", tmp_path / "b" / "base").exit_code == 0
    assert (tmp_path / "a/innov/base.jsonl").read_bytes() == (tmp_path / "b/innov/base.jsonl").read_bytes()
    engine.write_text(engine.read_text() + "# a comment\n")
    assert call("generate", *options, "--engine", engine, "--out", tmp_path / "a" / "base").exit_code == 0  # the same engine
    other = call("generate", *options, "--dtype", "bfloat16", "--out", tmp_path / "b" / "base")
    assert other.exit_code == 2 and "it was made with dtype 'float32', not 'bfloat16'" in other.stderr
    model = shutil.copytree(tiny_policy, tmp_path / "model")
    alone = ["generate", "--model", model, *options[2:8], "--dtype", "float32", "--out", tmp_path / "d" / "base"]
    assert call(*alone).exit_code == call(*alone).exit_code == 0
    weights = load_file(model / "model.safetensors")
    save_file({name: tensor * 2 for name, tensor in weights.items()}, model / "model.safetensors", {"format": "pt"})
    other = call(*alone)
    assert other.exit_code == 2 and "it was made with weights_sha256" in other.stderr
    taken = call("generate", *options, "--out", tmp_path / "c" / "coverage")
    assert taken.exit_code == 2 and "'coverage' is the name of the table" in taken.stderr and not (tmp_path / "c").exists()
    out = ["--out", tmp_path / "c" / "base"]
    shutil.copy(tmp_path / "innov.jsonl", tmp_path / "a/innov.jsonl")
    for arguments, words in (
        (["eval", *files, *out], "give either --model"),
        (["eval", *options, *out, "--answers", "x.jsonl"], "give either --model"),
        (["eval", *files, *out, "--answers", "x.jsonl"], "--answers: 1 files for 2"),
        (["eval", *options, *out, "--environments", tmp_path / "a/innov.jsonl"], "two files have the same name"),
        (["eval", *options, *out, "--base", "sft"], "--base sft: no row of that name"),
        (["generate", *options, *out, "--thinking-budget", "3"], "has no token <think>"),
        (["generate", *options, *out, "--engine", engine, "--adapter", tmp_path], "only the built-in engine loads one"),
    ):
        refused = call(*arguments)
        assert refused.exit_code == 2 and words in refused.output, refused.output
