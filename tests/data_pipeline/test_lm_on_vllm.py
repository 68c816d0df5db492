"""Real vLLM with a random Qwen3: the whole route and audits on a server, the whole route and benchmarks on an engine in this process."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from papergym.cli import main
from papergym.data_pipeline.benchmarks import BENCHMARKS, write_benchmarks
from papergym.data_pipeline.build import build
from papergym.data_pipeline.lm.replies import read_record
from papergym.environment import Criterion, Environment, read_environments, write_environments
from papergym.errors import InputError
from papergym.model.generation.chat_models import CHAT_MODELS
from papergym.model.generation.reply_cache import ReplyCache
from papergym.model.generation.vllm_engine import open_vllm_engine
from papergym.model.generation.vllm_server import vllm_server

pytestmark = pytest.mark.vllm
OPTIONS = {
    "dtype": "float32",
    "max_model_len": 12288,
    "max_num_seqs": 16,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    # Without this a random model writes white space inside JSON for ever.
    "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
}
# One thread, bound to no core: quick for so small a model, and not stuck at barriers where other work shares the cores.
VARIABLES = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random two-layer Qwen3 of bytes. vLLM's attention on a CPU needs heads of 32."""
    from papergym.bench.tiny import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("qwen3"), context=16384, head_dim=32)


@pytest.fixture(scope="module")
def url(checkpoint, tmp_path_factory):
    """A server with it."""
    with vllm_server(checkpoint, log=tmp_path_factory.mktemp("vllm") / "server.log", environment=VARIABLES, **OPTIONS) as server:
        yield server.url


def recipe(path, url, **tables):
    """Writes a recipe; tables: name of a model's table -> the only text that the server lets it write, None for a text of its own."""
    lines = ["retries = 0", f"cache = {json.dumps(str(path.with_name('replies.sqlite')))}", "[rubric]", "m = 3", "n = 3"]
    for table, text in tables.items():
        lines += ["[[rubric.models]]" if table == "rubric.models" else f"[{table}]", "context = 12288", "characters_per_token = 1.0"]
        lines += [f"reply_tokens = {1200 if text else 200}"]
        lines += [f"[{table}.model]", 'kind = "http"', f"url = {json.dumps(url)}", 'model = "model"', 'dialect = "vllm"', "attempts = 2"]
        if text is not None:
            lines += ['schema = "none"', f"[{table}.model.extra.structured_outputs]", f"choice = [{json.dumps(text)}]"]
    path.write_text("\n".join(lines))
    return path


def test_the_whole_route(url, write_papers, script, tmp_path):
    (paper,) = write_papers(1)
    said = {stage: script["sentences"](stage, "kaaa")[0] for stage in script["MARKS"]}
    question = f"{said['background']} {said['goal']} Propose a method and an experiment that would settle it."
    plan = "We go to it as it is and do it in a row. " * 7
    # One text for all that the extractor is asked: it holds the keys of each request's form. Short ones, as a byte is a token here.
    texts = {
        "extractor": json.dumps(said | {"question": question, "reference": plan}),
        "rubric.models": json.dumps({"criteria": [{"dimension": "method", "text": script["criterion"](number)} for number in range(3)]}),
        "rubric.merger": json.dumps({"ranking": [{"criterion": number, "doubles": [number + 3]} for number in (3, 2, 1)]}),
    }
    path = recipe(tmp_path / "recipe.toml", url, **texts)
    summary = build([paper], tmp_path / "out.jsonl", extractor=path, created="2026-12-01")
    (environment,) = read_environments(summary.out)
    assert environment.question == question and environment.reference == plan.strip()
    assert environment.stages == said
    assert [criterion.text for criterion in environment.rubric] == [script["criterion"](number) for number in (2, 1, 0)]
    account = environment.provenance["account"]
    assert {criterion.source for criterion in environment.rubric} == {"both"} and account["criteria"]["doubles"] == 3
    assert account["sentences"] == {
        "copied": 5,
        "unfaithful": 11,
        "results": 0,
        "crossing": 0,
        "merged": 0,
    }  # the goal stands in two sections
    assert account["took"]["requests"] == 9 and account["took"]["completion_tokens"] > 5000
    first = summary.out.read_bytes()
    path = recipe(tmp_path / "recipe.toml", "http://127.0.0.1:9/v1", **texts)  # nobody listens there
    again = build([paper], tmp_path / "again.jsonl", extractor=path, created="2026-12-01")
    assert again.out.read_bytes() == first and "requests: 0 sent, 9 answered" in again.report


