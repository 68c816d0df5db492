"""The whole route on a scripted server: what each request may know, what is dropped, refused or put right, and the recipe's variants."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build
from papergym.data_pipeline.lm.recipe import load_recipe
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache

CALLS = 11  # that a paper takes
PER_PAPER = {"map": 4, "reduce": 2, "question": 1, "reference": 1, "question criteria": 1, "answer criteria": 1, "merge": 1}


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


def test_limit_takes_the_first_papers(run, write_papers):
    summary = run(write_papers(3), limit=2)
    assert [environment.id[:4] for environment in read_environments(summary.out)] == ["kaaa", "kaab"]


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
    assert Counter(body["model"] for body in scripted_server.requests) == {
        "big": CALLS - 3,
        "one": 2,
        "two": 2,
        "three": 2,
        "referee": 1,
    }


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
        ("[extractor]\ntemperature = 2.5\n", "temperature 2.5: a number from 0 to 2.0"),
        ("[extractor]\nprices = { input = -1.0 }\n", "input -1.0"),
        ("model = 3\n", "unknown key 'model'"),
    ],
)  # fmt: skip
def test_wrong_recipes_are_named(run, write_papers, write_recipe, text, words):
    with pytest.raises(InputError, match=words):
        run(write_papers(1), recipe=write_recipe(text))


def test_the_route_over_http_needs_no_torch():
    code = "import sys, papergym.data_pipeline.lm.build, papergym.model.generation.http_chat; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


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
        reasons = [json.loads(line)["reason"] for line in (tmp_path / "out.rejects.jsonl").read_text().splitlines()]
        assert len(reasons) == 1 and "no usable reply of " in reasons[0]
    assert sizes[0] == sizes[1] > 0


def test_the_recipes_of_the_documentation_are_recipes(tmp_path):
    text = (Path(__file__).parents[2] / "docs/extraction.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len(recipes) == 2
    for index, recipe in enumerate(recipes):
        (tmp_path / f"{index}.toml").write_text(recipe)
        assert load_recipe(tmp_path / f"{index}.toml").extractor.name.startswith("Qwen/")
