"""What a run directory may lack, what is tolerated with a note, and what is refused by file, line and field."""

import json
from pathlib import Path

import pytest

from papergym.errors import InputError
from papergym.report import write_report, write_table
from papergym.report.read import read_run
from papergym.report.records import TEXT_LIMIT, clip


def change_line(path: Path, number: int, **values) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | values)
    path.write_text("\n".join(lines) + "\n")


def test_everything_is_read_in_order(fake_run):
    run = read_run(fake_run(steps=6, rollouts=2, heldout=2, train=3, samples=2))
    assert [stage.name for stage in run.stages] == ["opsd", "grpo"]
    assert list(run.rows) == ["base", "opsd", "grpo"]
    assert [split for split, _ in run.environments] == ["train"] * 3 + ["heldout"] * 2
    assert [len(stage.metrics) for stage in run.stages] == [6, 6]
    assert [len(stage.rollouts) for stage in run.stages] == [12, 12]
    assert run.rejects == [{"paper": "blank.tex", "reason": "no section has any text"}]
    assert not run.notes


def test_parts_join_to_the_response(fake_run):
    folder = fake_run(steps=2)
    run = read_run(folder)
    records = [json.loads(line) for line in (folder / "eval/grpo.jsonl").read_text().splitlines()]
    for answer, record in zip(run.rows["grpo"], records, strict=True):
        assert answer.plan == record["plan"]
        assert answer.thinking + answer.plan + answer.stop == record["response"]
        assert "</think>" in answer.thinking
        assert answer.raw == ""


def test_response_that_does_not_hold_the_plan_is_kept_whole(fake_run):
    folder = fake_run(steps=2)
    change_line(folder / "eval/base.jsonl", 1, response="one <|x|> two<|im_end|>", plan="one two")
    answer = read_run(folder).rows["base"][0]
    assert (answer.thinking, answer.plan, answer.stop, answer.raw) == ("", "one two", "", "one <|x|> two<|im_end|>")


def test_response_without_an_answer(fake_run):
    folder = fake_run(steps=2)
    change_line(folder / "opsd/rollouts.jsonl", 1, response="<think>\nstill", plan=None)
    answer = read_run(folder).stages[0].rollouts[0]
    assert (answer.thinking, answer.plan) == ("<think>\nstill", "")


@pytest.mark.parametrize("present", ["run.json", "environments", "opsd", "eval", "table.json"])
def test_any_part_alone_is_enough(fake_run, present):
    folder = fake_run(steps=2)
    write_table(folder)
    for path in [path for path in folder.iterdir() if path.name != present]:
        path.rename(folder.parent / path.name)
    run = read_run(folder)
    filled = {
        "run.json": run.info,
        "environments": run.environments,
        "opsd": run.stages,
        "eval": run.rows,
        "table.json": run.table,
    }
    assert [name for name, value in filled.items() if value] == [present]
    assert write_report(folder).stat().st_size > 50_000


def test_nothing_readable_names_the_directory(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}: nothing to report on"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="no such directory"):
        read_run(tmp_path / "absent")


@pytest.mark.parametrize("name", ["opsd/metrics.jsonl", "grpo/rollouts.jsonl"])
def test_a_cut_off_end_is_noted(fake_run, name):
    folder = fake_run(steps=4)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-20])
    run = read_run(folder)
    lines = whole.count(b"\n")
    assert run.notes == [f"{name}: the last line ({lines}) is cut off, as after a kill or in a run under way; it is left out."]
    assert len(run.stages[0].metrics) + len(run.stages[1].metrics) == (7 if "metrics" in name else 8)


def test_a_cut_off_line_elsewhere_is_refused(fake_run):
    folder = fake_run(steps=4)
    path = folder / "grpo/metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:30], *lines[2:]]))
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: not valid JSON"):
        read_run(folder)
    path.write_bytes(lines[0] + b"\n" + lines[1][:30] + b"\n")  # a whole line, but a wrong one
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: not valid JSON"):
        read_run(folder)


def test_steps_run_twice_show_the_later_record(fake_run):
    folder = fake_run(steps=4)
    with open(folder / "opsd/metrics.jsonl", "a") as file:
        file.write('{"step": 3, "divergence": 9.0}\n')
    run = read_run(folder)
    assert [record["step"] for record in run.stages[0].metrics] == [1, 2, 3, 4]
    assert run.stages[0].metrics[2]["divergence"] == 9.0
    assert run.notes == ["opsd/metrics.jsonl: 1 step was recorded twice, as after a resume; the later record is shown."]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("eval/grpo.jsonl", {"specialised": [True]}, "specialised: 1 verdicts for the 10 criteria of environment"),
        ("eval/grpo.jsonl", {"general": [1]}, "general: a list of true, false or null"),
        ("eval/grpo.jsonl", {"reward": "0.3"}, "reward: a number or null is needed, not '0.3'"),
        ("eval/grpo.jsonl", {"plan": 3}, "plan: a string is needed, not 3"),
        ("eval/grpo.jsonl", {"sample": 0}, "sample: 0 of environment .* is there twice"),
        ("grpo/rollouts.jsonl", {"step": None}, "step: a whole number is needed, not None"),
        ("grpo/metrics.jsonl", {"step": "two"}, "step: a whole number is needed, not 'two'"),
    ],
)
def test_bad_fields_are_named(fake_run, name, values, message):
    folder = fake_run(steps=4)
    change_line(folder / name, 2, **values)
    with pytest.raises(InputError, match=rf"{name}, line 2, {message}"):
        read_run(folder)


