"""The compiled row passes: built once, and a machine that cannot build them says so once and computes the same."""

import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
import torch

from papergym.kernels import cpu
from papergym.kernels.linear_jsd import fused_linear_jsd
from papergym.kernels.linear_logprob import fused_linear_logprob


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache folder, and a library that has not been asked for yet."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    cpu.library.cache_clear()
    yield tmp_path / ".cache" / "papergym"
    cpu.library.cache_clear()


@pytest.mark.skipif(cpu.library() is None, reason="no C++ compiler")
def test_the_library_is_built_once(fresh, monkeypatch):
    assert cpu.library() is not None
    built = list(fresh.iterdir())
    assert [path.suffix for path in built] == [".so"]
    cpu.library.cache_clear()
    commands = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: commands.append(command) or run(command, **options))
    assert cpu.library() is not None and list(fresh.iterdir()) == built
    assert [command[1:] for command in commands] == [["--version"]]


@pytest.mark.parametrize("beta", [0, 0.5, 0.9, 1])
@pytest.mark.parametrize("clip", [None, 1e-3])
def test_rows_by_registers_of_every_width(registers, beta, clip):
    """Against the eager pass in fp64, at a vocabulary that no width divides."""
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 16, generator=generator)
    head, targets = torch.randn(1301, 16, generator=generator), torch.arange(5)
    results = []
    for dtype in (torch.float32, torch.float64):
        wide, matrix = student.detach().to(dtype).requires_grad_(), head.to(dtype)
        divergence = fused_linear_jsd(wide, matrix, teacher.to(dtype), matrix, beta=beta, element_clip=clip)
        tokens = fused_linear_logprob(wide, matrix, targets)
        (divergence.divergence.sum() + tokens.logprob.sum() + tokens.entropy.sum()).backward()
        results.append([divergence.divergence, divergence.entropy, divergence.teacher_entropy, tokens.logprob, tokens.entropy, wide.grad])
        results[-1].append(divergence.clipped)
    for found, exact in zip(*results, strict=True):
        assert (found.double() - exact.double()).norm() <= 1e-5 * exact.double().norm()


def test_without_a_compiler_one_warning_and_the_same_results(fresh, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 16, generator=generator)
    head, targets = torch.randn(301, 16, generator=generator), torch.arange(5)

    def both():
        divergence = fused_linear_jsd(student, head, teacher, head).divergence
        return divergence, fused_linear_logprob(student, head, targets).logprob

    expected = both()
    cpu.library.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.warns(RuntimeWarning, match=r"no C\+\+ compiler.* eager PyTorch"):
        found = both()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_a_compiler_that_fails_is_quoted(fresh, monkeypatch, tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'cannot find the standard library' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    with pytest.warns(RuntimeWarning, match="cannot find the standard library"):
        assert cpu.library() is None
