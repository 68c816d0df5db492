"""The judge on a real vLLM server with a random Qwen3: three ways, a server killed in the middle, and the same verdicts as without."""

import math
import os
import threading
import time

import pytest
import torch

from papergym.environment import Criterion, Environment
from papergym.errors import InputError
from papergym.judge.llm import LlmJudge
from papergym.judge.scoring import open_judge
from papergym.judge.ways import WAYS
from papergym.model.generation import SamplingParams, TorchEngine, open_engine
from papergym.model.generation.chat_models import ChatRequest, open_chat_model
from papergym.model.generation.reply_cache import ReplyCache
from papergym.model.generation.vllm_server import vllm_server
from papergym.model.weights import load_model

pytestmark = pytest.mark.vllm
PLANS, CRITERIA = 50, 10  # with the seven general criteria: 17 verdicts a plan
OPTIONS = {
    "dtype": "float32",
    "max_model_len": 6144,
    "max_num_seqs": 32,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    # Without this a random model writes white space inside JSON for ever.
    "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
}
VARIABLES = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random two-layer Qwen3 of bytes. vLLM's attention on a CPU needs heads of 32."""
    from papergym.bench.tiny import write_byte_tokenizer
    from papergym.model.config import ModelConfig
    from papergym.model.decoder import CausalLM
    from papergym.model.weights import save_model

    directory = tmp_path_factory.mktemp("qwen3")
    config = ModelConfig(
        architecture="qwen3",
        vocab_size=write_byte_tokenizer(directory),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-6,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_ids=(258, 256),
    )
    torch.manual_seed(0)
    model = CausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    save_model(model, directory)
    return directory


@pytest.fixture(scope="module")
def serve(checkpoint, tmp_path_factory):
    """serve(): a server with the checkpoint, as a context."""
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    return lambda: vllm_server(checkpoint, log=log, environment=VARIABLES, enable_prompt_tokens_details=True, **OPTIONS)


@pytest.fixture(scope="module")
def url(serve):
    with serve() as server:
        yield server.url


def plans():
    environments = [
        Environment(
            f"e{e}",
            "cs",
            f"What limits system {e}?",
            tuple(Criterion(f"States limit {c} of system {e}.") for c in range(CRITERIA)),
            reference=f"Measure system {e}, then model it.",
        )
        for e in range(5)
    ]
    return [(environments[p % 5], f"Plan {p}: measure part {p * 7} and explain {p * 13}.") for p in range(PLANS)]


def judge_at(url, way, **model) -> LlmJudge:
    model = {"kind": "http", "url": url, "model": "model", "dialect": "vllm", "attempts": 3, "backoff": 0.2, **model}
    return open_judge({"kind": "llm", "way": way, "model": model, "reason_length": 8, "retries": 1})


def everything(url, cache=None):
    """Scores by every way, one request at a time, and the tokens each generated."""
    scores, generated = {}, {}
    for way in WAYS:
        judge = judge_at(url, way, concurrency=1, cache=cache)
        scores[way] = judge.score(plans())
        generated[way] = judge.usage.completion_tokens
    return scores, generated


def kill_when(server, cache, replies):
    """Kills the server once so many replies are kept."""

    def watch():
        while len(ReplyCache(cache)) < replies:
            time.sleep(0.05)
        server.kill()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def replies_in(cache):
    return dict(ReplyCache(cache)._file.execute("SELECT key, reply FROM replies"))


