"""Builds on Ray Data: the same files as in one process, whatever fails, is killed or runs out of money in between."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from papergym.data_pipeline.build import build
from papergym.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples/papers"
CALLS = 11  # that a paper of the scripted model takes


def test_engines_and_workers_are_named(tmp_path):
    for options, words in (
        ({"engine": "spark"}, "engine 'spark': use process or ray"),
        ({"workers": 3}, "workers 3: the engine 'process'"),
    ):
        with pytest.raises(InputError, match=words):
            build([EXAMPLES / "rod-silo"], tmp_path / "out.jsonl", **options)


def test_without_ray_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "papergym.data_pipeline.on_ray", raising=False)
    with pytest.raises(InputError, match=r"the engine 'ray' needs Ray Data: pip install 'ray\[data\]'"):
        build([EXAMPLES / "rod-silo"], tmp_path / "out.jsonl", engine="ray")
    assert not list(tmp_path.iterdir())


def test_a_cluster_that_does_not_answer_is_named(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)  # where nothing listens any more
    with pytest.raises(InputError, match=f"no Ray cluster answers at RAY_ADDRESS {address} .*unset it"):
        build([EXAMPLES / "rod-silo"], tmp_path / "out.jsonl", engine="ray")


@pytest.fixture(scope="module")
def two_workers():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def on_ray(two_workers, tmp_path):
    """on_ray(papers, **options): the summary of a build on Ray, whose files are those of the build in one process."""

    def build_both(papers, **options):
        alone = build(papers, tmp_path / "alone.jsonl", created="2026-12-01", **options)
        summary = build(papers, tmp_path / "ray.jsonl", created="2026-12-01", engine="ray", workers=2, **options)
        for one, other in ((alone.out, summary.out), (alone.rejects, summary.rejects)):
            assert one.read_bytes() == other.read_bytes()
        assert not list(tmp_path.glob(".ray.jsonl*"))
        return summary

    return build_both


@pytest.mark.slow
def test_rules_give_the_same_files(on_ray, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/main.tex").write_text("")
    odd = tmp_path / os.fsdecode(b"n\xe9e")  # no UTF-8
    shutil.copytree(EXAMPLES / "riblet-waves", odd)
    papers = [EXAMPLES / name for name in ("rod-silo", "late-invoices", "edge-bursts", "seller-fees")]
    papers += [tmp_path / "empty", EXAMPLES / "README.md", EXAMPLES / "rod-silo", tmp_path / "absent", odd]
    monkeypatch.chdir(EXAMPLES.parent)
    summary = on_ray([*papers, Path("papers/term-drift")])
    assert (summary.environments, summary.rejected) == (6, 4)
    assert on_ray(papers, limit=2).environments == 2


EXTRACTOR = """
import os, signal, sys, time
from papergym.data_pipeline.extract import extract_stages

def noted(paper):
    machine = sys.modules["ray"].get_runtime_context().get_node_id() if "ray" in sys.modules else "here"
    with open({log!r}, "a") as file:
        file.write(paper.title.split()[0] + " " + machine + "\\n")
    time.sleep({seconds})
    if "{deadly}" in paper.title:
        os.kill(os.getpid(), signal.SIGKILL)
    return extract_stages(paper)
