"""The whole route on a scripted server: what each request may know, what becomes of bad replies, and that nothing is asked twice."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build
from papergym.data_pipeline.lm.recipe import load_recipe
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache

PER_PAPER = {"map": 4, "reduce": 2, "question": 1, "reference": 1, "question criteria": 1, "answer criteria": 1, "merge": 1}
CALLS = sum(PER_PAPER.values())


@pytest.fixture
def run(tmp_path, write_recipe):
    """run(papers, name="out", recipe=None, **options): builds into NAME.jsonl."""

    def build_it(papers, name="out", recipe=None, **options):
        return build(papers, tmp_path / f"{name}.jsonl", extractor=recipe or write_recipe(), created="2026-12-01", **options)

    return build_it


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def keys(requests):
    return Counter(json.dumps(body, sort_keys=True) for body in requests)


def test_what_a_paper_becomes(run, write_papers, scripted_server, script):
    summary = run(write_papers(2))
    assert (summary.environments, summary.rejected, summary.left) == (2, 0, 0)
    assert Counter(map(script["kind_of"], scripted_server.requests)) == {kind: 2 * count for kind, count in PER_PAPER.items()}
    environment = read_environments(summary.out)[0]
    sentences, name = script["sentences"], "kaaa"
    assert environment.stages == {stage: " ".join(sentences(stage, name)) for stage in script["MARKS"]}
    assert [(criterion.source, criterion.dimension) for criterion in environment.rubric[:2]] == [
        ("question", "method"),
        ("question", "experiment"),
    ]
    assert [criterion.source for criterion in environment.rubric] == ["question"] * 8 + ["both"] * 2
    provenance = environment.provenance
    assert provenance["votes"] == [1] * 10 and provenance["model"] == "big" and len(provenance["prompts"]) == 12
    assert provenance["sections"]["method"] == [["Method", len(environment.stages["method"])]]
    assert provenance["account"] == {
        "sentences": {"copied": 11, "unfaithful": 0, "results": 1, "crossing": 0, "merged": 0},
        "criteria": {"proposed": 20, "faulty": 0, "doubles": 2},
        "reference_sentences_dropped": 0,
        "took": {"requests": CALLS, "prompt_tokens": 10 * CALLS, "completion_tokens": 2 * CALLS, "cost": 0.0},
    }  # fmt: skip
    assert "93.2" not in json.dumps(environment.to_record()) and "0.001" in environment.reference


def test_no_character_of_one_side_reaches_the_other(run, write_papers, scripted_server, script):
    run(write_papers(3))
    marks = script["MARKS"]
    allowed = {
        "question": {"goal", "background"},
        "reference": {"method", "experiment"},
        "question criteria": {"goal", "background"},  # through the question
        "answer criteria": set(marks),
    }
    for body in scripted_server.requests:
        prompt, kind = body["messages"][1]["content"], script["kind_of"](body)
        shown = {stage for stage, mark in marks.items() if mark in prompt}
        if kind in allowed:
            assert shown == allowed[kind], kind
        if kind == "reduce":
            assert len(shown) == 1


def test_a_sentence_on_both_sides_stays_with_the_reference(run, write_papers, scripted_server, script):
    def confused(body):
        record = script["scripted"](body)
        if script["kind_of"](body) == "map":
            record["goal"] += " " + record["method"]
            record["background"] += " " + " ".join(record["experiment"].split()[:9])  # a clip, which is no sentence
        return json.dumps(record)

    recipe_answer = run  # the fixture sets the scripted answer when it writes the recipe
    papers = write_papers(1)
    from_scripted = recipe_answer(papers, "calm")
    scripted_server.answer = confused
    scripted_server.requests.clear()
    (tmp := from_scripted.out.with_name("calm.replies.sqlite")).unlink()
    assert not tmp.exists()
    recipe = from_scripted.out.with_name("recipe.toml")
    summary = run(papers, "confused", recipe)
    calm, environment = read_environments(from_scripted.out)[0], read_environments(summary.out)[0]
    assert environment.stages == calm.stages and environment.question == calm.question
    counts = environment.provenance["account"]["sentences"]
    assert counts["crossing"] == 3 and counts["unfaithful"] == 1
    for body in scripted_server.requests:
        if script["kind_of"](body) == "question":
            assert script["MARKS"]["method"] not in body["messages"][1]["content"]


def invent(script, record):
    return {stage: f"{text} Rods never jam at all.".strip() for stage, text in record.items()}


def test_invented_sentences_are_dropped_and_counted(run, write_papers, scripted_server, script, write_recipe):
    recipe = write_recipe()
    scripted_server.answer = lambda body: json.dumps(
        invent(script, script["scripted"](body)) if script["kind_of"](body) == "map" else script["scripted"](body)
    )
    summary = run(write_papers(1), recipe=recipe)
    (environment,) = read_environments(summary.out)
    assert environment.provenance["account"]["sentences"]["unfaithful"] == 16 and "16 that are not in their section" in summary.report
    assert not any("never jam" in text for text in environment.stages.values())


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
    assert len(maps) > PER_PAPER["map"] + 2 and not any("(Attempt" in prompt for prompt in maps)


def test_a_paper_without_a_test_is_enough_where_none_is_asked_for(run, write_papers, scripted_server, script, write_recipe):
    def theory(body):
        record = script["scripted"](body)
        return json.dumps(record | {"experiment": ""} if script["kind_of"](body) == "map" else record)

    recipe = write_recipe()
    scripted_server.answer = theory
    with pytest.raises(InputError, match="no sentence of its sections is about its experiment"):
        run(write_papers(1), recipe=recipe)
    recipe = write_recipe('benchmark = "innov"\n[rubric]\nm = 12\n')
    scripted_server.answer = theory
    assert run(write_papers(1), recipe=recipe).environments == 1


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


def test_limit_takes_the_first_papers(run, write_papers):
    summary = run(write_papers(3), limit=2)
    assert [environment.id[:4] for environment in read_environments(summary.out)] == ["kaaa", "kaab"]


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


@pytest.mark.parametrize(
    ("text", "sources", "dimensions", "calls"),
    [
        ('[rubric]\nsources = ["question"]\nm = 12\n', {"question"}, {"method", "experiment"}, CALLS - 1),
        ('[rubric]\nsources = ["answer"]\n', {"answer"}, {"method", "experiment"}, CALLS - 1),
        ('[rubric]\ndimensions = ["method"]\nn = 12\n', {"question", "answer", "both"}, {"method"}, CALLS),
    ],
)
def test_variants_of_the_rubric(run, write_papers, write_recipe, scripted_server, text, sources, dimensions, calls):
    (environment,) = read_environments(run(write_papers(1), recipe=write_recipe(text)).out)
    assert {criterion.source for criterion in environment.rubric} == sources
    assert {criterion.dimension for criterion in environment.rubric} == dimensions
    assert len(environment.rubric) == (12 if "n = 12" in text else 10) and len(scripted_server.requests) == calls


def test_several_models_propose_and_their_votes_are_kept(run, write_papers, write_recipe, scripted_server):
    server = f'kind = "http"\nurl = "{scripted_server.url}"\n'
    models = "".join(f'[[rubric.models]]\n[rubric.models.model]\n{server}model = "{name}"\n' for name in ("one", "two", "three"))
    merger = f'[rubric.merger.model]\n{server}model = "referee"\n'
    (environment,) = read_environments(run(write_papers(1), recipe=write_recipe(models + merger)).out)
    assert environment.provenance["votes"] == [3] * 10
    assert environment.provenance["rubric_models"] == ["one", "two", "three"] and environment.provenance["merger"] == "referee"
    assert Counter(body["model"] for body in scripted_server.requests) == {"big": CALLS - 3, "one": 2, "two": 2, "three": 2, "referee": 1}


def test_the_benchmarks_ask_about_one_side(run, write_papers, write_recipe, scripted_server, script):
    marks = script["MARKS"]
    for benchmark, answered, other in (("innov", "method", "experiment"), ("design", "experiment", "method")):
        scripted_server.requests.clear()
        recipe = write_recipe(f'benchmark = "{benchmark}"\n[rubric]\nm = 12\n', model=benchmark)
        (environment,) = read_environments(run(write_papers(1), benchmark, recipe).out)
        assert {criterion.dimension for criterion in environment.rubric} == {answered}
        assert marks[answered] in environment.reference and marks[other] not in environment.reference
        assert environment.benchmark == f"PaperGym-{benchmark.title()}"
        prompts = {script["kind_of"](body): body["messages"][1]["content"] for body in scripted_server.requests}
        assert (marks["method"] in prompts["question"]) == (benchmark == "design") and marks["experiment"] not in prompts["question"]


def test_a_reference_with_outcomes_or_foreign_numbers_is_put_right(run, write_papers, write_recipe, scripted_server, script):
    recipe, spoilt = write_recipe(), " This reaches an accuracy of 98.1 percent. It would take 777 hours of shaking."

    def answer(body):
        record = script["scripted"](body)
        if script["kind_of"](body) == "reference":
            record["reference"] += spoilt
        return json.dumps(record)

    scripted_server.answer = answer
    (environment,) = read_environments(run(write_papers(1), recipe=recipe).out)
    assert "98.1" not in environment.reference and "777" not in environment.reference and "maple" in environment.reference
    assert environment.provenance["account"]["reference_sentences_dropped"] == 2
    attempts = [body["messages"][1]["content"] for body in scripted_server.requests if script["kind_of"](body) == "reference"]
    assert ["(Attempt" in prompt for prompt in attempts] == [False, True, True] and "98.1 percent" in attempts[1]


def test_faulty_criteria_are_refused_and_others_asked_for(run, write_papers, write_recipe, scripted_server, script):
    recipe = write_recipe()

    def answer(body):
        record, prompt = script["scripted"](body), body["messages"][1]["content"]
        if script["kind_of"](body) == "question criteria" and "(Attempt" not in prompt:
            record["criteria"][0]["text"] = "The plan proposes a novel and rigorous method with baselines."
            record["criteria"][1]["text"] = record["criteria"][2]["text"]
        return json.dumps(record)

    scripted_server.answer = answer
    (environment,) = read_environments(run(write_papers(1), recipe=recipe).out)
    assert environment.provenance["account"]["criteria"] == {"proposed": 21, "faulty": 1, "doubles": 2}
    assert not any("novel" in criterion.text for criterion in environment.rubric)
    again = [body["messages"][1]["content"] for body in scripted_server.requests if "(Attempt" in body["messages"][1]["content"]]
    assert len(again) == 1 and "is generic" in again[0] and "8 criteria of 10" in again[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[rubric]\nm = 0\n", "m 0"),
        ('[rubric]\nsources = []\n', "sources"),
        ('[rubric]\ndimensions = ["style"]\n', "dimensions"),
        ("retries = -1\n", "retries -1"),
        ("papers_at_once = 0\n", "papers_at_once 0"),
        ('benchmark = "innov"\n[rubric]\ndimensions = ["experiment"]\n', "benchmark 'innov'"),
        ("[extractor]\ncontext = 2000\n", "context 2000"),
        ("[extractor]\nprices = { input = -1.0 }\n", "input -1.0"),
        ("model = 3\n", "unknown key 'model'"),
    ],
)  # fmt: skip
def test_wrong_recipes_are_named(run, write_papers, write_recipe, text, words):
    with pytest.raises(InputError, match=words):
        run(write_papers(1), recipe=write_recipe(text))


def test_another_recipe_begins_anew_and_pays_only_for_what_differs(run, write_papers, write_recipe, scripted_server, script):
    papers = write_papers(2)
    run(papers)
    scripted_server.requests.clear()
    run(papers, recipe=write_recipe("[rubric]\nn = 9\n"))
    assert not scripted_server.requests  # the same proposals, cut at another number
    run(papers, recipe=write_recipe('[rubric]\nsources = ["answer"]\n'))
    assert Counter(map(script["kind_of"], scripted_server.requests)) == {"merge": 2}


def test_the_route_over_http_needs_no_torch():
    code = "import sys, papergym.data_pipeline.lm.build, papergym.model.generation.http_chat; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_the_built_in_engine_goes_the_same_way(write_papers, tmp_path):
    """A random model in this process: a reason for each paper, and replies that are kept."""
    from papergym.bench.tiny import write_tiny_model

    model = write_tiny_model(tmp_path / "model", context=8192)
    recipe = tmp_path / "recipe.toml"
    options = "context = 8192\nreply_tokens = 20\ncharacters_per_token = 1.0"
    recipe.write_text(f'retries = 0\n[extractor]\n{options}\n[extractor.model]\nkind = "torch"\npath = "{model}"\ndtype = "float32"\n')
    papers = write_papers(1)
    sizes = []
    for _ in range(2):
        with pytest.raises(InputError, match="none of the 1 papers gives an environment"):
            build(papers, tmp_path / "out.jsonl", extractor=recipe)
        sizes.append(len(ReplyCache(tmp_path / "out.replies.sqlite")))
        reasons = [record["reason"] for record in records(tmp_path / "out.rejects.jsonl")]
        assert len(reasons) == 1 and "no usable reply of " in reasons[0]
    assert sizes[0] == sizes[1] > 0


def test_the_recipes_of_the_documentation_are_recipes(tmp_path):
    text = (Path(__file__).parents[2] / "docs/extraction.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(recipes) == 2
    for index, recipe in enumerate(recipes):
        (tmp_path / f"{index}.toml").write_text(recipe)
        assert load_recipe(tmp_path / f"{index}.toml").extractor.name.startswith("Qwen/")