def test_killed_in_the_middle_nothing_is_lost_and_nothing_changes(serve, tmp_path):
    cache = str(tmp_path / "replies")
    with serve() as server:
        calm, generated = everything(server.url)
        requests = sum({"json": 2, "single": CRITERIA + 7, "logprob": CRITERIA + 7}[way] for way in WAYS) * PLANS
        watcher = kill_when(server, cache, requests // 2)
        with pytest.raises(InputError, match="no usable reply in 3 attempts"):
            everything(server.url, cache)
        watcher.join()
    before = replies_in(cache)
    assert requests // 2 <= len(before) < requests
    with serve() as server:
        resumed, _ = everything(server.url, cache)
    with pytest.raises(ProcessLookupError):  # nothing of the server is left
        os.killpg(server.process.pid, 0)
    after = replies_in(cache)
    assert {key: after[key] for key in before} == before and len(after) == requests  # each asked once, with no retry
    for way, scores in calm.items():
        for one, other in zip(resumed[way], scores, strict=True):
            assert (one.specialised, one.general, one.reward) == (other.specialised, other.general, other.reward)
            # A prefix that is in the server's cache and one that is computed anew differ in the last bits.
            assert one.specialised_chances == pytest.approx(other.specialised_chances, abs=1e-4)
            assert one.general_chances == pytest.approx(other.general_chances, abs=1e-4)
        verdicts = [verdict for score in scores for verdict in (*score.specialised, *score.general)]
        assert len(verdicts) == PLANS * (CRITERIA + 7) and None not in verdicts, way
        assert all(score.reward is not None for score in scores)
    chances = {chance for score in calm["logprob"] for chance in score.specialised_chances}
    assert len(chances) > PLANS and all(0 < chance < 1 for chance in chances)
    assert {True, False} == {verdict for score in calm["single"] for verdict in (*score.specialised, *score.general)}
    assert generated["logprob"] == PLANS * (CRITERIA + 7) and generated["json"] >= 5 * generated["logprob"]


def test_a_server_repeats_itself_and_agrees_with_our_own_model(url, checkpoint):
    request = ChatRequest([{"role": "user", "content": "Go on."}], 24, top_logprobs=5)
    chat = open_chat_model({"kind": "http", "url": url, "model": "model", "dialect": "vllm"})
    five = [chat.complete([request])[0].texts for _ in range(5)]
    assert all(texts == five[0] for texts in five) and len(five[0][0].top_logprobs) > 1
    (several,) = chat.complete([ChatRequest(request.messages, 12, temperature=1.0, n=4, seed=1)])
    assert len({text.text for text in several.texts}) > 1
    (chosen,) = chat.complete([ChatRequest(request.messages, 1, choices=("0", "1"), top_logprobs=20)])
    likely = {token: math.exp(value) for token, value in chosen.texts[0].top_logprobs[0] if value > -100}
    assert set(likely) == {"0", "1"} and sum(likely.values()) == pytest.approx(1.0)
    theirs = open_engine({"kind": "http", "url": url, "model": "model"})
    same_completions(theirs, TorchEngine(load_model(checkpoint, dtype=torch.float32)))


def same_completions(one, other):
    prompts = [[72, 105], list(range(40, 90)), [7]]
    params = SamplingParams(temperature=0.0, max_tokens=20)
    for ours, theirs in zip(one.generate(prompts, params), other.generate(prompts, params), strict=True):
        assert ours[0].token_ids == theirs[0].token_ids and ours[0].finish_reason == theirs[0].finish_reason
        assert ours[0].logprobs == pytest.approx(theirs[0].logprobs, abs=1e-4)
    sampled = one.generate(prompts, SamplingParams(n=3, max_tokens=20, seed=5))
    assert sampled == one.generate(prompts, SamplingParams(n=3, max_tokens=20, seed=5))
    assert len({tuple(completion.token_ids) for completion in sampled[0]}) == 3


def test_vllm_in_this_process_gives_the_same_verdicts(url, checkpoint, monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    items = plans()[:4]
    served = [judge_at(url, way).score(items) for way in WAYS]
    engine = open_engine({"kind": "vllm", "path": str(checkpoint), "dtype": "float32", "options": without(OPTIONS, "dtype")})
    same_completions(engine, TorchEngine(load_model(checkpoint, dtype=torch.float32)))
    for way, scores in zip(WAYS, served, strict=True):
        judge = LlmJudge(judge_at("http://unused", way)._config, engine)
        for mine, theirs in zip(judge.score(items), scores, strict=True):
            assert mine.specialised_chances == pytest.approx(theirs.specialised_chances, abs=1e-3)
            assert mine.general_chances == pytest.approx(theirs.general_chances, abs=1e-3)
    (long,) = engine.complete([ChatRequest([{"role": "user", "content": "x" * 7000}], 8)])
    assert long.texts == () and "more than the context" in long.refused


def without(options, name):
    return {key: value for key, value in options.items() if key != name}


def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(InputError, match="ended with code 1 before it was ready; the end of"),
        vllm_server(tmp_path / "empty", log=tmp_path / "log" / "server.log", environment=VARIABLES),
    ):
        pytest.fail("it can't have started")
    assert "Error" in (tmp_path / "log" / "server.log").read_text()