"""


@pytest.fixture
def command(tmp_path, write_titled):
    """command(papers, deadly="-", engine="ray", seconds=0.0): the command line of a build by an extractor outside the package, and its
    environment."""

    def make(papers, deadly="-", engine="ray", seconds=0.0):
        (tmp_path / "outside_noted.py").write_text(EXTRACTOR.format(log=str(tmp_path / "log"), deadly=deadly, seconds=seconds))
        arguments = [*map(str, papers), "--out", str(tmp_path / f"{engine}.jsonl"), "--extractor", "outside_noted:noted"]
        more = ["--engine", "ray", "--workers", "2"] if engine == "ray" else []
        return [sys.executable, "-m", "papergym.cli", "build", *arguments, *more], os.environ | {"PYTHONPATH": str(tmp_path)}

    return make


@pytest.fixture
def write_titled(tmp_path):
    """write_titled(n): copies of a sample paper with titles and sentences of their own."""

    def write(count):
        text = (EXAMPLES / "rod-silo/letter.tex").read_text()
        assert r"\title{" in text
        for number in range(count):
            path = tmp_path / f"paper{number}"
            path.mkdir()
            (path / "letter.tex").write_text(text.replace(r"\title{", rf"\title{{T{number}x "))
        return [tmp_path / f"paper{number}" for number in range(count)]

    return write


@pytest.mark.slow
def test_a_paper_that_kills_its_worker_is_rejected_and_the_others_are_made(tmp_path, command, write_titled):
    line, variables = command(write_titled(6), deadly="T3x")
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert "5 environments" in done.stdout and "1 papers rejected" in done.stdout
    (reject,) = map(json.loads, (tmp_path / "ray.rejects.jsonl").read_text().splitlines())
    assert reject["paper"].endswith("paper3") and "the process that worked on it died, 3 times" in reject["reason"]
    titles = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert titles.count("T3x") == 3 and len(set(titles)) == 6


@pytest.mark.slow
def test_killed_and_given_again_it_repeats_no_finished_paper(tmp_path, command, write_titled):
    papers = write_titled(14)
    line, variables = command(papers)
    process = subprocess.Popen(line, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal, ends = tmp_path / ".ray.jsonl.journal", time.monotonic() + 600
    while (journal.read_bytes().count(b"\n") if journal.exists() else 0) < 5:  # a head and four papers
        assert process.poll() is None and time.monotonic() < ends
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {Path(json.loads(line)["paper"]).name for line in journal.read_text().splitlines()[1:] if line.endswith("}")}
    time.sleep(3)  # until its workers have gone too
    before = (tmp_path / "log").read_text()
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    again = {"paper" + title.split()[0][1:-1] for title in (tmp_path / "log").read_text()[len(before) :].splitlines()}
    assert again == {paper.name for paper in papers} - finished and 4 <= len(finished) < 14
    line, variables = command(papers, engine="process")
    assert subprocess.run(line, env=variables, capture_output=True).returncode == 0
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "process.jsonl").read_bytes()


@pytest.mark.slow
def test_of_two_machines_one_goes_away(tmp_path, command, write_titled, monkeypatch):
    from ray.cluster_utils import Cluster

    line, variables = command(write_titled(16), seconds=0.4)
    monkeypatch.setenv("PYTHONPATH", variables["PYTHONPATH"])  # of the machines
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        other = cluster.add_node(num_cpus=1)
        process = subprocess.Popen(line, env=variables | {"RAY_ADDRESS": cluster.address}, stderr=subprocess.PIPE, text=True)
        ends = time.monotonic() + 600
        while (tmp_path / "log").read_text().count(other.node_id) < 3 if (tmp_path / "log").exists() else True:
            assert process.poll() is None and time.monotonic() < ends
            time.sleep(0.05)
        cluster.remove_node(other, allow_graceful=False)
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors
    finally:
        cluster.shutdown()
    worked = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert len({machine for _, machine in worked}) == 2 and 16 <= len(worked) <= 16 + 3  # those under way there are done again
    alone, variables = command([tmp_path / f"paper{number}" for number in range(16)], engine="process")
    assert subprocess.run(alone, env=variables, capture_output=True).returncode == 0
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "process.jsonl").read_bytes()


def test_a_machine_that_sees_other_papers_stops_the_build(tmp_path, write_titled):
    from papergym.data_pipeline.ledger import Job
    from papergym.data_pipeline.on_ray import _job, _row_of

    (paper,) = write_titled(1)
    handed = Job.read(0, paper)
    assert _job(_row_of(handed), str(tmp_path)) == handed
    (paper / "letter.tex").write_text("Rods.")
    with pytest.raises(InputError, match=r"paper0: \S+ does not see it as the machine that hands it out \(its files are others\)"):
        _job(_row_of(handed), str(tmp_path))
    shutil.rmtree(paper)
    with pytest.raises(InputError, match=r"hands it out \(\[Errno 2\] No such file"):
        _job(_row_of(handed), str(tmp_path))


def requests_of(server):
    keys = [json.dumps(body, sort_keys=True) for body in server.requests]
    assert len(set(keys)) == len(keys)  # none twice
    return len(keys)


@pytest.mark.slow
def test_language_models_are_asked_the_same_and_once(on_ray, write_papers, write_recipe, scripted_server, tmp_path):
    cache = tmp_path / "shared.sqlite"
    papers, recipe = write_papers(6), write_recipe(f"cache = {json.dumps(str(cache))}\npapers_at_once = 2")
    summary = build(papers, tmp_path / "first.jsonl", extractor=recipe, created="2026-12-01", engine="ray", workers=2)
    assert summary.environments == 6 and requests_of(scripted_server) == 6 * CALLS
    assert f"requests: {6 * CALLS} sent, 0 answered from {cache}" in summary.report
    scripted_server.requests.clear()
    again = on_ray(papers, extractor=recipe)  # in one process too, from the replies that the workers got
    assert not scripted_server.requests and f"requests: 0 sent, {6 * CALLS} answered from {cache}" in again.report
    assert (tmp_path / "first.jsonl").read_bytes() == again.out.read_bytes()


@pytest.mark.slow
def test_the_budget_holds_over_workers(two_workers, write_papers, write_recipe, scripted_server, tmp_path):
    cache = f"papers_at_once = 2\ncache = {json.dumps(str(tmp_path / 'replies.sqlite'))}\n"
    recipe = write_recipe(f"{cache}[extractor]\nreply_tokens = 3000\nprices = {{ input = 1000.0, output = 1000.0 }}\n")
    usage, good = {"prompt_tokens": 900, "completion_tokens": 100}, scripted_server.answer  # 1 a request
    scripted_server.answer = lambda body: scripted_server.completion([good(body)], usage=usage)
    papers, summary, calls = write_papers(4), None, 0
    while summary is None or summary.left:
        before, calls = len(scripted_server.requests), calls + 1
        try:
            summary = build(
                papers, tmp_path / "out.jsonl", extractor=recipe, created="2026-12-01", max_cost=2.0 * CALLS, engine="ray", workers=2
            )
            assert f"{len(scripted_server.requests) - before} of it now" in summary.report
        except InputError as error:
            assert "the budget was spent before" in str(error)
        assert 0 < len(scripted_server.requests) - before <= 2 * CALLS
    assert calls > 1 and summary.environments == 4 and requests_of(scripted_server) == 4 * CALLS
    alone = build(papers, tmp_path / "alone.jsonl", extractor=recipe, created="2026-12-01")
    assert alone.out.read_bytes() == summary.out.read_bytes() and len(scripted_server.requests) == 4 * CALLS


@pytest.mark.slow
def test_a_dead_server_stops_it_and_bad_papers_do_not(two_workers, write_papers, write_recipe, scripted_server, script, tmp_path):
    papers, recipe = write_papers(4), write_recipe("papers_at_once = 1", attempts=1, concurrency=1)
    options = {"extractor": recipe, "created": "2026-12-01", "engine": "ray", "workers": 2}
    scripted_server.answer = lambda body: (
        script["reply"](body) if len(scripted_server.requests) < 30 else scripted_server.problems["broken"]
    )
    with pytest.raises(InputError, match="no usable reply in 1 attempts"):
        build(papers, tmp_path / "out.jsonl", **options)
    assert (tmp_path / ".out.jsonl.journal").exists()
    scripted_server.requests.clear()
    no_stage = '{"goal": "", "background": "", "method": "", "experiment": ""}'
    scripted_server.answer = lambda body: no_stage if "kaad" in str(body) and script["kind_of"](body) == "map" else script["reply"](body)
    summary = build(papers, tmp_path / "out.jsonl", **options)
    assert (summary.environments, summary.rejected) in ((3, 1), (4, 0))  # kaad may have been finished before
    assert len(scripted_server.requests) <= 4 * CALLS - 20


@pytest.mark.slow
def test_killed_it_pays_for_no_reply_twice(write_papers, write_recipe, scripted_server, script, tmp_path):
    papers, recipe = write_papers(5), write_recipe("papers_at_once = 1", concurrency=1)
    command = [sys.executable, "-m", "papergym.cli", "build", *map(str, papers), "--out", str(tmp_path / "out.jsonl")]
    command += ["--extractor", str(recipe), "--engine", "ray", "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answer(body):
        if len(scripted_server.requests) >= 25:
            process.send_signal(signal.SIGKILL)
        return script["reply"](body)

    scripted_server.answer = answer
    assert process.wait(timeout=900) == -signal.SIGKILL
    time.sleep(3)  # until its workers have gone too
    asked = len(scripted_server.requests)
    scripted_server.answer = script["reply"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert 5 * CALLS <= len(scripted_server.requests) <= 5 * CALLS + 2 + max(0, asked - 25)  # but for those under way
    alone = build(papers, tmp_path / "alone.jsonl", extractor=write_recipe(f"cache = {json.dumps(str(tmp_path / 'out.replies.sqlite'))}"))
    assert alone.out.read_bytes() == (tmp_path / "out.jsonl").read_bytes()
