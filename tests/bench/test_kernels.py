"""The bench of the kernels: it checks before it times, says what is absent, and its roofline is arithmetic on paper."""

import json

import pytest
import torch

from papergym.bench import kernels, peers
from papergym.bench.measure import operations
from papergym.errors import InputError
from papergym.planning import roofline


def run(tmp_path, only="papergym"):
    out = tmp_path / "kernels.jsonl"
    try:
        kernels.report("cpu", [8, 16], [16], 101, "float32", only, 30.0, out)
    finally:
        records = [json.loads(line) for line in out.read_text().splitlines()]
    return records


def test_figures_of_a_small_run(tmp_path, capsys):
    records = run(tmp_path)
    assert "papergym (torch)" in capsys.readouterr().out and (tmp_path / "kernels.png").stat().st_size > 10_000
    measured = [record for record in records if "milliseconds" in record]
    assert [(record["operation"], record["rows"]) for record in measured] == [
        (name, n) for name in ("divergence", "logprob", "logprob_forward") for n in (8, 16)
    ]
    for record in measured:
        assert record["shortest"] <= record["milliseconds"] <= record["longest"]
        assert record["tokens_per_second"] == pytest.approx(1e3 * record["rows"] / record["milliseconds"])
        products = 2 if record["operation"] == "logprob_forward" else 6
        assert (
            record["flop"] == products * record["rows"] * 16 * 101 and record["flop_per_nhv"] == products and record["bytes_over_floor"] > 0
        )
        if products == 6:
            assert 0 < record["gradient_error"] < 1e-4 and 0 <= record["value_error"] < 1e-5
        assert record["versions"]["torch"] == torch.__version__ and record["device"].startswith("CPU")
    assert all(record["absent"] for record in records if "milliseconds" not in record)


def test_a_wrong_gradient_is_refused_after_it_is_written(tmp_path, monkeypatch):
    def flipped(student, head, teacher, beta):
        return -peers.plain_jsd(student, head, teacher, beta)

    monkeypatch.setattr(peers, "divergence_implementations", lambda device: ({"papergym (flipped)": flipped}, {}))
    for operation in ("logprob", "logprob_forward"):
        monkeypatch.setattr(peers, f"{operation}_implementations", lambda device: ({}, {"nothing": "left out"}))
    with pytest.raises(InputError, match=r"papergym \(flipped\) at H=16: gradient 2\.0e\+00"):
        run(tmp_path)


def test_times_are_beside_those_of_the_products_in_the_same_round(tmp_path, monkeypatch):
    """Rounds of made-up times, in which everything takes twice as long each time: the ratio stays."""
    monkeypatch.setattr(
        kernels,
        "interleaved_milliseconds",
        lambda steps, device: {name: [(3.0 if name.startswith("papergym") else 2.0) * 2**i for i in range(5)] for name in steps},
    )
    measured = [record for record in run(tmp_path, only="") if "milliseconds" in record]
    ours = [record for record in measured if record["implementation"] == "papergym (torch)"]
    assert len(ours) == 6 and all(record["over_gemms"] == 1.5 and record["milliseconds"] == 12.0 for record in ours)
    assert {record["over_gemms"] for record in measured if record["implementation"] == peers.GEMMS} == {1.0}


def test_other_implementations_compute_the_same():
    """What is timed side by side has one gradient."""
    head = torch.randn(101, 16, generator=torch.Generator().manual_seed(0)) / 2
    for operation in ("divergence", "logprob"):
        found, _ = getattr(peers, f"{operation}_implementations")("cpu")
        exact = kernels._exact(operation, head, "cpu")
        for name in set(found) - {"torch.compile", "GEMMs alone"}:
            assert kernels._errors(operation, found[name], head, "cpu", *exact)["gradient_error"] < 1e-4, name


def test_the_roofline_by_hand():
    device = roofline.Device("paper", flop=100e12, bytes=1e12, processors=100, clock=1e9)
    assert device.seconds(75e12, 0) == pytest.approx(1.0)  # at 75 % of the peak
    assert device.seconds(1, 0.85e12) == pytest.approx(1.0) and device.seconds(0, 0, instructions=0.8 * 12800e9) == pytest.approx(1.0)
    assert roofline.jsd_flop(32768, 2048, 151936) == pytest.approx(61.2e12, rel=1e-3)
    assert roofline.jsd_peak_bytes(32768, 2048) <= 1 << 30
    once, twice = (roofline.jsd_seconds(roofline.DEVICES["h200"], rows, 2048, 151936) for rows in (16384, 32768))
    assert twice == pytest.approx(2 * once, rel=0.02)
    products = roofline.jsd_flop(32768, 2048, 151936) / (989.4e12 * roofline.GEMM_SHARE)
    assert products < twice < products / 0.6
    for key, device in roofline.DEVICES.items():
        ours, liger = (seconds(device, 32768, 2048, 151936) for seconds in (roofline.jsd_seconds, roofline.liger_jsd_seconds))
        assert liger > 1.8 * ours, key


def test_operations_are_counted_by_hand():
    left, right, out = torch.ones(3, 4), torch.ones(4, 5), torch.ones(3, 5)

    def run():
        (left.T.T @ right).mul_(2)  # a product 3 × 4 × 5; views are free
        out.addmm_(left, right)

    assert operations(run) == (2 * 2 * 60, 4 * ((12 + 20 + 15) + 15 + (15 + 12 + 20)))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "pro6000"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA RTX 6000 Ada Generation", None),
    ],
)
def test_a_device_is_found_by_the_name_that_cuda_reports(name, key):
    assert roofline.find_device(name) is (roofline.DEVICES[key] if key else None)
