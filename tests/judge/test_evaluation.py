from dataclasses import replace

import numpy
import orjson
import pytest
import torch

from papergym.errors import InputError
from papergym.judge.evaluation import evaluate, score_written, summarise
from papergym.judge.scoring import open_judge
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model

SAMPLING = SamplingParams(temperature=1.0, max_tokens=12, seed=3)


class Counting:
    """The real engine, which counts its calls, keeps what it sampled and can be told to fail at a call."""

    def __init__(self, engine, fail_at=None):
        self.engine, self.fail_at, self.calls, self.completions = engine, fail_at, 0, []

    def generate(self, prompts, params):
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("power cut")
        groups = self.engine.generate(prompts, params)
        self.completions += [completion for group in groups for completion in group]
        return groups


@pytest.fixture(scope="module")
def parts(tiny_policy):
    return TorchEngine(load_model(tiny_policy, dtype=torch.float32)), Tokenizer(tiny_policy), open_judge("lexical")


def run(parts, environments, out, engine=None, **changes):
    options = {"model": "tiny", "judge_spec": "lexical", "samples": 2, "sampling": SAMPLING, "batch_size": 1} | changes
    return evaluate(lambda: engine or parts[0], parts[1], environments, parts[2], out=out, **options)


def test_files_hold_what_was_sampled_and_scored(parts, environments, tmp_path):
    engine = Counting(parts[0])
    answers, summary = run(parts, environments, tmp_path / "eval" / "base.v1", engine)
    lines = [orjson.loads(line) for line in (tmp_path / "eval" / "base.v1.jsonl").read_bytes().splitlines()]
    assert lines == orjson.loads(orjson.dumps(answers))
    assert [(line["environment"], line["sample"]) for line in lines] == [(e.id, sample) for e in environments for sample in range(2)]
    for line, environment, completion in zip(lines, [e for e in environments for _ in range(2)], engine.completions, strict=True):
        [scored] = parts[2].score([(environment, line["plan"])])
        assert (line["specialised"], line["general"], line["reward"]) == (list(scored.specialised), list(scored.general), scored.reward)
        assert line["coverage"] == sum(scored.specialised) / 2
        assert len(parts[1].encode(line["response"])) == line["tokens"] or "\ufffd" in line["response"]
        assert line["finish_reason"] == "length" or line["tokens"] <= 12
        assert line["entropy"] == pytest.approx(-numpy.mean(completion.logprobs)) and line["entropy"] > 0
    assert orjson.loads((tmp_path / "eval" / "base.v1.json").read_bytes()) == orjson.loads(orjson.dumps(summary))
    assert (summary["row"], summary["environments"], summary["samples"], summary["sampling"]["seed"]) == ("base.v1", 3, 2, 3)
    assert summary["truncated"] == sum(line["finish_reason"] == "length" for line in lines) / 6
    for name in ("tokens", "entropy"):
        assert summary[name]["mean"] == pytest.approx(numpy.mean([line[name] for line in lines]))
    assert sorted(path.name for path in (tmp_path / "eval").iterdir()) == ["base.v1.json", "base.v1.jsonl"]


def test_a_stopped_evaluation_goes_on_and_ends_alike(parts, environments, tmp_path):
    undisturbed, _ = run(parts, environments, tmp_path / "a")
    stopped = Counting(parts[0], fail_at=3)
    with pytest.raises(RuntimeError, match="power cut"):
        run(parts, environments, tmp_path / "b", stopped)
    assert not (tmp_path / "b.json").exists() and not (tmp_path / "b.jsonl").exists()
    with open(tmp_path / "b.partial.jsonl", "ab") as file:
        file.write(b'{"first": 2, "answers": [{"env')  # the line that the cut came in
    going_on = Counting(parts[0])
    assert run(parts, environments, tmp_path / "b", going_on)[0] == undisturbed
    assert going_on.calls == 1
    again = Counting(parts[0])
    assert run(parts, environments, tmp_path / "b", again)[0] == orjson.loads(orjson.dumps(undisturbed))
    assert again.calls == 0


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"samples": 3}, "samples 2, not 3"),
        ({"model": "other"}, "model 'tiny', not 'other'"),
        ({"judge_spec": {"kind": "lexical", "alpha": 0.5}}, "judge {'kind': 'lexical', 'version': '.*'}, not {.*'alpha': 0.5"),
        ({"sampling": replace(SAMPLING, temperature=0.5)}, "sampling .*'temperature': 1.0.*, not .*'temperature': 0.5"),
        ({"thinking": False}, "thinking True, not False"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_files_made_with_other_arguments_are_refused(parts, environments, tmp_path, changes, message, stopped):
    if stopped:
        with pytest.raises(RuntimeError):
            run(parts, environments, tmp_path / "row", Counting(parts[0], fail_at=2))
    else:
        run(parts, environments, tmp_path / "row")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=message):
        run(parts, environments, tmp_path / "row", **changes)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damaged_files_of_a_finished_row_are_refused(parts, environments, tmp_path):
    run(parts, environments, tmp_path / "row")
    answers, summary = tmp_path / "row.jsonl", tmp_path / "row.json"
    whole, about = answers.read_bytes(), orjson.loads(summary.read_bytes())
    for damaged in (b"".join(whole.splitlines(keepends=True)[:-1]), b"", whole.replace(b"length", b"lengtH", 1)):
        answers.write_bytes(damaged)
        with pytest.raises(InputError, match=r"row\.jsonl: not the 6 answers that .*row\.json is about; remove both to evaluate again"):
            run(parts, environments, tmp_path / "row")
    answers.unlink()
    with pytest.raises(InputError, match=r"row\.jsonl: missing, though .*row\.json is there; remove that"):
        run(parts, environments, tmp_path / "row")
    answers.write_bytes(whole)
    for damaged in ({}, [], about | {"arguments": 1}):
        summary.write_bytes(orjson.dumps(damaged))
        with pytest.raises(InputError, match=r"row\.json: this is no summary of an evaluation; remove it and .*row\.jsonl"):
            run(parts, environments, tmp_path / "row")
    summary.write_bytes(orjson.dumps(about | {"written": 1}))
    with pytest.raises(InputError, match=r"row\.jsonl: not the answers"):
        run(parts, environments, tmp_path / "row")
    del about["written"]  # as earlier versions wrote it
    summary.write_bytes(orjson.dumps(about))
    assert len(run(parts, environments, tmp_path / "row")[0]) == 6


