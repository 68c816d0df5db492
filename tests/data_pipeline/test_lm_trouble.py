"""Bad replies, a server in trouble, kill -9 and budgets: nothing is lost, nothing is invented, and nothing is paid for twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pytest

from papergym.data_pipeline.build import build
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache

CALLS = 11  # that a paper takes


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys(requests):
    return Counter(json.dumps(body, sort_keys=True) for body in requests)


TEXTS = {
    "empty": lambda text: "",
    "thinking without an end": lambda text: "<think>" + text,
    "prose": lambda text: "Of course! Here is what I found.",
    "cut": lambda text: text[: len(text) // 2],
    "wrong schema": lambda text: '{"answer": 42}',
    "wrong types": lambda text: (
        '{"goal": 1, "background": 2, "method": 3, "experiment": 4, "order": "a", "question": 1, "reference": 1, '
        '"criteria": 1, "ranking": 1}'
    ),
    "doubled keys": lambda text: text[:-1] + ", " + text[1 : text.index(":") + 1] + ' "another value"}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_unusable_replies_are_asked_again_and_change_nothing(run, write_papers, scripted_server, script, write_recipe, name):
    papers = write_papers(1)
    calm = run(papers, "calm").out.read_bytes()
    recipe = write_recipe("cache = " + json.dumps(str(papers[0].parent / "fresh.sqlite")))
    scripted_server.requests.clear()

    def stumbling(body):
        good = script["reply"](body)
        return good if "(Attempt 2." in body["messages"][1]["content"] else TEXTS[name](good)

    scripted_server.answer = stumbling
    (environment,) = records(run(papers, "stumbling", recipe).out)
    assert len(scripted_server.requests) == 2 * CALLS
    calm = json.loads(calm)
    assert environment["provenance"].pop("account")["took"]["requests"] == 2 * CALLS and calm["provenance"].pop("account")
    assert environment == calm


@pytest.mark.parametrize("name", ["busy", "broken", "cut", "junk", "truncated", "wrong shape", "nothing", "no choices", "hang"])
def test_a_misbehaving_server_changes_nothing(run, write_papers, scripted_server, script, write_recipe, name):
    papers = write_papers(1)
    calm = run(papers, "calm").out.read_bytes()
    patience = {"timeout": 0.4, "attempts": 20} if name == "hang" else {}
    recipe = write_recipe("cache = " + json.dumps(str(papers[0].parent / "fresh.sqlite")), **patience)
    scripted_server.misbehave_first([scripted_server.problems[name]], script["reply"])
    assert run(papers, "troubled", recipe).out.read_bytes() == calm


def test_thinking_before_the_answer_is_passed_over(run, write_papers, scripted_server, script, write_recipe):
    papers = write_papers(1)
    calm = run(papers, "calm").out.read_bytes()
    recipe = write_recipe("cache = " + json.dumps(str(papers[0].parent / "fresh.sqlite")))
    scripted_server.answer = lambda body: '<think>{"goal": "x"}? No.</think>' + script["reply"](body)
    assert run(papers, "thinking", recipe).out.read_bytes() == calm


def test_one_bad_paper_or_reply_stops_nothing_and_says_why(run, write_papers, scripted_server, script, write_recipe, tmp_path):
    papers = write_papers(4)
    recipe, bad = write_recipe(attempts=2), Counter()
    (tmp_path / "empty.tex").write_text("")

    def answer(body):
        prompt, kind = body["messages"][1]["content"], script["kind_of"](body)
        if "kaab" in prompt and kind == "merge":
            bad["merge"] += 1
            return '{"ranking": [{"criterion": 99, "doubles": []}]}'
        if "kaac" in prompt and kind == "map":
            return scripted_server.Misbehaviour(400, b'{"error": {"code": "content_filter"}}')
        if "kaad" in prompt and kind == "map":
            return '{"goal": "", "background": "", "method": "", "experiment": ""}'
        return script["reply"](body)

    scripted_server.answer = answer
    summary = run([tmp_path / "empty.tex", *papers, tmp_path / "absent", papers[0]], recipe=recipe)
    assert (summary.environments, summary.rejected, summary.left) == (1, 6, 0)
    reasons = {record["paper"].rsplit("/", 1)[1]: record["reason"] for record in records(summary.rejects)}
    assert "main.tex" in reasons["empty.tex"] or "empty" in reasons["empty.tex"]
    assert "no usable reply of big in 3 attempts; of the last one, there is no criterion 99" in reasons["kaab"] and bad["merge"] == 3
    assert "refuses it (status 400" in reasons["kaac"]
    assert "no sentence of its sections is about its goal or background or method or experiment" in reasons["kaad"]
    assert "No such file" in reasons["absent"] and "same content as kaaa" in reasons["kaaa"]
    assert not (tmp_path / ".out.jsonl.journal").exists()


@pytest.mark.parametrize("problem", ["refused", "reached its limit"])
def test_a_piece_that_is_too_long_is_asked_for_in_parts(run, write_papers, scripted_server, script, write_recipe, problem):
    papers = write_papers(1)
    long = "\n\n".join(f"We shake the maple hopper number {number} of kaaa for an hour, slowly and with care." for number in range(30))
    path = papers[0] / "main.tex"
    path.write_text(path.read_text().replace("\\section{Method}", f"\\section{{Method}} {long}\n\n"))
    recipe, message = write_recipe(), b'{"error": {"message": "maximum context length is 9 tokens"}}'

    def narrow(body):
        if script["kind_of"](body) != "map" or len(script["fenced_texts"](body["messages"][1]["content"])[0][1]) <= 1200:
            return script["reply"](body)
        if problem == "refused":
            return scripted_server.Misbehaviour(400, message)
        cut = scripted_server.completion([script["reply"](body)[:500]])
        cut["choices"][0]["finish_reason"] = "length"
        return cut

    scripted_server.answer = narrow
    (environment,) = read_environments(run(papers, recipe=recipe).out)
    for number in range(30):
        assert f"number {number} of kaaa" in environment.stages["method"]
    maps = [body["messages"][1]["content"] for body in scripted_server.requests if script["kind_of"](body) == "map"]
    assert len(maps) > 4 + 2 and not any("(Attempt" in prompt for prompt in maps)


def test_stopped_by_a_dead_server_it_goes_on_with_what_is_missing(run, write_papers, scripted_server, script, write_recipe, tmp_path):
    papers = write_papers(3)
    calm = run(papers, "calm").out.read_bytes()
    distinct = keys(scripted_server.requests)
    assert set(distinct.values()) == {1}
    fresh = "cache = " + json.dumps(str(tmp_path / "fresh.sqlite"))
    recipe = write_recipe(fresh, attempts=2, concurrency=2)
    scripted_server.requests.clear()
    scripted_server.answer = lambda body: (
        script["reply"](body) if len(scripted_server.requests) < 16 else scripted_server.problems["broken"]
    )
    with pytest.raises(InputError, match="no usable reply in 2 attempts"):
        run(papers, "out", recipe)
    assert not (tmp_path / "out.jsonl").exists()
    known = len(ReplyCache(tmp_path / "fresh.sqlite"))
    scripted_server.requests.clear()
    scripted_server.answer = script["reply"]
    assert run(papers, "out", recipe).out.read_bytes() == calm
    assert len(scripted_server.requests) == len(distinct) - known and known > 0
    scripted_server.requests.clear()
    assert run(papers, "again", recipe).out.read_bytes() == calm and not scripted_server.requests  # a rerun costs nothing


def test_what_a_sidecar_says_in_the_meantime_counts(run, write_papers, scripted_server, script, write_recipe, tmp_path):
    papers = write_papers(2)
    recipe = write_recipe("papers_at_once = 1", attempts=1)
    scripted_server.answer = lambda body: scripted_server.problems["broken"] if "kaab" in str(body) else script["reply"](body)
    with pytest.raises(InputError, match="no usable reply in 1 attempts"):
        run(papers, recipe=recipe)
    assert len((tmp_path / ".out.jsonl.journal").read_text().splitlines()) == 2
    (papers[0] / "paper.toml").write_text('domain = "physics"\n')
    scripted_server.answer = script["reply"]
    assert [environment.domain for environment in read_environments(run(papers, recipe=recipe).out)] == ["physics", "other"]


@pytest.mark.parametrize("points", [[14], pytest.param([1, 9, 15, 25, 33, 40, 52], marks=pytest.mark.slow)])
def test_killed_at_any_point_it_repeats_no_paid_call(run, write_papers, scripted_server, script, write_recipe, tmp_path, points):
    papers = write_papers(max(2, len(points) - 2))
    run(papers, "calm")
    distinct = keys(scripted_server.requests)
    cache = tmp_path / "fresh.sqlite"
    recipe = write_recipe(f"papers_at_once = 2\ncache = {json.dumps(str(cache))}", concurrency=3)
    command = [
        sys.executable,
        "-m",
        "papergym.cli",
        "build",
        *map(str, papers),
        "--out",
        str(tmp_path / "out.jsonl"),
        "--extractor",
        str(recipe),
    ]
    scripted_server.requests.clear()
    for point in points:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        before = len(scripted_server.requests)

        def answer(body, process=process, point=point):
            if len(scripted_server.requests) >= point:
                process.send_signal(signal.SIGKILL)
            return script["reply"](body)

        scripted_server.answer = answer
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors
        assert len(scripted_server.requests) > before
        paid = {row[0] for row in ReplyCache(cache)._file.execute("SELECT key FROM replies")}
        assert len(paid) >= len(keys(scripted_server.requests)) - 3  # but for those under way
    asked = len(scripted_server.requests)
    scripted_server.answer = script["reply"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(scripted_server.requests) - asked == len(distinct) - len(paid)
    assert len(scripted_server.requests) <= len(distinct) + 3 * len(points)
    made, calm = (read_environments(tmp_path / f"{name}.jsonl") for name in ("out", "calm"))
    assert [environment.id for environment in made] == [environment.id for environment in calm]
    for one, other in zip(made, calm, strict=True):
        assert one.rubric == other.rubric and one.question == other.question and one.reference == other.reference
        assert one.provenance["account"] == other.provenance["account"]
    assert not os.path.exists(tmp_path / ".out.jsonl.journal") and "requests:" in done.stdout


def test_a_budget_is_never_exceeded_and_the_rest_is_made_later(run, write_papers, scripted_server, write_recipe, tmp_path):
    papers = write_papers(4)
    prices = "[extractor]\nreply_tokens = 3000\nprices = { input = 1000.0, output = 1000.0 }\n"
    recipe = write_recipe(prices, concurrency=4)
    usage = {"prompt_tokens": 900, "completion_tokens": 100}  # 1 a request
    good = scripted_server.answer
    scripted_server.answer = lambda body: scripted_server.completion([good(body)], usage=usage)
    with pytest.raises(InputError, match="the budget was spent before one of the 4 papers"):
        run(papers, recipe=recipe, max_cost=CALLS / 2 + 8.0)
    assert 0 < len(scripted_server.requests) <= CALLS / 2 + 8
    summary, calls = None, 0
    while summary is None or summary.left:
        before, calls = len(scripted_server.requests), calls + 1
        try:
            summary = run(papers, recipe=recipe, max_cost=2.0 * CALLS)
            assert f"{len(scripted_server.requests) - before} of it now" in summary.report
        except InputError as error:
            assert "the budget was spent before" in str(error)
        assert 0 < len(scripted_server.requests) - before <= 2 * CALLS
    assert calls > 1
    assert summary.environments == 4 and set(keys(scripted_server.requests).values()) == {1}
    assert f"out for {4 * CALLS}, " in summary.report
    with pytest.raises(InputError, match="names no prices for 'big'"):
        run(papers, recipe=write_recipe(), max_cost=1.0)
    with pytest.raises(InputError, match="extractor 'rules' costs nothing"):
        build(papers, tmp_path / "rules.jsonl", max_cost=1.0)


def test_no_more_papers_and_requests_at_once_than_allowed(run, write_papers, write_recipe, scripted_server, script):
    recipe, under_way, most = write_recipe("papers_at_once = 2", concurrency=3), Counter(), []

    def answer(body):
        name = re.search(r"kaa\w", body["messages"][1]["content"])
        under_way[name and name[0]] += 1
        time.sleep(0.02)
        most.append(sum(count > 0 for paper, count in under_way.items() if paper))
        under_way[name and name[0]] -= 1
        return script["reply"](body)

    scripted_server.answer = answer
    run(write_papers(4), recipe=recipe)
    assert scripted_server.most_at_once == 3 and max(most) == 2


def test_another_recipe_begins_anew_and_pays_only_for_what_differs(run, write_papers, write_recipe, scripted_server, script):
    papers = write_papers(2)
    run(papers)
    scripted_server.requests.clear()
    run(papers, recipe=write_recipe("[rubric]\nn = 9\n"))
    assert not scripted_server.requests  # the same proposals, cut at another number
    run(papers, recipe=write_recipe('[rubric]\nsources = ["answer"]\n'))
    assert Counter(map(script["kind_of"], scripted_server.requests)) == {"merge": 2}


def test_papers_are_written_in_their_order_whichever_ends_first(run, write_papers, scripted_server, script, write_recipe):
    recipe, papers = write_recipe(), write_papers(4)
    release = []

    def answer(body):
        if "kaaa" in body["messages"][1]["content"] and len(release) < 3:  # the first paper waits for others
            time.sleep(0.2)
            release.append(1)
        return script["reply"](body)

    scripted_server.answer = answer
    ids = [environment.id[:4] for environment in read_environments(run(papers, recipe=recipe).out)]
    assert ids == ["kaaa", "kaab", "kaac", "kaad"] and all(one < two for one, two in pairwise(ids))
