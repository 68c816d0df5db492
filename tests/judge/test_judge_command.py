"""papergym judge, from the command line, with judges on a scripted server."""

import json

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.environment import write_environments
from papergym.files import read_jsonl


def verdicts_of(body):
    """Verdicts as long as the schema asks for, which depend on the whole prompt and on the seed."""
    count = len(body["response_format"]["json_schema"]["schema"]["required"]) // 2
    prompt = body["messages"][1]["content"]
    bits = sum(prompt.encode()) + len(prompt) + 3 * (body.get("seed") or 0) * (body["model"] == "restless")
    return json.dumps({"verdicts": [{"criterion": n + 1, "reason": "r", "verdict": bits >> n & 1} for n in range(count)]})


@pytest.fixture
def work(tmp_path, environments, scripted_server):
    """A directory with environments, two files of answers, and judges calm.toml and restless.toml on the scripted server."""
    scripted_server.answer = verdicts_of
    write_environments(tmp_path / "environments.jsonl", environments)
    for row, word in (("base", "walk"), ("grpo", "trial")):
        lines = [
            {"environment": environment.id, "sample": sample, "plan": f"A {word}, version {sample}: {environment.id}"}
            for environment in environments
            for sample in range(2)
        ]
        (tmp_path / f"{row}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in ("calm", "restless"):
        (tmp_path / f"{name}.toml").write_text(
            f'kind = "llm"\n[model]\nkind = "http"\nurl = "{scripted_server.url}"\nmodel = "{name}"\nattempts = 2\nbackoff = 0.01\n'
        )
    return tmp_path


def judge(work, *arguments, rows=("base", "grpo"), out="out"):
    files = [str(work / f"{row}.jsonl") for row in rows]
    options = ["--environments", str(work / "environments.jsonl"), "--out", str(work / out)]
    return CliRunner().invoke(main, ["judge", *files, *options, *map(str, arguments)])


def verdicts_in(path):
    return [record for _, record in read_jsonl(path / "verdicts.jsonl")]


def test_answers_are_scored_and_summed_up(work, scripted_server):
    result = judge(work, "--judge", work / "calm.toml", "--judge", "lexical")
    assert result.exit_code == 0, result.output
    records = verdicts_in(work / "out")
    assert len(records) == 24 and len(scripted_server.requests) == 24
    rewards = [record["reward"] for record in records if (record["judge"], record["row"]) == ("calm", "grpo")]
    assert len(set(rewards)) > 1 and f"{sum(rewards) / 6:.3f} [" in result.stdout
    assert "calm: 24 requests" in result.stdout and "lexical | grpo" in result.stdout
    assert {len(record["general"]) for record in records} == {7}
    assert records[0]["specialised_chances"] == [float(verdict) for verdict in records[0]["specialised"]]


def test_stopped_in_the_middle_it_goes_on_and_ends_the_same(work, scripted_server, monkeypatch):
    monkeypatch.setattr("papergym.judge.rescoring.BATCH", 4)
    assert judge(work, "--judge", work / "calm.toml", out="calm").exit_code == 0
    scripted_server.requests.clear()
    scripted_server.answer = lambda body: verdicts_of(body) if len(scripted_server.requests) <= 13 else scripted_server.problems["broken"]
    result = judge(work, "--judge", work / "calm.toml")
    assert result.exit_code == 2 and result.stderr.strip().splitlines()[-1].startswith(
        f"papergym: {scripted_server.url}: no usable reply in 2"
    )
    kept = verdicts_in(work / "out")
    assert len(kept) == 4
    scripted_server.answer = verdicts_of
    with open(work / "out" / "verdicts.jsonl", "ab") as file:
        file.write(b'{"judge": "calm", "run": 0, "row"')  # a kill in the middle of a line
    assert judge(work, "--judge", work / "calm.toml").exit_code == 0
    assert verdicts_in(work / "out") == verdicts_in(work / "calm") and verdicts_in(work / "out")[:4] == kept
    scripted_server.stop()
    assert judge(work, "--judge", work / "calm.toml").exit_code == 0  # all is there: nobody is asked


def test_agreement_over_runs(work, scripted_server):
    result = judge(work, "--judge", work / "restless.toml", "--judge", work / "calm.toml", "--runs", 2, "--agreement")
    assert result.exit_code == 0, result.output
    assert [body.get("seed") for body in scripted_server.requests].count(1) == len(scripted_server.requests) / 2
    figures = json.loads((work / "out" / "agreement.json").read_bytes())
    assert figures["judges"]["calm"]["same"]["mean"] == 1.0 and figures["judges"]["calm"]["range"] == 0.0
    assert figures["judges"]["restless"]["same"]["mean"] < 1.0
    (pair,) = figures["pairs"]
    assert pair["judges"] == ["restless", "calm"] and 0.5 < pair["all"]["agreement"]["mean"] < 1.0
    assert pair["all"]["verdicts"] == 2 * 12 * 9
    assert list(figures["calibration"]) == ["restless"]
    assert "Cohen's κ" in result.stdout and (work / "out" / "agreement.md").read_text() in result.stdout
    assert b"<svg" in (work / "out" / "agreement.svg").read_bytes()


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (None, ["--judge", "calm.toml", "--judge", "lexical"], "other judges"),
        (None, ["--judge", "calm.toml", "--runs", 2], "other runs"),
        (("base.jsonl", '{"environment": "env-0", "plan": "another"}\n'), ["--judge", "calm.toml"], "other answers"),
        (("calm.toml", 'kind = "lexical"\n'), ["--judge", "calm.toml"], "other judges"),
    ],
)
def test_verdicts_of_other_things_are_not_mixed(work, monkeypatch, change, arguments, words):
    monkeypatch.chdir(work)
    assert judge(work, "--judge", "calm.toml").exit_code == 0
    if change:
        (work / change[0]).write_text(change[1])
    result = judge(work, *arguments)
    assert result.exit_code == 2 and words in result.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[1:], "line 1, sample: 1 where 0 belongs"),
        (lambda lines: [lines[0], *lines[2:]], "line 2, environment: 'env-1' where 'env-0' belongs"),
        (lambda lines: [*lines[:6], lines[0]], "line 7, row: 'base' where 'grpo' belongs"),
        (lambda lines: [*lines, lines[0]], "line 13: 12 lines are all there should be"),
        (lambda lines: [{**lines[0], "environment": "env-1"}, *lines[1:]], "line 1, environment: 'env-1' where 'env-0' belongs"),
        (lambda lines: [{}], "line 1, judge: None where 'calm' belongs"),
        (lambda lines: [{**lines[0], "specialised": "yes"}], "line 1, specialised: a list of true, false and null is needed, not 'yes'"),
        (lambda lines: [{**lines[0], "general": [2]}], "line 1, general: a list"),
        (lambda lines: [{**lines[0], "specialised_chances": [0.5]}], "line 1, specialised_chances: a number from 0 to 1"),
        (lambda lines: [{**lines[0], "general_chances": [1.5] * 7}], "line 1, general_chances: a number from 0 to 1"),
        (lambda lines: [{**lines[0], "reward": "0.5"}], "line 1, reward: a number or null is needed, not '0.5'"),
        (lambda lines: [{**lines[0], "members": [1]}], "line 1, members: a list of objects is needed"),
        (lambda lines: [{**lines[0], "members": [{"specialised": [True]}]}], "line 1, members, general: a list"),
    ],
)
def test_verdicts_that_were_changed_by_hand_are_named(work, scripted_server, change, words):
    command = ["--judge", work / "calm.toml"]
    assert judge(work, *command).exit_code == 0
    path = work / "out" / "verdicts.jsonl"
    whole = path.read_bytes()
    changed = "".join(json.dumps(line) + "\n" for line in change(verdicts_in(work / "out"))).encode()
    path.write_bytes(changed)
    result = judge(work, *command)
    assert result.exit_code == 2 and f"{path}, {words}" in result.stderr and path.read_bytes() == changed
    line = int(result.stderr.split("line ")[1].split(",")[0].split(":")[0])
    path.write_bytes(b"".join(changed.splitlines(keepends=True)[: line - 1]))  # the remedy
    assert judge(work, *command).exit_code == 0 and verdicts_in(work / "out") == [json.loads(each) for each in whole.splitlines()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"environment": ["env-0"], "plan": "p"}', "odd.jsonl, line 1, environment: ['env-0']"),
        ('{"environment": "env-0", "plan": "p", "sample": "1"}', "odd.jsonl, line 1, sample: a whole number from 0 is needed, not '1'"),
        ('{"environment": "env-0", "plan": "p", "sample": true}', "line 1, sample: a whole number"),
        ('{"environment": "env-0", "plan": "p", "sample": -1}', "line 1, sample: a whole number"),
        ('{"environment": "env-0", "plan": "p", "sample": [1]}', "line 1, sample: a whole number"),
        (
            '{"environment": "env-0", "plan": "p"}\n' * 2 + '{"environment": "env-0", "plan": "p", "sample": 1}',
            "line 3, sample: 1 of 'env-0' is in line 2 already",
        ),
        ('{"environment": "env-0", "plan": "p", "tokens": "many"}', "line 1, tokens: a number is needed, not 'many'"),
        ('{"environment": "env-0", "plan": "p", "entropy": true}', "line 1, entropy: a number is needed, not True"),
        ('{"environment": "env-0", "plan": "p", "finish_reason": 1}', "line 1, finish_reason: a string is needed, not 1"),
        ('{"environment": "env-0", "plan": "p", "response": 1}', "line 1, response: a string is needed, not 1"),
        ('{"environment": "env-9", "plan": "p"}', "odd.jsonl, line 1, environment: 'env-9'"),
        ('{"environment": "env-0"}', "odd.jsonl, line 1, plan: a string is needed"),
        ("", "odd.jsonl: no answers"),
    ],
)
def test_wrong_answers_are_named(work, line, words):
    (work / "odd.jsonl").write_text(line + "\n")
    result = judge(work, "--judge", "lexical", rows=["odd"])
    assert result.exit_code == 2 and words in result.stderr


