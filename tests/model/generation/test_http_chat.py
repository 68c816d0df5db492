"""The chat model over HTTP against a server that misbehaves on demand."""

import asyncio
import json
import threading
import time

import pytest

from papergym.errors import InputError
from papergym.model.generation.chat_models import ChatRequest, open_chat_model
from papergym.model.generation.reply_cache import ReplyCache


@pytest.fixture
def open_model(scripted_server):
    """open_model(**options): a chat model on the scripted server that loses little time over failures."""

    def open_it(**options):
        patience = {"timeout": 30.0, "backoff": 0.01, "attempts": 4}
        return open_chat_model({"kind": "http", "url": scripted_server.url, "model": "m", **patience, **options})

    return open_it


def ask(text, **options):
    return ChatRequest([{"role": "user", "content": text}], **{"max_tokens": 8, **options})


def echo(body):
    return "re: " + body["messages"][-1]["content"]


def test_what_is_sent_and_what_comes_back(scripted_server, open_model, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    usage = {"prompt_tokens": 70, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 64}}
    top = {"1": -0.25, "0": -1.5}
    scripted_server.answer = lambda body: scripted_server.completion(["a", "b"], top, usage)
    schema = {"type": "object"}
    model = open_model(api_key_variable="SOME_KEY", dialect="vllm", extra={"chat_template_kwargs": {"enable_thinking": False}})
    (reply,) = model.complete([ask("Q", n=2, seed=7, temperature=0.5, schema=schema, choices=("0", "1"), top_logprobs=20)])
    assert [text.text for text in reply.texts] == ["a", "b"]
    assert reply.texts[1].top_logprobs == ((("1", -0.25), ("0", -1.5)),) and reply.texts[0].finish_reason == "stop"
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens, reply.from_cache) == (70, 64, 3, False)
    assert scripted_server.requests == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Q"}],
            "temperature": 0.5,
            "max_tokens": 8,
            "n": 2,
            "seed": 7,
            "logprobs": True,
            "top_logprobs": 20,
            "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}},
            "repetition_penalty": 1.0,
            "structured_outputs": {"choice": ["0", "1"]},
            "chat_template_kwargs": {"enable_thinking": False},
        }
    ]
    assert scripted_server.headers[0]["Authorization"] == "Bearer secret"


def test_what_other_servers_would_refuse_is_left_out(scripted_server, open_model):
    request = ask("Q", schema={"type": "object"}, choices=("0", "1"))
    for schema, sent in (("object", {"type": "json_object"}), ("none", None)):
        open_model(schema=schema, length_field="max_completion_tokens").complete([request])
        body = scripted_server.requests[-1]
        assert body.get("response_format") == sent and "structured_outputs" not in body
        assert body["max_completion_tokens"] == 8 and "max_tokens" not in body


@pytest.mark.parametrize("problem", ["busy", "broken", "hang", "cut", "junk", "truncated", "wrong shape", "nothing", "no choices"])
def test_replies_are_the_same_whatever_went_wrong_before(scripted_server, open_model, problem):
    scripted_server.misbehave_first([scripted_server.problems[problem]] * 2, echo)
    model = open_model(timeout=1.0, attempts=20) if problem == "hang" else open_model()
    replies = model.complete([ask(f"{number}") for number in range(5)])
    assert [reply.texts[0].text for reply in replies] == [f"re: {number}" for number in range(5)]
    failed = model.client.failed_attempts
    assert failed >= 10 if problem == "hang" else failed == 10  # on a busy machine an answer may come too late as well
    assert len(scripted_server.requests) == 5 + failed
    assert model.usage.requests == 5 and model.usage.prompt_tokens == 50 and model.usage.completion_tokens == 10


def test_a_server_that_stays_broken_stops_the_run(scripted_server, open_model):
    for name, words, timeout in (
        ("broken", "status 500: Internal Server Error", 30.0),
        ("hang", "within 0.5 s", 0.5),
        ("junk", "Bad gateway", 30.0),
    ):
        scripted_server.requests.clear()
        scripted_server.answer = lambda body, problem=scripted_server.problems[name]: problem
        with pytest.raises(InputError, match=f"no usable reply in 4 attempts, the last one: .*{words}"):
            open_model(timeout=timeout).complete([ask("Q")])
        assert len(scripted_server.requests) == 4


