"""The demo recipe, whole, on a tiny model: every stage runs, the table comes from files, and a second call repeats nothing."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from papergym.bench.tiny import RECIPE, write_tiny_model
from papergym.cli import main

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A finished demo run: (its directory, the command's arguments, its output)."""
    directory = tmp_path_factory.mktemp("demo")
    for slug in ("bid-preparation", "bursty-compaction", "late-invoices"):  # the last one is marked as held out
        shutil.copytree(ROOT / "examples/papers" / slug, directory / "papers" / slug)
    model = write_tiny_model(directory / "model", context=16384)
    (directory / "recipe.toml").write_text(RECIPE.format(model=model, steps=2))
    arguments = ["demo", "--papers", directory / "papers", "--run", directory / "run", "--config", directory / "recipe.toml"]
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return directory / "run", [str(argument) for argument in arguments], result.stdout


def test_the_long_demo_has_five_rows_over_all_seeds_and_papers(demo, tmp_path):
    _, arguments, _ = demo
    papers = Path(arguments[arguments.index("--papers") + 1])
    (papers / "demo.txt").write_text("bid-preparation\n")  # not heeded
    arguments = [*arguments, "--long", "--set", "seeds=2", "evaluation.samples=1", "opsd.run.steps=1", "grpo.run.steps=1"]
    arguments[arguments.index("--run") + 1] = str(tmp_path / "run")
    result = CliRunner().invoke(main, arguments)
    (papers / "demo.txt").unlink()
    assert result.exit_code == 0, (result.output, result.exception)
    table = json.loads((tmp_path / "run/table.json").read_text())
    assert [row["row"] for row in table] == ["base", "sft", "opsd", "grpo", "opsd_grpo"]
    for row in table:
        (first, second) = (
            [json.loads(line) for line in (tmp_path / f"run/seed{seed}/eval/{row['row']}.jsonl").read_text().splitlines()]
            for seed in (0, 1)
        )
        assert [answer["response"] for answer in first] != [answer["response"] for answer in second]
        assert row["samples"] == 2 and row["reward"]["mean"] == pytest.approx((first[0]["reward"] + second[0]["reward"]) / 2)
        assert row["entropy"]["mean"] == pytest.approx((first[0]["entropy"] + second[0]["entropy"]) / 2)
    steps = {path.name: json.loads((path / "config.json").read_text())["run"]["steps"] for path in (tmp_path / "run/seed1").glob("[sog]*")}
    assert steps == {"sft": 2, "opsd": 2, "grpo": 2, "opsd_grpo_1": 1, "opsd_grpo_2": 1}
    assert result.stdout.count("no environment was drawn twice") == 4  # two seeds, two rows with GRPO
    before = files(tmp_path / "run")
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert files(tmp_path / "run") == before


def files(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_every_stage_leaves_its_files_and_the_table_says_what_they_say(demo):
    run, _, output = demo
    table = {row["row"]: row for row in json.loads((run / "table.json").read_text())}
    assert list(table) == ["base", "opsd", "grpo"]
    heldout = [json.loads(line)["id"] for line in (run / "environments/heldout.jsonl").read_text().splitlines()]
    for name, row in table.items():
        answers = [json.loads(line) for line in (run / f"eval/{name}.jsonl").read_text().splitlines()]
        assert {answer["environment"] for answer in answers} == set(heldout)
        assert len(answers) == row["samples"] == 2 * len(heldout)
        rewards = [answer["reward"] for answer in answers]
        assert row["reward"]["mean"] == pytest.approx(sum(rewards) / len(rewards))
        assert f"{row['reward']['mean']:.3f}" in output
    for stage in ("opsd", "grpo"):
        steps = [json.loads(line)["step"] for line in (run / stage / "metrics.jsonl").read_text().splitlines()]
        assert steps == [1, 2]
        assert (run / stage / "adapter/adapter_model.safetensors").exists()
        assert list((run / stage / "tensorboard").iterdir())
    assert "no environment was drawn twice" in output
    assert (run / "report.html").stat().st_size > 10_000
    assert str(run / "report.html") in output


def test_a_second_call_repeats_nothing(demo):
    run, arguments, _ = demo
    before = files(run)
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert files(run) == before


def test_a_damaged_row_is_not_taken_for_a_finished_one(demo):
    run, arguments, _ = demo
    answers = run / "eval/base.jsonl"
    whole = answers.read_bytes()
    answers.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    result = CliRunner().invoke(main, arguments)
    answers.write_bytes(whole)
    assert result.exit_code == 2 and "base.jsonl: not the" in result.stderr, result.stderr
    weights = run / "opsd/adapter/adapter_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    result = CliRunner().invoke(main, arguments)
    weights.write_bytes(whole)
    assert result.exit_code == 2 and "not a complete safetensors file" in result.stderr, result.stderr


@pytest.mark.parametrize(
    "setting, words",
    [
        ("evaluation.samples=0", "'evaluation.samples' has the value 0: at least 1"),
        ("evaluation.max_tokens=0", "'evaluation.max_tokens'"),
        ("evaluation.temperature=nan", "'evaluation.temperature' has the value nan: a finite number"),
        ("evaluation.seed=-1", "'evaluation.seed'"),
        ("evaluation.judge=nobody", "'evaluation.judge'"),
        ("model.path=nowhere", "'model.path': nowhere: no such model"),
        ("model.device=tpu", "'model.device': device 'tpu' can't be used here"),
        ("heldout_share=nan", "'heldout_share'"),
        ("opsd.run=5", "'opsd.run' is a table, not 5"),
        ("grpo.run=x", "'grpo.run' is a table, not 'x'"),
        ("opsd.data=5", "'opsd.data' is a table, not 5"),
        ("opsd.model=x", "'opsd.model' is a table, not 'x'"),
        ("grpo.grpo.clip_low=nan", "'grpo.clip_low' has the value nan"),
        ("grpo.grpo.kl_weight=inf", "'grpo.kl_weight' has the value inf: a finite number"),
        ("grpo.sampling.temperature=nan", "'sampling.temperature' has the value nan"),
    ],
)
@pytest.mark.parametrize("long", [False, True])
def test_a_wrong_setting_is_named_and_leaves_nothing_behind(demo, tmp_path, setting, words, long):
    _, arguments, _ = demo
    arguments = [*arguments, *(["--long"] if long else []), "--set", setting]
    arguments[arguments.index("--run") + 1] = str(tmp_path / "run")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and words in " ".join(result.stderr.split()), result.stderr
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] in ([], [".lock"])


def test_another_recipe_in_the_same_directory_is_refused(demo):
    _, arguments, _ = demo
    result = CliRunner().invoke(main, [*arguments, "--set", "grpo.run.steps=3"])
    assert result.exit_code == 2 and "another 'grpo'" in result.stderr
    result = CliRunner().invoke(main, [*arguments, "--set", "grpo.grpo.kl_wieght=3"])
    assert result.exit_code == 2 and "'grpo.grpo.kl_wieght'" in result.stderr
