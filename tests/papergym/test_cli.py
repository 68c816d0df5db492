"""Bad input, as a user meets it: one sentence that names file and field, exit code 2, no traceback."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.distill.train import OpsdConfig
from papergym.distill.train import run as run_opsd
from papergym.environment import write_environments
from papergym.training.command import training_command


def refused(command, arguments):
    """Runs a command that must fail with code 2 and returns the sentence that it ends with."""
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    *before, line = result.stderr.strip().splitlines()
    assert line.startswith("papergym: ") and not any("Traceback" in other for other in before), result.stderr
    return line


GOOD = {"id": "a", "domain": "cs", "question": "Why?", "rubric": [{"text": "c"}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["paper.tex"]),
        (bytes(range(256)) * 40, ["paper.tex"]),
        (b"\\documentclass{article}\\begin{document}\\end{document}", ["paper.tex"]),
    ],
    ids=["empty", "binary", "no text"],
)
def test_build_refuses_what_is_no_paper(tmp_path, content, words):
    (tmp_path / "paper.tex").write_bytes(content)
    line = refused(main, ["build", tmp_path / "paper.tex", "--out", tmp_path / "out.jsonl"])
    assert all(word in line for word in words), line
    assert not (tmp_path / "out.jsonl").exists()


def test_missing_files_are_named(tmp_path):
    assert "gone.tex" in refused(main, ["build", tmp_path / "gone.tex", "--out", tmp_path / "o.jsonl"])
    assert "gone" in refused(main, ["report", tmp_path / "gone"])
    arguments = ["eval", "--model", tmp_path / "gone-model", "--environments", tmp_path / "e.jsonl", "--out", tmp_path / "row"]
    assert "e.jsonl" in refused(main, arguments)
    (tmp_path / "e.jsonl").write_text(json.dumps(GOOD) + "\n")
    assert "gone-model" in refused(main, arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(GOOD) + "\n" + json.dumps(GOOD)[:30], ["e.jsonl", "line 2", "cut off"]),
        (json.dumps({**GOOD, "rubric": [{"dimension": "method"}]}) + "\n", ["e.jsonl", "line 1", "rubric[0].text"]),
        (json.dumps({**GOOD, "questions": "?"}) + "\n", ["e.jsonl", "line 1", "'questions'"]),
    ],
)
def test_eval_names_the_line_and_field(tmp_path, tiny_policy, text, words):
    (tmp_path / "e.jsonl").write_text(text)
    line = refused(main, ["eval", "--model", tiny_policy, "--environments", tmp_path / "e.jsonl", "--out", tmp_path / "row"])
    assert all(word in line for word in words), line


def test_eval_refuses_a_prompt_longer_than_the_context(tmp_path, tiny_policy):
    (tmp_path / "e.jsonl").write_text(json.dumps({**GOOD, "question": "Why? " * 1000}) + "\n")
    line = refused(main, ["eval", "--model", tiny_policy, "--environments", tmp_path / "e.jsonl", "--out", tmp_path / "row"])
    assert "2048" in line, line


def trainer_arguments(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "train.jsonl", environments)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        f'[run]\ndir = "{tmp_path / "run"}"\nsteps = 1\n[model]\npath = "{tiny_policy}"\ndtype = "float32"\n'
        f'[data]\ntrain = "{tmp_path / "train.jsonl"}"\nprompts_per_step = 1\n[lora]\nrank = 4\nalpha = 8\n[sampling]\nmax_tokens = 4\n'
    )
    return training_command(OpsdConfig, run_opsd, "OPSD"), ["--config", recipe]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["--set", "optim.rate=1"], ["recipe.toml", "'optim.rate'"]),
        (["--set", "run.steps=0"], ["run.steps", "0"]),
        (["--set", "opsd.context=answer"], ["opsd.context", "'answer'", "'rubric'"]),
        (["--set", "opsd.beta=1.5"], ["beta", "1.5"]),
        (["--set", "opsd.divergence=hellinger"], ["'hellinger'"]),
        (["--set", "opsd.teacher=old"], ["teacher", "'old'", "live"]),
        (["--set", "run.steps=2", "optim.lr=fast"], ["optim.lr", "'fast'"]),
        (["--set", "optim.lr=inf"], ["optim.lr", "inf"]),
        (["--set", "optim.beta1=1.5"], ["optim.beta1", "1.5"]),
        (["--set", "optim.weight_decay=-1.0"], ["optim.weight_decay", "-1"]),
        (["--set", "sampling.top_p=1.5"], ["sampling.top_p", "1.5"]),
        (["--set", "opsd.backend=nope"], ["opsd.backend", "'nope'", "torch"]),
        (["--set", "run.seed=100000000000000000000000"], ["run.seed"]),
    ],
)
def test_trainers_name_the_key_before_loading_a_model(tmp_path, tiny_policy, environments, overrides, words):
    command, arguments = trainer_arguments(tmp_path, tiny_policy, environments)
    line = refused(command, [*arguments, *overrides])
    assert all(word in line for word in words), line
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_model_is_refused(tmp_path, tiny_policy, environments):
    command, arguments = trainer_arguments(tmp_path, tiny_policy, environments)
    assert CliRunner().invoke(command, [str(a) for a in arguments]).exit_code == 0
    adapter = tmp_path / "run" / "adapter"
    line = refused(command, [*arguments, "--set", f"run.dir={tmp_path / 'next'}", "model.path=smollm2-135m", f"model.adapter={adapter}"])
    assert "adapter_model.safetensors" in line or str(adapter) in line, line
    line = refused(command, [*arguments, "--resume", "--set", "run.steps=2", "lora.rank=8"])
    assert "lora.rank was 4" in line, line


def test_eval_prints_the_reward_with_its_interval(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "e.jsonl", environments)
    files = ["--model", str(tiny_policy), "--environments", str(tmp_path / "e.jsonl"), "--out", str(tmp_path / "row")]
    result = CliRunner().invoke(main, ["eval", *files, "--samples", "2", "--max-tokens", "4", "--dtype", "float32"])
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "row.json").read_text())
    assert f"reward {summary['reward']['mean']:.3f} [" in result.stdout and "over 3 environments" in result.stdout


def test_split_and_devices(tmp_path, tiny_policy, environments):
    write_environments(tmp_path / "all.jsonl", environments)
    sides = [tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"]
    result = CliRunner().invoke(main, ["split", str(tmp_path / "all.jsonl"), "--train", str(sides[0]), "--heldout", str(sides[1])])
    assert result.exit_code == 0, result.output
    ids = [json.loads(line)["id"] for side in sides for line in side.read_text().splitlines()]
    assert sorted(ids) == [environment.id for environment in environments]
    arguments = ["eval", "--model", tiny_policy, "--environments", sides[1], "--out", tmp_path / "row", "--device", "warp"]
    assert "device 'warp'" in refused(main, arguments)


def test_a_lora_table_must_agree_with_the_adapter(tmp_path, tiny_policy, environments):
    command, arguments = trainer_arguments(tmp_path, tiny_policy, environments)
    assert CliRunner().invoke(command, [str(a) for a in arguments]).exit_code == 0
    again = ["--set", f"run.dir={tmp_path / 'next'}", f"model.adapter={tmp_path / 'run' / 'adapter'}"]
    assert "rank=4" in refused(command, [*arguments, *again, "lora.rank=8"])
    assert CliRunner().invoke(command, [str(a) for a in [*arguments, *again]]).exit_code == 0


def test_a_file_name_that_is_not_utf8_is_one_reject_or_a_readable_name(tmp_path):
    odd = tmp_path / "odd\udcff"
    odd.mkdir()
    (odd / "main.tex").write_text("\\documentclass{article}\\begin{document}Nothing to ask.\\end{document}")
    good = Path(__file__).parent.parent.parent / "examples/papers/rod-silo"
    result = CliRunner().invoke(main, ["build", str(good), str(odd), "--out", str(tmp_path / "out.jsonl")])
    assert result.exit_code == 0, (result.output, result.exception)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1
    assert "odd\ufffd" in json.loads((tmp_path / "out.rejects.jsonl").read_text())["paper"]


def test_outputs_that_are_no_files_are_refused(tmp_path, tiny_policy):
    assert "name a .jsonl file" in refused(main, ["build", tmp_path, "--out", "."])
    assert "name the row" in refused(main, ["eval", "--model", tiny_policy, "--environments", tmp_path / "e.jsonl", "--out", "/"])