def test_responses_without_plans_are_read_behind_their_thoughts(work):
    lines = [{"environment": "env-0", "response": text} for text in ("<think>a</think>We walk at random.", "<think>We walk at random.")]
    (work / "raw.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert judge(work, "--judge", work / "calm.toml", rows=["raw"]).exit_code == 0
    first, second = verdicts_in(work / "out")
    assert (first["sample"], second["sample"]) == (0, 1)
    assert second["reward"] == 0.0 and set(second["specialised"]) == {False} and True in first["specialised"] + first["general"]


def test_a_judge_of_ones_own_that_gives_no_verdicts_is_named(work, monkeypatch):
    (work / "odd_judge.py").write_text("""
from papergym.judge.scoring import Scored

class Odd:
    def __init__(self, verdicts):
        self.verdicts = verdicts

    def score(self, items):
        return [Scored(self.verdicts, (), 0.5) for _ in items]
""")
    monkeypatch.syspath_prepend(work)
    for verdicts, words in (
        ('["yes"]', "judge 'odd': specialised: a list of true, false and null is needed, not ['yes']"),
        ("[true, true, false]", "judge 'odd': 3 specialised verdicts on environment 'env-0', whose rubric has 2 criteria"),
        ("[]", "no verdicts"),
    ):
        (work / "odd.toml").write_text(f'kind = "odd_judge:Odd"\nverdicts = {verdicts}\n')
        result = judge(work, "--judge", work / "odd.toml", "--agreement", out=f"out{len(verdicts)}")
        assert result.exit_code == 2 and words in result.stderr, result.output
    assert not (work / "out7" / "verdicts.jsonl").exists()  # what is no verdict is not kept


def test_no_answers_and_judges_of_one_name_are_refused(work):
    assert "no files of answers" in judge(work, "--judge", "lexical", rows=[]).stderr
    assert "named lexical too" in judge(work, "--judge", "lexical", "--judge", "lexical").stderr


def test_an_evaluation_with_a_language_model_as_judge(work, scripted_server, tiny_policy):
    def evaluate(row):
        options = ["--judge", str(work / "calm.toml"), "--samples", "1", "--max-tokens", "6", "--dtype", "float32", "--no-thinking"]
        files = ["--environments", str(work / "environments.jsonl"), "--out", str(work / row)]
        return CliRunner().invoke(main, ["eval", "--model", str(tiny_policy), *files, *options])

    result = evaluate("base_row")
    assert result.exit_code == 0, result.output
    records = [record for _, record in read_jsonl(work / "base_row.jsonl")]
    assert len(records) == 3 and {type(record["reward"]) for record in records} == {float} and len(scripted_server.requests) >= 2
    scripted_server.answer = lambda body: scripted_server.problems["broken"]
    result = evaluate("other_row")
    assert result.exit_code == 2 and result.stderr.strip().splitlines()[-1].startswith("papergym: http://127.0.0.1")
    assert not (work / "other_row.json").exists()