def test_an_address_where_nobody_listens_is_named(scripted_server):
    scripted_server.stop()
    model = open_chat_model({"kind": "http", "url": scripted_server.url, "model": "m", "attempts": 2, "backoff": 0.01})
    with pytest.raises(InputError, match=f"{scripted_server.url}: no usable reply in 2 attempts.*ConnectError"):
        model.complete([ask("Q")])


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_that_will_not_change_is_not_asked_again(scripted_server, open_model, status):
    body = json.dumps({"error": {"message": "no such model"}}).encode()
    scripted_server.answer = lambda _: scripted_server.Misbehaviour(status, body)
    with pytest.raises(InputError, match=f"refuses the request, status {status}.*no such model"):
        open_model().complete([ask("Q")])
    assert len(scripted_server.requests) == 1


def test_one_request_that_is_too_long_leaves_the_others(scripted_server, open_model, tmp_path):
    message = b'{"error": {"message": "This model\'s maximum context length is 1024 tokens.", "code": 400}}'

    def answer(body):
        return scripted_server.Misbehaviour(400, message) if "long" in body["messages"][0]["content"] else "fine"

    scripted_server.answer = answer
    model = open_model(cache=str(tmp_path / "cache"))
    for _ in range(2):
        short, long = model.complete([ask("short"), ask("long")])
        assert short.texts[0].text == "fine" and long.texts == () and "maximum context length" in long.refused
    assert model.usage.refused == 2 and model.usage.from_cache == 1  # a refusal isn't kept: another server may take it


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_the_server_says_how_long_to_wait(scripted_server, open_model, form):
    value = "0.4" if form == "seconds" else time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 2))
    scripted_server.misbehave_first([scripted_server.Misbehaviour(429, b"", {"Retry-After": value})], echo)
    started = time.monotonic()
    open_model(timeout=5.0).complete([ask("Q")])
    assert 0.4 <= time.monotonic() - started < 3


def test_a_wait_beyond_all_patience_stops_the_run(scripted_server, open_model):
    scripted_server.answer = lambda _: scripted_server.Misbehaviour(429, b"quota", {"Retry-After": "3600"})
    with pytest.raises(InputError, match=r"asks to wait 3600 s.*quota"):
        open_model().complete([ask("Q")])


def test_no_more_requests_at_once_than_allowed(scripted_server, open_model):
    three = threading.Barrier(3, timeout=30)

    def together(body):
        three.wait()
        return echo(body)

    scripted_server.answer = together
    replies = open_model(concurrency=3).complete([ask(f"{number}") for number in range(12)])
    assert [reply.texts[0].text for reply in replies] == [f"re: {number}" for number in range(12)]
    assert scripted_server.most_at_once == 3


def test_the_cache_knows_text_model_and_parameters_and_not_the_address(scripted_server, open_model, tmp_path):
    cache = str(tmp_path / "deep" / "cache.sqlite")
    scripted_server.answer = echo
    requests = [ask("a"), ask("b"), ask("a", seed=1), ask("a", max_tokens=9)]
    first = open_model(cache=cache).complete(requests)
    assert len(scripted_server.requests) == 4 and not any(reply.from_cache for reply in first)
    scripted_server.stop()
    away = open_model(cache=cache, url="http://127.0.0.1:9/v1", attempts=1)
    again = away.complete(requests)
    assert [reply.texts for reply in again] == [reply.texts for reply in first] and all(reply.from_cache for reply in again)
    assert away.usage.requests == 0 and away.usage.from_cache == 4 and away.usage.completion_tokens == 0
    for unknown in (ask("c"), ask("a", temperature=0.1)):
        with pytest.raises(InputError, match="no usable reply"):
            away.complete([unknown])
    with pytest.raises(InputError, match="no usable reply"):
        open_model(cache=cache, url="http://127.0.0.1:9/v1", attempts=1, model="other").complete(requests[:1])


def test_replies_that_came_before_a_failure_are_kept(scripted_server, open_model, tmp_path):
    cache = tmp_path / "cache.sqlite"
    scripted_server.answer = lambda body: "ok" if body["messages"][0]["content"] != "5" else scripted_server.problems["broken"]
    requests = [ask(f"{number}") for number in range(8)]
    with pytest.raises(InputError, match="status 500"):
        open_model(cache=str(cache), concurrency=1).complete(requests)
    assert len(ReplyCache(cache)) == 5
    scripted_server.answer = lambda body: "ok"
    scripted_server.requests.clear()
    assert len(open_model(cache=str(cache)).complete(requests)) == 8
    assert sorted(body["messages"][0]["content"] for body in scripted_server.requests) == ["5", "6", "7"]


