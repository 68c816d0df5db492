"""SIGKILL before every single file operation of a stage: run again, each time, the stage ends with the files of an undisturbed run."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from papergym.bench.same_files import differing_files
from papergym.environment import write_environments

ROOT = Path(__file__).parent.parent
# Forks are cheap and share the imports. The parent never trains: a fork of a process that ran a backward pass can't run another.
HARNESS = """
import os, signal, sys
import torch._dynamo, torch.optim
torch.set_num_threads(1)
OPERATIONS = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")

def killer(kill_at):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        writes = event == "open" and str(arguments[0]).startswith(root) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in OPERATIONS:
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    return hook

def in_a_fork(kill_at=None):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if kill_at:
                sys.addaudithook(killer(kill_at))
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

assert in_a_fork() == 0
os.rename(run, whole)
kill_at = 0
while True:
    kill_at += 1
    killed = in_a_fork(kill_at)
    if killed == 0:
        break
    assert killed == -signal.SIGKILL, killed
    assert in_a_fork() == 0, f"killed before operation {kill_at}, the second call failed"
    files, differing = differing_files(whole, run)
    assert not differing, f"killed before operation {kill_at}, these files differ: {differing}"
    shutil.rmtree(run)
print(kill_at - 1)
"""
TRAIN = """
from papergym.config import from_mapping
from papergym.training.sft import SftConfig, run as train
import papergym.metrics, tensorboard.summary.writer.record_writer
config = from_mapping(SftConfig, values | {"run": {"dir": str(run), "steps": 2, "checkpoint_every": 1, "keep_checkpoints": 1}})
def work():
    train(config)
"""
EVALUATE = """
from papergym.judge.evaluation import evaluate
from papergym.judge.scoring import open_judge
from papergym.environment import read_environments
from papergym.model.generation import SamplingParams, TorchEngine
from papergym.model.tokenizer import Tokenizer
from papergym.model.weights import load_model
tokenizer, model = Tokenizer(values["model"]["path"]), load_model(values["model"]["path"], dtype=torch.float32)
environments = read_environments(values["data"]["train"])
def work():
    evaluate(lambda: TorchEngine(model), tokenizer, environments, open_judge("lexical"), out=run / "base", model="tiny",
             judge_spec="lexical", samples=2, sampling=SamplingParams(max_tokens=4), batch_size=1)
"""
BUILD = """
from papergym.data_pipeline.build import build
from papergym.data_pipeline.split import SplitRule, write_split
from papergym.environment import read_environments
papers = [papers / name for name in ("bid-preparation", "late-invoices", "demo.txt")]  # the last is no paper
def work():
    build(papers, run / "all.jsonl", created="2026-01-01")
    write_split(read_environments(run / "all.jsonl"), run / "train.jsonl", run / "heldout.jsonl", SplitRule(0.5, 0))
"""
REPORT = """
import papergym.report
def work():
    shutil.copytree(values["report"], run, dirs_exist_ok=True)
    papergym.report.write_table(run)
    papergym.report.write_report(run)
"""


@pytest.mark.parametrize(
    ("stage", "least"),
    [
        pytest.param(TRAIN, 30, id="train", marks=pytest.mark.slow),
        pytest.param(BUILD, 8, id="build", marks=pytest.mark.slow),
        pytest.param(EVALUATE, 8, id="eval"),
        pytest.param(REPORT, 4, id="report"),
    ],
)
def test_a_kill_before_any_file_operation_changes_nothing(tmp_path, tiny_policy, environments, stage, least):
    write_environments(tmp_path / "train.jsonl", environments[:2])
    answer = {"environment": "env-0", "sample": 0, "response": "Why", "plan": "Why", "tokens": 3, "finish_reason": "stop", "reward": 0.5}
    (tmp_path / "report" / "eval").mkdir(parents=True)
    (tmp_path / "report" / "eval" / "base.jsonl").write_text(json.dumps(answer) + "\n")
    values = {
        "model": {"path": str(tiny_policy), "dtype": "float32"},
        "data": {"train": str(tmp_path / "train.jsonl"), "prompts_per_step": 1},
        "lora": {"rank": 2, "alpha": 4},
    }
    given = f"""
        import shutil
        from pathlib import Path
        import torch
        from papergym.bench.same_files import differing_files
        root, values = {str(tmp_path)!r}, {values!r}
        run, whole, papers = Path(root, "run"), Path(root, "whole"), Path({str(ROOT / "examples/papers")!r})
    """
    if stage == REPORT:
        stage = stage.replace('values["report"]', 'root + "/report"')
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(given) + stage + HARNESS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) >= least  # so many operations were there to be killed before


def test_the_comparison_sees_what_matters_and_no_clocks(tmp_path):
    from papergym.metrics import MetricsWriter

    for name, offset, loss in (("a", 0.0, 0.5), ("b", 7.0, 0.5), ("c", 0.0, 0.25)):
        writer = MetricsWriter(tmp_path / name)
        writer.write(1, 1e9 + offset, {"loss": loss, "time/step": 1.0 + offset})
        (tmp_path / name / "s.json").write_text(json.dumps({"seconds": offset, "reward": loss}))
        (tmp_path / name / "state.pt").write_bytes(b"same")
    assert differing_files(tmp_path / "a", tmp_path / "b") == (4, [])
    events = "tensorboard/events.out.tfevents.metrics"
    assert differing_files(tmp_path / "a", tmp_path / "c") == (4, ["metrics.jsonl", "s.json", events])
    (tmp_path / "b" / "state.pt").write_bytes(b"sane")
    (tmp_path / "b" / ".left.tmp").touch()
    assert differing_files(tmp_path / "a", tmp_path / "b") == (5, [".left.tmp", "state.pt"])
    shutil.rmtree(tmp_path / "b")
    assert len(differing_files(tmp_path / "a", tmp_path / "b")[1]) == 4
