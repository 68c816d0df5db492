"""The one call that attends for a whole packed row: it is asked for the same numbers as a call a sequence."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from papergym.model import attention
from papergym.model.attention import packed_attention, shared_prefix_attention, torch_varlen

GROUPS = [(4, (3, 1)), (2, ()), (1, (5,))]  # 16 tokens
HQ, HKV, D = 4, 2, 8


def heads(count: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(1, count, 16, D, dtype=dtype, generator=torch.Generator().manual_seed(count), requires_grad=True)


def plain_kernel(query, key, value, cu_q, cu_k, max_q, max_k):
    """What flash attention documents, sequence by sequence: the last query sees every key of its sequence."""
    outputs = []
    for start, end, first, last in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        q, k, v = query[start:end], key[first:last], value[first:last]
        assert len(q) <= max_q and len(k) <= max_k
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        scores = torch.einsum("thd,shd->hts", q, k) / D**0.5
        future = torch.arange(len(k)) > torch.arange(len(q))[:, None] + len(k) - len(q)
        outputs.append(torch.einsum("hts,shd->thd", scores.masked_fill(future, float("-inf")).softmax(-1), v))
    return torch.cat(outputs)


@pytest.mark.parametrize("attend", [shared_prefix_attention(GROUPS), packed_attention([4, 3, 1, 8])])
def test_one_call_equals_a_call_a_sequence(attend, monkeypatch):
    results = []
    for kernel in (None, plain_kernel):
        monkeypatch.setattr(attention, "varlen_kernel", lambda query, kernel=kernel: kernel)
        inputs = heads(HQ), heads(HKV), heads(HKV)
        inputs = (*inputs[:2], (inputs[1] * 0.5 + 1).detach().requires_grad_())
        out = attend(0, *inputs)
        (out * torch.arange(16)[:, None]).sum().backward()
        results.append((out.detach(), *(x.grad for x in inputs)))
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape and ours.abs().max() > 1e-2
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(torch_varlen() is None, reason="PyTorch has it from 2.12 on")
def test_pytorchs_kernel_takes_the_call(monkeypatch):
    """Its signature, layouts and gradient, without a GPU: it computes no numbers here."""
    monkeypatch.setattr(attention, "varlen_kernel", lambda query: torch_varlen())
    with FakeTensorMode():
        query, key, value = (torch.empty(1, n, 16, D, dtype=torch.bfloat16, requires_grad=True) for n in (HQ, HKV, HKV))
        out = shared_prefix_attention(GROUPS)(0, query, key, value)
        out.sum().backward()
        assert out.shape == query.shape and key.grad.shape == value.grad.shape == key.shape