def test_a_file_of_all_environments_adds_only_what_no_split_has(fake_run):
    folder = fake_run(steps=2, train=2, heldout=2)
    train, heldout = ((folder / f"environments/{name}.jsonl").read_text() for name in ("train", "heldout"))
    extra = json.dumps(json.loads(train.splitlines()[0]) | {"id": "extra"}) + "\n"
    (folder / "environments/all.jsonl").write_text(train + heldout + extra)
    (folder / "environments/all.rejects.jsonl").write_text('{"paper": "p", "reason": "r"}\n')  # as `build` and `split` write
    (folder / "environments/train.left_out.jsonl").write_text('{"environment": "e", "reason": "r"}\n')
    assert [split for split, _ in read_run(folder).environments] == ["train", "train", "heldout", "heldout", "all"]


def test_an_environment_in_both_splits_is_refused(fake_run):
    folder = fake_run(steps=2)
    with open(folder / "environments/heldout.jsonl", "a") as file:
        file.write((folder / "environments/train.jsonl").read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match=r"heldout\.jsonl, id: 'cs/queue-ballast' is in train\.jsonl too"):
        read_run(folder)


def test_clip_keeps_both_ends_and_counts_the_rest():
    text = "a" * TEXT_LIMIT + "b" * 500
    short = clip(text)
    assert short.startswith("a" * (TEXT_LIMIT // 2)) and short.endswith("b" * 500)
    assert "[… 500 characters left out of this report …]" in short
    assert clip("x" * TEXT_LIMIT) == "x" * TEXT_LIMIT


def test_a_table_of_another_shape_is_refused(fake_run):
    folder = fake_run(steps=2)
    (folder / "table.json").write_text('[{"row": "base"}]')
    with pytest.raises(InputError, match=r"table\.json: a list of rows with row, environments, .* is needed"):
        read_run(folder)


def test_a_stage_goes_on_from_the_one_whose_adapter_it_names(fake_run):
    folder = fake_run(steps=2)
    assert [stage.after for stage in read_run(folder).stages] == ["", ""]
    (folder / "grpo/config.json").write_text(json.dumps({"model": {"adapter": "/elsewhere/opsd/adapter"}}))
    assert [stage.after for stage in read_run(folder).stages] == ["", "opsd"]
    (folder / "grpo/config.json").write_text(json.dumps({"model": {"adapter": "/elsewhere/other/adapter"}}))
    assert [stage.after for stage in read_run(folder).stages] == ["", ""]


def test_seeds_are_averaged_step_by_step(long_run):
    folder = long_run(seeds=2, steps=4)
    path = folder / "seed1/grpo/metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))  # one seed is a step behind
    run = read_run(folder)
    assert [stage.name for stage in run.stages] == ["sft", "opsd", "grpo", "opsd_grpo_1", "opsd_grpo_2"]
    assert [stage.after for stage in run.stages] == ["", "", "", "", "opsd_grpo_1"]
    stage = run.stages[2]
    first, second = (
        [json.loads(line) for line in (folder / seed / "grpo/metrics.jsonl").read_text().splitlines()] for seed in ("seed0", "seed1")
    )
    assert [record["step"] for record in stage.metrics] == [1, 2, 3, 4]
    assert stage.metrics[1]["kl"] == pytest.approx((first[1]["kl"] + second[1]["kl"]) / 2)
    assert stage.metrics[3]["kl"] == first[3]["kl"]
    assert {rollout.seed for rollout in stage.rollouts} == {"seed0", "seed1"} and len(stage.rollouts) == 8
    assert list(stage.seeds) == ["seed0", "seed1"]


def test_the_exam_of_the_judge_is_the_runs_own_or_that_of_the_built_in_judge(fake_run):
    folder = fake_run(steps=2)
    assert read_run(folder).judge_exam["judge"] == "lexical" and read_run(folder).judge_exam["pays"]["an empty plan"]["reward"] == 0.0
    (folder / "judge_exam.json").write_text('{"judge": "mine:judge", "pays": {}}')
    assert read_run(folder).judge_exam == {"judge": "mine:judge", "pays": {}}
    (folder / "judge_exam.json").unlink()
    info = json.loads((folder / "run.json").read_text())
    for judge in ("mine:judge", {"kind": "lexical", "alpha": 1.0}):
        (folder / "run.json").write_text(json.dumps(info | {"judge": judge}))
        assert read_run(folder).judge_exam == {}
