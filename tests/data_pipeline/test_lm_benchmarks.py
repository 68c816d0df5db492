"""Benchmarks whose criteria a scripted model elicits anew: what each request may know, what is kept, refused, gone on with and paid for."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest

from papergym.data_pipeline.benchmarks import BENCHMARKS, design, innovation, write_benchmarks
from papergym.data_pipeline.compose import ASKS
from papergym.environment import Criterion, Environment, read_environments, write_environments
from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache

DIMENSIONS = {"innov": "method", "design": "experiment"}
CALLS = 6  # that an environment takes: R_Q, R_A and merging, for each benchmark


@pytest.fixture
def heldout(script):
    """heldout(n): n environments whose stages hold words of their own, and whose rubrics have no criterion about the method."""

    def make(count):
        made = []
        for number in range(count):
            name = "k" + "".join("abcdefghij"[int(digit)] for digit in f"{number:03d}")
            stages = {stage: " ".join(script["sentences"](stage, name)) for stage in script["MARKS"]}
            question = f"{stages['background']} {stages['goal']} {ASKS[0]}"
            rubric = (Criterion("The plan is old.", "experiment", "answer"),)
            made.append(Environment(name, "cs", question, rubric, reference="old", stages=stages, provenance={"paper": name}))
        return made

    return make


@pytest.fixture
def elicit(tmp_path, write_recipe):
    """elicit(environments, name="out", recipe=None, **options): the summary, for the folder NAME."""

    def run(environments, name="out", recipe=None, **options):
        return write_benchmarks(environments, tmp_path / name, extractor=recipe or write_recipe(), **options)

    return run


def test_ten_criteria_of_its_own_dimension(heldout, elicit, scripted_server, script, tmp_path):
    environments = heldout(2)
    summary = elicit(environments)
    assert list(summary.counts.values()) == [2, 2, 0] and summary.left == 0 and "requests: 12 sent, 0 answered" in summary.report
    kinds = Counter(map(script["kind_of"], scripted_server.requests))
    assert kinds == {"question criteria": 4, "answer criteria": 4, "merge": 4} and "sentences" not in summary.report
    for name, dimension in DIMENSIONS.items():
        made = read_environments(tmp_path / f"out/{name}.jsonl")
        for environment, source in zip(made, environments, strict=True):
            posed = BENCHMARKS[name](source)
            assert (environment.id, environment.question, environment.reference) == (posed.id, posed.question, posed.reference)
            assert environment.reference == source.stages[dimension] and environment.split == "heldout"
            # Ten of R_Q and ten of R_A, whose first two are R_Q's last two: ranked in that order, ten are kept.
            assert [criterion.text for criterion in environment.rubric] == [script["criterion"](number) for number in range(10)]
            assert {criterion.dimension for criterion in environment.rubric} == {dimension}
            assert [criterion.source for criterion in environment.rubric] == ["question"] * 8 + ["both"] * 2
            provenance = environment.provenance
            assert provenance["paper"] == source.id and provenance["votes"] == [1] * 10 and provenance["merger"] == "big"
            assert provenance["account"]["criteria"] == {"proposed": 20, "faulty": 0, "doubles": 2}
            assert provenance["account"]["took"]["requests"] == CALLS / 2


def test_no_character_of_the_reference_reaches_the_criteria_from_the_question(heldout, elicit, scripted_server, script):
    environments = heldout(3)
    elicit(environments)
    marks = script["MARKS"]
    asked = {("method", "question criteria"): {"goal", "background"}, ("method", "answer criteria"): {"goal", "background", "method"}}
    asked |= {("method", "merge"): {"goal", "background", "method"}, ("experiment", "question criteria"): {"goal", "background", "method"}}
    asked |= {("experiment", "answer criteria"): set(marks), ("experiment", "merge"): set(marks)}
    posed = {make(environment).question for environment in environments for make in (innovation, design)}
    seen = Counter()
    for body in scripted_server.requests:
        prompt, kind = body["messages"][1]["content"], script["kind_of"](body)
        texts = [text for _, text in script["fenced_texts"](prompt)]
        dimension = "experiment" if "Proposed approach" in texts[0] else "method"
        assert {stage for stage, mark in marks.items() if mark in json.dumps(body)} == asked[dimension, kind], (dimension, kind)
        assert texts[0] in posed and (kind != "question criteria" or len(texts) == 1)
        if kind != "merge":
            assert re.findall(r'^dimension "(\w+)"', prompt, re.MULTILINE) == [dimension] and "Write 10 criteria" in prompt
        seen[dimension, kind] += 1
    assert seen == dict.fromkeys(asked, 3)


def test_a_second_run_costs_nothing_and_gives_the_same_bytes(heldout, elicit, scripted_server, tmp_path):
    environments = heldout(2)
    elicit(environments)
    first = {name: (tmp_path / f"out/{name}.jsonl").read_bytes() for name in BENCHMARKS}
    scripted_server.requests.clear()
    assert "requests: 0 sent, 12 answered" in elicit(environments).report and not scripted_server.requests
    assert first == {name: (tmp_path / f"out/{name}.jsonl").read_bytes() for name in BENCHMARKS}
    assert not (tmp_path / "out/.benchmarks.journal").exists()


def test_what_fails_is_named_and_stops_nothing(heldout, elicit, scripted_server, script, write_recipe, tmp_path):
    environments = heldout(3)
    bare = Environment("bare", "cs", "Why?", (Criterion("c"),))
    recipe = write_recipe()

    def answer(body):
        bad = script["kind_of"](body) == "merge" and "kaab" in str(body) and "Proposed approach" not in str(body)
        return '{"ranking": [{"criterion": 99, "doubles": []}]}' if bad else script["reply"](body)

    scripted_server.answer = answer
    summary = elicit([bare, *environments], recipe=recipe)
    assert list(summary.counts.values()) == [2, 3, 3]
    rejects = [json.loads(line) for line in (tmp_path / "out/rejects.jsonl").read_text().splitlines()]
    assert [(reject["environment"], reject["benchmark"]) for reject in rejects] == [
        ("bare", "innov"),
        ("bare", "design"),
        ("kaab", "innov"),
    ]
    assert "stages.method: a text is needed" in rejects[0]["reason"] and "there is no criterion 99" in rejects[2]["reason"]
    with pytest.raises(InputError, match=r"none of 1 environments can be in the benchmark innov: environment 'bare', stages\.method"):
        elicit([bare], "none")
    assert len((tmp_path / "none/rejects.jsonl").read_text().splitlines()) == 2 and not (tmp_path / "none/innov.jsonl").exists()


@pytest.mark.parametrize("points", [[8], pytest.param([1, 5, 9, 14, 19], marks=pytest.mark.slow)])
def test_killed_at_any_point_it_repeats_no_paid_call(heldout, elicit, scripted_server, script, write_recipe, tmp_path, points):
    environments = heldout(4)
    elicit(environments, "calm")
    distinct = {json.dumps(body, sort_keys=True) for body in scripted_server.requests}
    assert len(distinct) == 4 * CALLS
    write_environments(tmp_path / "heldout.jsonl", environments)
    cache = tmp_path / "fresh.sqlite"
    recipe = write_recipe(f"papers_at_once = 2\ncache = {json.dumps(str(cache))}", concurrency=3)
    command = [sys.executable, "-m", "papergym.cli", "benchmark", str(tmp_path / "heldout.jsonl"), "--out", str(tmp_path / "out")]
    command += ["--extractor", str(recipe)]
    scripted_server.requests.clear()
    for point in points:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

        def answer(body, process=process, point=point):
            if len(scripted_server.requests) >= point:
                process.send_signal(signal.SIGKILL)
            return script["reply"](body)

        scripted_server.answer = answer
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors
        assert not (tmp_path / "out/innov.jsonl").exists()
    paid, asked = len(ReplyCache(cache)), len(scripted_server.requests)
    scripted_server.answer = script["reply"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(scripted_server.requests) - asked == len(distinct) - paid and asked <= paid + 3 * len(points)
    for name in BENCHMARKS:
        assert (tmp_path / f"out/{name}.jsonl").read_bytes() == (tmp_path / f"calm/{name}.jsonl").read_bytes()
    assert not (tmp_path / "out/.benchmarks.journal").exists() and "requests:" in done.stdout


def test_what_is_finished_is_not_made_again(heldout, elicit, scripted_server, script, write_recipe, tmp_path):
    """From the journal, not only from the cache: finished ones are not even looked up."""
    recipe = write_recipe("papers_at_once = 1", attempts=1)
    scripted_server.answer = lambda body: scripted_server.problems["broken"] if "kaab" in str(body) else script["reply"](body)
    with pytest.raises(InputError, match="no usable reply in 1 attempts"):
        elicit(heldout(2), recipe=recipe)
    assert len((tmp_path / "out/.benchmarks.journal").read_text().splitlines()) == 1 + 2
    scripted_server.answer = script["reply"]
    assert f"requests: {CALLS} sent, 0 answered" in elicit(heldout(2), recipe=recipe).report


def test_a_budget_is_never_exceeded_and_the_rest_is_made_later(heldout, elicit, scripted_server, write_recipe):
    prices = "[extractor]\nreply_tokens = 3000\nprices = { input = 1000.0, output = 1000.0 }\n"
    recipe = write_recipe(prices, concurrency=2)
    usage, good = {"prompt_tokens": 900, "completion_tokens": 100}, scripted_server.answer  # 1 a request
    scripted_server.answer = lambda body: scripted_server.completion([good(body)], usage=usage)
    with pytest.raises(InputError, match="the budget was spent before an environment was in the benchmark innov"):
        elicit(heldout(3), recipe=recipe, max_cost=1.0)
    assert not scripted_server.requests
    summary, calls = None, 0
    while summary is None or summary.left:
        before, calls = len(scripted_server.requests), calls + 1
        try:
            summary = elicit(heldout(3), recipe=recipe, max_cost=15.0)
        except InputError as error:
            assert "the budget was spent before" in str(error)
        assert 0 < len(scripted_server.requests) - before <= 15
    assert calls > 1 and list(summary.counts.values()) == [3, 3, 0] and len(scripted_server.requests) == 3 * CALLS
    assert f"out for {3 * CALLS}, " in summary.report
    with pytest.raises(InputError, match="names no prices for 'big'"):
        elicit(heldout(1), recipe=write_recipe(), max_cost=1.0)
    with pytest.raises(InputError, match="max_cost 1: criteria that an environment has already cost nothing"):
        write_benchmarks(heldout(1), recipe.parent / "reused", max_cost=1.0)


def test_limit_takes_the_first_environments(heldout, write_recipe, tmp_path):
    from click.testing import CliRunner

    from papergym.cli import main

    write_environments(tmp_path / "heldout.jsonl", heldout(3))
    command = ["benchmark", str(tmp_path / "heldout.jsonl"), "--out", str(tmp_path / "out"), "--extractor", str(write_recipe())]
    result = CliRunner().invoke(main, [*command, "--limit", "1"])
    assert result.exit_code == 0 and "1 in " in result.output and f"requests: {CALLS} sent" in result.output
    assert [environment.id for environment in read_environments(tmp_path / "out/design.jsonl")] == ["kaaa-design"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('benchmark = "innov"\n', r"recipe\.toml: benchmark 'innov' is for builds"),
        ('[rubric]\ndimensions = ["method"]\n', r"recipe\.toml: benchmark 'design' has criteria of the experiment"),
    ],
)
def test_wrong_recipes_are_named(heldout, elicit, write_recipe, text, words):
    with pytest.raises(InputError, match=words):
        elicit(heldout(1), recipe=write_recipe(text))
