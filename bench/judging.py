"""`papergym bench judging`: what a verdict costs, by the three ways of asking a judge and by a plain client, on one vLLM server.

The plain client is what one would write first: a request a criterion, with the criterion before the plan, so that no two prompts share
more than their first words; its replies are those of the way "single". All have the same server, the same number of requests under way and
the same length limits. Plans go in rounds, each judged by every way in turn, so that a machine that gets slower or faster favours none; the
server's prefix cache is emptied before each turn. Plans and environments are those of the judge's exam.
"""

import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from papergym.bench.provenance import provenance
from papergym.environment import Environment
from papergym.errors import InputError
from papergym.files import append_jsonl
from papergym.judge.agreement import agreement, verdict_table
from papergym.judge.exam.labels import load_labels
from papergym.judge.general import load_general
from papergym.judge.scoring import open_judge
from papergym.judge.tables import markdown_table, shown
from papergym.judge.ways import WAYS, verdict_schema
from papergym.model.generation.chat_models import ChatRequest, Usage, open_chat_model
from papergym.model.generation.vllm_server import Server, vllm_server
from papergym.progress import progress_bar

Items = Sequence[tuple[Environment, str]]
REASON_LENGTH, REPLY_TOKENS = 300, 160
PLAIN = "plain client"
_PROMPT = """\
Grade a research plan strictly. Does the plan meet this criterion, as well as the reference plan does?

Criterion: {criterion}

Question: {question}

Reference plan: {reference}

Plan: {plan}

Reply with JSON: {{"reason_1": "at most two short sentences", "1": 0 or 1}}"""


def report(
    model: str,
    plans: int,
    rounds: int,
    concurrency: int,
    dtype: str,
    context: int,
    cache: float,
    eager: bool,
    python: str | None,
    out: Path | None,
) -> None:
    """Measures all ways, prints a table and appends one JSON line to `out`.

    model: a Hugging Face directory, or what `papergym convert` takes. cache: GiB for the server's keys and values. eager: without
    compiled graphs. python: the interpreter
    of an installation that has vLLM.
    """
    from papergym.model.convert import convert_model

    if rounds > plans:
        raise InputError(f"--rounds {rounds}: at most as many as there are plans, {plans}")
    with tempfile.TemporaryDirectory() as work:
        path = Path(model) if Path(model).is_dir() else convert_model(model, Path(work) / "model")
        options = {
            "dtype": dtype,
            "max_model_len": context,
            "kv_cache_memory_bytes": int(cache * 2**30),
            "enable_prompt_tokens_details": True,
        }
        options["structured_outputs_config"] = {"backend": "guidance", "disable_any_whitespace": True}
        options |= {"enforce_eager": True} if eager else {}
        variables = {"VLLM_SERVER_DEV_MODE": "1"}  # has the request that empties the prefix cache
        with vllm_server(path, log=Path(work) / "log", python=python or sys.executable, environment=variables, **options) as server:
            turns = measure(server, exam_plans(plans), rounds, concurrency)
            vllm = orjson.loads(urllib.request.urlopen(server.url.removesuffix("/v1") + "/version").read())["version"]
    place = provenance("papergym")
    place["versions"] |= {"vllm": vllm}
    settings = {"model": Path(model).name, "dtype": dtype, "plans": plans, "rounds": rounds, "concurrency": concurrency}
    record = place | settings | summary(turns)
    print(as_markdown(record))
    if out is not None:
        append_jsonl(out, [record])


def exam_plans(count: int) -> Items:
    """Plans of the exam, the written ones first; beyond their number they come again with a last sentence of their own."""
    labels = load_labels()
    known = [(labels.environments[name], plan) for name, plan in chain(labels.plans.items(), labels.answers)]
    return [
        (environment, plan if number < len(known) else f"{plan} This is version {number // len(known) + 1}.")
        for number, (environment, plan) in enumerate(islice(cycle(known), count))
    ]