def test_a_model_that_knows_nothing_makes_no_environment(url, write_papers, tmp_path):
    """Its replies follow the schema where they end, and hold no sentence of the paper: nothing comes of them but a reason."""
    papers = write_papers(2)
    path = recipe(tmp_path / "recipe.toml", url, extractor=None)
    with pytest.raises(InputError, match="none of the 2 papers gives an environment"):
        build(papers, tmp_path / "out.jsonl", extractor=path)
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "out.rejects.jsonl").read_text().splitlines()]
    assert len(reasons) == 2 and all("no usable reply of model" in reason or "no sentence of its sections" in reason for reason in reasons)
    assert not (tmp_path / "out.jsonl").exists() and len(ReplyCache(tmp_path / "replies.sqlite")) > 0


# --- audits ---------------------------------------------------------------------------------------------------------------------------


def test_an_audit_by_a_real_model_answers_for_every_criterion(url, tmp_path):
    """Its answers are as random as it is; what is counted is that each criterion has one, and that the tables say what they add up to."""
    made = [
        Environment(
            f"e{number}",
            ("cs", "econ")[number % 2],
            f"What limits the flow of grain number {number}?",
            tuple(Criterion(f"The plan times clog {c} of grain {number}.", ("method", "experiment")[c % 2]) for c in range(2 + number % 3)),
        )
        for number in range(12)
    ]
    long = Environment("long", "cs", "Why? " + "rods in silos " * 900, (Criterion("The plan shakes it."), Criterion("The plan wets it.")))
    write_environments(tmp_path / "all.jsonl", [*made, long])
    (tmp_path / "judge.toml").write_text(
        'kind = "llm"\nreason_length = 2\nretries = 1\ntemperature = 2.0\n[model]\nkind = "http"\nmodel = "model"\n'
        f'dialect = "vllm"\nurl = "{url}"\nattempts = 3\nbackoff = 0.2\ncache = "{tmp_path / "replies.sqlite"}"\n'
    )
    command = ["audit", str(tmp_path / "all.jsonl"), "--judge", str(tmp_path / "judge.toml"), "--out", str(tmp_path / "audit")]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "audit/criteria.jsonl").read_text().splitlines()]
    assert [(line["environment"], line["criterion"]) for line in lines] == [(e.id, c) for e in [*made, long] for c in range(len(e.rubric))]
    answered = [line for line in lines if line["environment"] != "long"]
    leaked, types = [line["leaked_by_model"] for line in answered], [line["type_by_model"] for line in answered]
    assert set(leaked) == {True, False} and set(types) == {"method", "experiment"}  # none is None
    assert {(line["leaked_by_model"], line["type_by_model"]) for line in lines if line not in answered} == {(None, None)}

    found = json.loads((tmp_path / "audit/audit.json").read_text())["files"]["all"]
    rate = found["leakage"]["model"]["all"]
    assert rate["mean"] == pytest.approx(sum(leaked) / len(leaked)) and (rate["count"], rate["unscored"]) == (len(leaked), 2)
    assert 0 < rate["low"] < rate["mean"] < rate["high"] < 1
    for dimension in ("method", "experiment"):
        share = found["types"]["model"][dimension]
        assert share["mean"] == pytest.approx(types.count(dimension) / len(types)) and share["unscored"] == 2
        by_dimension = found["leakage"]["model"][dimension]
        assert by_dimension["count"] == sum(criterion.dimension == dimension for e in made for criterion in e.rubric)
    # Two questions about each environment; for the long one both are refused, and not asked again.
    assert f"{2 * len(made) + 2} requests, 2 of them refused, 0 answered from the cache" in result.output
    first = (tmp_path / "audit/audit.json").read_bytes()
    again = CliRunner().invoke(main, command, catch_exceptions=False)
    assert f"2 requests, 2 of them refused, {2 * len(made)} answered from the cache" in again.output
    assert (tmp_path / "audit/audit.json").read_bytes() == first


# --- vLLM in this process -------------------------------------------------------------------------------------------------------------


def narrowed(schema, value):
    """The schema, with nothing left open but how its one value is spelt."""
    if schema["type"] == "object":
        return schema | {"properties": {key: narrowed(part, value[key]) for key, part in schema["properties"].items()}}
    if schema["type"] == "array":
        items = [narrowed(schema["items"], one) for one in value]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items), "maxItems": len(items)}
    return {"type": schema["type"], "enum": [value]}


