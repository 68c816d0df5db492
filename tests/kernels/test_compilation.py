"""Every Triton kernel compiles for every chip without spilling and within its shared memory, and uses the matrix units. No GPU is needed.

In a process of its own, because this one may interpret kernels.
"""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Triton is a Linux package")


def compile_kernels(out, *options):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "papergym.cli", "bench", "compile", "--out", str(out), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_the_kernels_of_training_stay_in_their_budget(tmp_path):
    records = compile_kernels(tmp_path / "compile.jsonl", "--chip", "86", "--only", "β=0.5 bfloat16")
    records += compile_kernels(tmp_path / "compile.jsonl", "--chip", "86", "--only", "statistics bfloat16")
    assert [record["kernel"].split()[0] for record in records] == ["divergence_rows", "gradient_tile", "softmax_statistics"]
    assert all(record["spills"] == record["stack"] == 0 and record["registers"] <= 255 for record in records)
    assert records[0]["occupancy"] >= 2 / 3 and records[0]["registers"] <= 64  # four rows on a processor at a time
    assert records[0]["instructions"] <= 2000  # in three loops over 8 columns and once a row
    assert records[2]["matrix_instructions"]["HMMA"] >= 64 and 64 << 10 <= records[2]["shared_bytes"] <= 99 << 10


@pytest.mark.slow
def test_every_kernel_on_every_chip(tmp_path):
    records = compile_kernels(tmp_path / "compile.jsonl")
    assert {record["capability"] for record in records} == {80, 86, 89, 90, 120}
    assert len(records) == 5 * len({record["kernel"] for record in records}) >= 5 * 13
    hopper = [record for record in records if record["capability"] == 90 and record["kernel"].endswith("bfloat16")]
    assert any("HGMMA" in record["matrix_instructions"] for record in hopper)


def test_a_violation_is_named():
    from papergym.kernels.compilation import violations

    good = {"capability": 86, "spills": 0, "stack": 0, "shared_bytes": 99 << 10, "matrix_instructions": {"HMMA": 1}}
    assert violations(good, True) == []
    assert "spills: 3" in violations(good | {"spills": 3}, True)[0]
    assert "shared memory" in violations(good | {"shared_bytes": (99 << 10) + 1}, True)[0]
    assert violations(good | {"matrix_instructions": {}}, True) == ["no matrix instruction"]
    assert violations(good | {"matrix_instructions": {}}, False) == []
