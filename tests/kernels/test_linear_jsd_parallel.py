"""vocab_parallel_linear_jsd on two real ranks against the float64 formula and against the single-rank operation."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from papergym.errors import InputError
from papergym.kernels.linear_jsd import fused_linear_jsd
from papergym.kernels.linear_jsd.parallel import vocab_parallel_linear_jsd

WORKER = Path(__file__).with_name("vocab_parallel_worker.py")
SETTINGS = [
    {"beta": 0.5},
    {"beta": 0.0, "temperature": 1.3},
    {"beta": 0.0, "element_clip": 1e-3},
    {"beta": 0.9, "temperature": 0.6},
    {"beta": 0.5, "element_clip": 1e-3},
    {"beta": 0.1, "element_clip": 0.05},
    {"beta": 0.3, "temperature": 0.6},
    {"beta": 0.2, "temperature": 0.6},
    {"beta": 1.0, "temperature": 2.0},
]
GAP = 50.0


def make(index: int, options: dict, rows: int = 37) -> dict:
    """Two hidden widths, a mask in every other case, a frozen head in every third; the last case has chunks of few rows.

    At β = 0.1 the teacher is all but certain and the student nearly uniform: the clip cuts one entry, of mass 1/V for the student.
    At β = 0.3 each is all but certain of a token of its own, the first and the last: e^−83 of the constant is the student's gradient.
    At β = 0.2 the hidden states are the logits, the teacher's higher by 10⁴: scaled before the largest is taken off, they would be rounded.
    """
    generator = torch.Generator().manual_seed(index)
    vocabulary, width = (4099, 48) if index < len(SETTINGS) - 1 else (30011, 16)
    head = torch.randn(vocabulary, width, generator=generator) * 2 / width**0.5
    student = torch.randn(rows, width, generator=generator)
    certainty = 1.0
    if options["beta"] == 0.1:
        student, certainty = 1e-3 * student, 2e4
    teacher_head = torch.cat((head, 0.1 * torch.randn(vocabulary, 8, generator=generator)), 1)
    teacher = torch.cat(
        (certainty * student + 0.3 * torch.randn(rows, width, generator=generator), torch.randn(rows, 8, generator=generator)), 1
    )
    if options["beta"] == 0.3:
        for feature, (token, hidden) in enumerate(((0, student), (-1, teacher))):
            student[:, feature] = teacher[:, feature] = head[:, feature] = teacher_head[:, feature] = 0
            head[token] = teacher_head[token] = 0
            head[token, feature] = teacher_head[token, feature] = 1
            hidden[:, feature] = GAP
    if options["beta"] == 0.2:
        head = teacher_head = torch.eye(300)
        student, vocabulary = 2 * torch.randn(rows, 300, generator=generator), 300
        teacher = student + 0.3 * torch.randn(rows, 300, generator=generator) + 1e4
    return {
        "student": student,
        "student_head": head,
        "teacher": teacher,
        "teacher_head": teacher_head,
        "weights": torch.randn(rows, generator=generator),
        "mask": torch.rand(rows, generator=generator) > 0.4 if index % 2 else None,
        "cut": vocabulary // 3,
        "trained": index % 3 != 1,
        "options": options,
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The cases, and what each of two processes made of them."""
    directory = tmp_path_factory.mktemp("ranks")
    cases = [make(index, options) for index, options in enumerate(SETTINGS)]
    cases.append(cases[0] | {"mask": torch.zeros(37, dtype=torch.bool)})
    torch.save(cases, directory / "cases.pt")
    processes = [subprocess.Popen([sys.executable, WORKER, str(rank), directory], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    for process in processes:
        message = process.communicate(timeout=300)[1]
        assert process.returncode == 0, message
    return cases, [torch.load(directory / f"results-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_two_ranks_give_what_one_gives(index, ranks, expected_jsd, check_bars):
    cases, results = ranks
    case, (first, second) = cases[index], (results[0][index], results[1][index])
    for name in ("divergence", "entropy", "teacher_entropy", "top1_agree", "clipped", "hidden"):
        assert torch.equal(first[name], second[name]), name
    tensors = (case["student"], case["student_head"], case["teacher"], case["teacher_head"])
    options = dict(case["options"])
    single_options = options | {"mask": case["mask"]}
    options["clip"] = options.pop("element_clip", None)
    exact, plain = (
        expected_jsd(*tensors, case["weights"], mask=case["mask"], dtype=kind, **options) for kind in (torch.float64, torch.float32)
    )
    if options["beta"] == 0.2:  # plain fp32 scales first
        plain = exact
    rounding = 2**-23 * (1 + exact.entropy) if options["clip"] and options["beta"] in (0, 1) else None
    check_bars("divergence", first["divergence"], exact.divergence, plain.divergence, slack=rounding)
    # A log-prob of -g is rounded to g · 2⁻²⁴, a relative error of its probability that no later step can undo.
    certain = options["beta"] == 0.3
    floor = 8 * GAP / options["temperature"] * 2**-24 if certain else 1e-5
    check_bars("hidden", first["hidden"], exact.hidden, plain.hidden, floor, exact.hidden_slack)
    check_bars("entropy", first["entropy"], exact.entropy, plain.entropy)
    check_bars("teacher entropy", first["teacher_entropy"], exact.teacher_entropy, plain.teacher_entropy)
    if case["trained"]:
        head = torch.cat((first["head"], second["head"]))
        check_bars("head", head, exact.head, plain.head, floor, exact.head_slack, per_token=False)
    else:
        assert first["head"] is None and second["head"] is None
    single = fused_linear_jsd(*tensors, **single_options)
    assert (
        torch.equal(first["top1_agree"], single.top1_agree)
        and bool(single.top1_agree.any()) != certain
        and not bool(single.top1_agree.all())
    )
    assert int((first["clipped"] - single.clipped).abs().sum()) <= 2e-3 * int(single.clipped.sum())


def test_nothing_to_supervise_on_two_ranks(ranks):
    for result in (results[-1] for results in ranks[1]):
        assert not result["divergence"].any() and not result["hidden"].any() and not result["head"].any()


def test_shards_that_differ_are_refused():
    hidden = torch.zeros(3, 8)
    with pytest.raises(InputError, match=r"student_head is \[5, 8\], teacher_head is \[6, 8\]"):
        vocab_parallel_linear_jsd(hidden, torch.zeros(5, 8), hidden, torch.zeros(6, 8))