def short(schema):
    """The schema with strings of at most 60 characters: a random model does not end them."""
    return schema | {"properties": {key: part | {"maxLength": 60} for key, part in schema["properties"].items()}}


class Led:
    """A ChatModel on an engine that is opened once. bind(request): the schema that its reply is bound by; replies: what was said."""

    def __init__(self):
        self.engine, self.bind, self.replies = None, None, []

    def open(self, **options):
        self.engine = self.engine or open_vllm_engine(**options)
        self.usage = self.engine.usage
        return self

    def complete(self, requests):
        replies = self.engine.complete([replace(request, schema=self.bind(request)) for request in requests])
        self.replies += zip(requests, replies, strict=True)
        return replies


@pytest.fixture
def led(monkeypatch):
    """vLLM in this process: what a recipe opens as kind = "vllm"."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    led = Led()
    monkeypatch.setitem(CHAT_MODELS, "vllm", led.open)
    return led


def test_the_whole_route_in_this_process(led, checkpoint, write_papers, run, script, tmp_path):
    """Two papers and their benchmarks, every reply bound by its schema: the same as a server gives that says the same."""

    def recipe_of(name, temperature, head=""):
        options = "\n".join(f"{option} = {json.dumps(value)}" for option, value in OPTIONS.items() if isinstance(value, int))
        text = f"""
            retries = 0
            {head}
            [extractor]
            context = {OPTIONS["max_model_len"]}
            reply_tokens = 3000
            characters_per_token = 1.0
            temperature = {temperature}
            [extractor.model]
            kind = "vllm"
            path = "{checkpoint}"
            dtype = "float32"
            [extractor.model.options]
            {options}
            structured_outputs_config = {{ backend = "guidance", disable_any_whitespace = true }}
            """
        (tmp_path / name).write_text(text)
        return tmp_path / name

    papers, recipe = write_papers(2), recipe_of("led.toml", 0.0)
    led.bind = lambda request: narrowed(request.schema, script["scripted"]({"messages": request.messages}))
    summary = build(papers, tmp_path / "out.jsonl", extractor=recipe, created="2026-12-01")
    assert (summary.environments, summary.rejected) == (2, 0), summary.rejects.read_text()
    made, served = read_environments(summary.out), read_environments(run(papers, "served").out)
    for one, other in zip(made, served, strict=True):
        assert (one.question, one.reference, one.stages, one.rubric) == (other.question, other.reference, other.stages, other.rubric)
        assert one.provenance["account"]["sentences"] == other.provenance["account"]["sentences"]
    assert len(led.replies) == 2 * 11 and all(reply.texts[0].finish_reason == "stop" for _, reply in led.replies)

    counts = write_benchmarks(made, tmp_path / "benchmarks", extractor=recipe).counts
    assert list(counts.values()) == [2, 2, 0] and len(led.replies) == 2 * (11 + 6)
    for name, make in BENCHMARKS.items():
        for environment, source in zip(read_environments(tmp_path / f"benchmarks/{name}.jsonl"), made, strict=True):
            assert environment.question == make(source).question and len(environment.rubric) == 10
            assert [criterion.text for criterion in environment.rubric] == [script["criterion"](number) for number in range(10)]

    kept = recipe_of("kept.toml", 0.0, f'cache = "{tmp_path / "out.replies.sqlite"}"')
    again = build(papers, tmp_path / "again.jsonl", extractor=kept, created="2026-12-01")
    assert again.out.read_bytes() == summary.out.read_bytes() and len(led.replies) == 2 * (11 + 6)  # all were kept

    # What it says of its own accord has the form that was asked for too, and no sentence of the paper.
    led.bind, led.replies = lambda request: short(request.schema), []
    with pytest.raises(InputError, match="none of the 2 papers gives an environment"):
        build(papers, tmp_path / "own.jsonl", extractor=recipe_of("own.toml", 1.0))
    reasons = [json.loads(line)["reason"] for line in (tmp_path / "own.rejects.jsonl").read_text().splitlines()]
    assert len(led.replies) == 2 * 4 and all("no sentence of its sections is about its goal or background" in reason for reason in reasons)
    for request, reply in led.replies:
        assert set(read_record(reply.texts[0].text, request.schema)) == {"goal", "background", "method", "experiment"}