def test_log_probs_that_are_missing_are_no_reply(scripted_server, open_model):
    with pytest.raises(InputError, match="no log-probs, though they were asked for"):
        open_model(attempts=1).complete([ask("Q", top_logprobs=5)])


def test_thinking_alone_is_an_empty_text(scripted_server, open_model):
    reply = scripted_server.completion([None])
    reply["choices"][0]["message"]["reasoning_content"] = "hm"
    scripted_server.answer = lambda _: reply
    assert open_model().complete([ask("Q")])[0].texts[0].text == ""


def test_inside_a_running_event_loop(scripted_server, open_model, tmp_path):
    scripted_server.answer = echo
    model = open_model(cache=str(tmp_path / "cache"))

    async def notebook():
        return model.complete([ask("a"), ask("b")])

    assert [reply.texts[0].text for reply in asyncio.run(notebook())] == ["re: a", "re: b"]
    assert model.complete([ask("a")])[0].from_cache


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "localhost:8000"}, "url 'localhost:8000'"),
        ({"url": "http://[::1"}, "url 'http://\\[::1'"),
        ({"url": "http://127.0.0.1:99999/v1"}, "url 'http://127.0.0.1:99999/v1'"),
        ({"url": "http:///v1"}, "url 'http:///v1'"),
        ({"url": "http://127.0.0.1/v 1"}, "url 'http://127.0.0.1/v 1'"),
        ({"attempts": 0}, "attempts 0"),
        ({"timeout": 0.0}, "timeout 0.0"),
        ({"api_key_variable": "NO_SUCH_KEY"}, "api_key_variable 'NO_SUCH_KEY'"),
        ({"dialect": "french"}, "dialect"),
        ({"modle": "m"}, "modle"),
    ],
)
def test_wrong_options_are_named(open_model, options, words):
    with pytest.raises(InputError, match=words):
        open_model(**options)


def test_a_chat_model_needs_a_kind():
    with pytest.raises(InputError, match="'kind' is needed"):
        open_chat_model({"url": "http://a/v1"})


def test_a_file_that_is_no_cache_is_named(tmp_path, open_model):
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look like one " * 100)
    with pytest.raises(InputError, match=r"notes\.txt"):
        open_model(cache=str(tmp_path / "notes.txt"))


def test_a_request_that_breaks_the_server_each_time_leaves_the_others(scripted_server, open_model):
    """While others are answered, one that never is must be at fault; a server that answers none is down."""
    poisoned = threading.Event()

    def answer(body):
        text = body["messages"][0]["content"]
        if text == "poison":
            poisoned.set()
            return scripted_server.problems["broken"]
        poisoned.wait(30)  # so that it has failed before the last of the others is sent
        time.sleep(0.05)
        return echo(body)

    scripted_server.answer = answer
    replies = open_model(concurrency=2, attempts=2, backoff=0.6).complete([ask("poison")] + [ask(f"{number}") for number in range(8)])
    assert "no usable reply in 2 attempts" in replies[0].refused and not any(reply.refused for reply in replies[1:])


def test_what_is_bad_by_its_content_is_refused_once_the_server_has_answered(scripted_server, open_model):
    bad = scripted_server.Misbehaviour(400, b'{"error": {"message": "unsafe"}}')
    scripted_server.answer = lambda body: bad if body["messages"][0]["content"] == "b" else "ok"
    fine, refused = open_model(concurrency=1).complete([ask("a"), ask("b")])
    assert fine.texts[0].text == "ok" and "unsafe" in refused.refused


def test_a_busy_server_that_answers_others_is_waited_for(scripted_server, open_model):
    """429 six times in four attempts: as long as the queue moves, this is no failure."""
    busy, count = scripted_server.Misbehaviour(429, b"slow down"), {"late": 0}

    def answer(body):
        if body["messages"][0]["content"] == "late" and count["late"] < 6:
            count["late"] += 1
            return busy
        time.sleep(0.02)
        return echo(body)

    scripted_server.answer = answer
    model = open_model(concurrency=2, attempts=4, longest_backoff=0.2, backoff=0.2)
    replies = model.complete([ask("late")] + [ask(f"{number}") for number in range(80)])
    assert replies[0].texts[0].text == "re: late" and model.client.failed_attempts == 6