def answers_with(change):
    return lambda batch: batch | {"answers": [answer | change for answer in batch["answers"]]}


@pytest.mark.parametrize(
    "change",
    [
        lambda b: {"x": 1},
        *(lambda b, c=c: b | c for c in ({"answers": []}, {"first": 9}, {"first": 0}, {"first": [0]}, {"seconds": None})),
        *map(answers_with, ({"environment": "env-0"}, {"plan": 1}, {"reward": "1"}, {"tokens": [3]}, {"entropy": True})),
    ],
)
def test_a_damaged_batch_of_a_stopped_row_is_refused(parts, environments, tmp_path, change):
    with pytest.raises(RuntimeError):
        run(parts, environments, tmp_path / "row", Counting(parts[0], fail_at=3))
    path = tmp_path / "row.partial.jsonl"
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in [*lines[:2], change(lines[2])]))
    with pytest.raises(InputError, match=r"row\.partial\.jsonl, line 3: not a batch of this evaluation; remove the file"):
        run(parts, environments, tmp_path / "row")


def test_other_environments_and_a_retrained_adapter_are_refused(parts, environments, tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).write_text("1")
    run(parts, environments, tmp_path / "row", adapter=adapter)
    (adapter / "adapter_model.safetensors").write_text("2")
    with pytest.raises(InputError, match="adapter_sha256"):
        run(parts, environments, tmp_path / "row", adapter=adapter)
    run(parts, environments, tmp_path / "other")
    with pytest.raises(InputError, match="environments_sha256"):
        run(parts, [*environments[:2], replace(environments[2], domain="econ")], tmp_path / "other")


def test_unscored_and_unanswered_are_counted_and_left_out():
    def answer(environment, reward, plan="I can't help with that.", finish="stop", tokens=10):
        return {"environment": environment, "reward": reward, "plan": plan, "finish_reason": finish, "tokens": tokens, "entropy": 1.5}

    summary = summarise(
        [answer("a", 0.2), answer("a", None), answer("b", 0.6, "p", tokens=40), answer("b", 0.0, None, "length", tokens=20)]
    )
    assert summary["refused"] == 2
    assert summary["reward"]["mean"] == pytest.approx((0.2 + 0.3) / 2)
    assert summary["tokens"]["mean"] == pytest.approx((10 + 30) / 2)
    assert (summary["environments"], summary["truncated"], summary["unscored"], summary["unanswered"]) == (2, 0.25, 1, 1)


def test_a_second_evaluation_of_the_same_row_is_refused_and_a_finished_one_loads_no_model(parts, environments, tmp_path):
    class Meddling(Counting):
        def generate(self, prompts, params):
            with pytest.raises(InputError, match="row: another process is writing this evaluation"):
                run(parts, environments, tmp_path / "row")
            return super().generate(prompts, params)

    first = run(parts, environments, tmp_path / "row", Meddling(parts[0]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["row.json", "row.jsonl"]

    options = {"out": tmp_path / "row", "model": "tiny", "judge_spec": "lexical", "samples": 2, "sampling": SAMPLING, "batch_size": 1}
    again = evaluate(lambda: pytest.fail("nothing is left to answer"), parts[1], environments, parts[2], **options)
    assert orjson.dumps(again) == orjson.dumps(first)


def test_written_answers_are_scored_as_those_of_an_evaluation(parts, environments, tmp_path):
    """Answered without a judge, scored afterwards: the same as both at once."""
    at_once, _ = run(parts, environments, tmp_path / "at_once")
    options = {"model": "tiny", "judge_spec": None, "samples": 2, "sampling": SAMPLING, "batch_size": 1}
    answers, summary = evaluate(lambda: parts[0], parts[1], environments, None, out=tmp_path / "answered", **options)
    assert "reward" not in answers[0] and summary["reward"]["mean"] is None and summary["tokens"]["mean"] > 0
    place = {"out": tmp_path / "scored", "judge_spec": "lexical"}
    scored, summary = score_written(tmp_path / "answered.jsonl", environments, parts[2], **place, batch_size=2)
    assert scored == at_once and summary["model"] == "answered" and summary["arguments"]["judge"]["version"] == parts[2].version
    with pytest.raises(InputError, match="the answers are there"):
        score_written(tmp_path / "answered.jsonl", environments, parts[2], out=tmp_path / "answered", judge_spec="lexical")
    with pytest.raises(InputError, match=r"answered\.jsonl, line 5, environment: 'env-2' is not one of"):
        score_written(tmp_path / "answered.jsonl", environments[:2], parts[2], out=tmp_path / "other", judge_spec="lexical")
    lines = (tmp_path / "answered.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_bytes(b"".join(lines[:4]))
    with pytest.raises(InputError, match=r"part\.jsonl: no answer to environment 'env-2', and to 0 others"):
        score_written(tmp_path / "part.jsonl", environments, parts[2], out=tmp_path / "other", judge_spec="lexical")