def measure(server: Server, items: Items, rounds: int, concurrency: int) -> list[dict[str, Any]]:
    """One mapping for each turn, a way's work of one round: way, plans, seconds, usage, and the verdicts as records of a judge."""
    spec = {"kind": "http", "url": server.url, "model": "model", "dialect": "vllm", "concurrency": concurrency, "timeout": 3600.0}
    ways: dict[str, Callable[[Items], tuple[list[dict[str, Any]], Usage]]] = {PLAIN: lambda chosen: _plain(chosen, spec)}
    ways |= {way: lambda chosen, way=way: _by_way(way, chosen, spec) for way in WAYS}
    for grade in ways.values():  # what is compiled at the first request is compiled here
        grade([(items[0][0], "We measure it.")])
    turns, names = [], list(ways)
    with progress_bar("judging", rounds * len(ways)) as bar:
        for number in range(rounds):
            chosen = items[number * len(items) // rounds : (number + 1) * len(items) // rounds]
            for name in names[number % len(names) :] + names[: number % len(names)]:
                _empty_prefix_cache(server)
                started = time.perf_counter()
                records, usage = ways[name](chosen)
                seconds = time.perf_counter() - started
                for sample, record in enumerate(records):
                    record |= {"judge": name, "run": 0, "row": f"round {number}", "sample": sample}
                turns.append({"way": name, "plans": len(chosen), "seconds": seconds, "usage": usage, "records": records})
                bar.advance(note=f"{name} {seconds:.1f} s")
    return turns


def _empty_prefix_cache(server: Server) -> None:
    urllib.request.urlopen(urllib.request.Request(server.url.removesuffix("/v1") + "/reset_prefix_cache", method="POST")).close()


def _plain(items: Items, spec: dict[str, Any]) -> tuple[list[dict[str, Any]], Usage]:
    chat, general = open_chat_model(spec), [f"{criterion.name}: {criterion.text}" for criterion in load_general()]
    asked = [
        (_PROMPT.format(criterion=text, question=environment.question, reference=environment.reference, plan=plan))
        for environment, plan in items
        for text in (*(criterion.text for criterion in environment.rubric), *general)
    ]
    schema = verdict_schema(1, REASON_LENGTH)
    replies = chat.complete([ChatRequest([{"role": "user", "content": prompt}], REPLY_TOKENS, schema=schema) for prompt in asked])
    verdicts = (None if not reply.texts else _verdict(WAYS["single"].read(reply.texts[0], 1)[0]) for reply in replies)
    return [
        {
            "environment": environment.id,
            "specialised": [next(verdicts) for _ in environment.rubric],
            "general": [next(verdicts) for _ in general],
        }
        for environment, _ in items
    ], chat.usage


def _verdict(chance: float | None) -> bool | None:
    return None if chance is None else chance > 0.5


def _by_way(way: str, items: Items, spec: dict[str, Any]) -> tuple[list[dict[str, Any]], Usage]:
    judge: Any = open_judge({"kind": "llm", "way": way, "model": spec, "reason_length": REASON_LENGTH, "retries": 0})
    scores = judge.score(items)
    return [
        {"environment": environment.id, "specialised": list(scored.specialised), "general": list(scored.general)}
        for (environment, _), scored in zip(items, scores, strict=True)
    ], judge.usage


def summary(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{"ways": way -> figures, "pairs": agreement and κ of each two}, ready for JSON.

    A way's: plans_per_second over all rounds, and of the slowest and the fastest; tokens generated, of prompts, and of these in the
    server's prefix cache; requests; verdicts, and how many could not be read; fewer_tokens: generated by "json" for each of its own;
    faster: median over rounds of its speed over the plain client's in the same round.
    """
    by_way: dict[str, list[dict[str, Any]]] = {}
    for turn in turns:
        by_way.setdefault(turn["way"], []).append(turn)
    generated = {way: sum(turn["usage"].completion_tokens for turn in made) for way, made in by_way.items()}
    ways = {}
    for way, made in by_way.items():
        speeds = [turn["plans"] / turn["seconds"] for turn in made]
        verdicts = [verdict for turn in made for record in turn["records"] for verdict in (*record["specialised"], *record["general"])]
        ways[way] = {
            "plans_per_second": sum(turn["plans"] for turn in made) / sum(turn["seconds"] for turn in made),
            **{"slowest": min(speeds), "fastest": max(speeds)},
            "faster": median(plain["seconds"] / turn["seconds"] for turn, plain in zip(made, by_way[PLAIN], strict=True)),
            "generated": generated[way],
            "fewer_tokens": generated["json"] / generated[way],
            "prompt": sum(turn["usage"].prompt_tokens for turn in made),
            "cached": sum(turn["usage"].cached_tokens for turn in made),
            **{"requests": sum(turn["usage"].requests for turn in made), "verdicts": len(verdicts), "unread": verdicts.count(None)},
        }
    environments = load_labels().environments
    pairs = agreement(verdict_table([record for turn in turns for record in turn["records"]], environments))["pairs"]
    return {
        "ways": ways,
        "pairs": [{name: pair["all"][name] for name in ("agreement", "kappa")} | {"of": pair["judges"]} for pair in pairs],
    }


def as_markdown(record: dict[str, Any]) -> str:
    """The record as two tables."""
    rows = [
        (
            way,
            f"{figures['plans_per_second']:.3f} ({figures['slowest']:.3f} to {figures['fastest']:.3f})",
            f"{figures['faster']:.2f}",
            figures["generated"],
            f"{figures['fewer_tokens']:.1f}",
            figures["prompt"],
            figures["cached"],
            f"{figures['unread']} of {figures['verdicts']}",
        )
        for way, figures in record["ways"].items()
    ]
    headings = (
        "way",
        "plans/s",
        "× plain client",
        "generated tokens",
        "× fewer than json",
        "prompt tokens",
        "in the prefix cache",
        "unread",
    )
    pairs = [(" and ".join(pair["of"]), shown(pair["agreement"]), shown(pair["kappa"])) for pair in record["pairs"]]
    return f"{markdown_table(headings, rows)}\n{markdown_table(('ways', 'agreement', 'kappa'), pairs)}"
