"""The whole route on a real vLLM server with a random Qwen3: with replies that the server is made to give, and with the model's own."""

import json

import pytest
import torch

from papergym.data_pipeline.build import build
from papergym.environment import read_environments
from papergym.errors import InputError
from papergym.model.generation.reply_cache import ReplyCache
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
VARIABLES = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server with a random two-layer Qwen3 of bytes. vLLM's attention on a CPU needs heads of 32."""
    from papergym.bench.tiny import write_byte_tokenizer
    from papergym.model.config import ModelConfig
    from papergym.model.decoder import CausalLM
    from papergym.model.weights import save_model

    directory = tmp_path_factory.mktemp("qwen3")
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = ModelConfig(
        architecture="qwen3",
        vocab_size=write_byte_tokenizer(directory),
        head_dim=32,
        rms_norm_eps=1e-6,
        max_position_embeddings=16384,
        tie_word_embeddings=True,
        eos_token_ids=(258, 256),
        **shape,
    )
    torch.manual_seed(0)
    model = CausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    save_model(model, directory)
    with vllm_server(directory, log=tmp_path_factory.mktemp("vllm") / "server.log", environment=VARIABLES, **OPTIONS) as server:
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
