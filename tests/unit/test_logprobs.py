"""Chunked log-probabilities and entropies against plain log-softmax: values, gradients, memory."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from trimtab.ops.logprobs import CHUNK_BYTES, chunk_size, logprobs_and_entropy, predecessors

TOKENS, HIDDEN, ROWS, KNOWN = 23, 8, 19, 17


def inputs(dtype: torch.dtype = torch.float64):
    random = torch.Generator().manual_seed(3)
    hidden = torch.randn(TOKENS, HIDDEN, dtype=dtype, generator=random).requires_grad_()
    weight = torch.randn(ROWS, HIDDEN, dtype=dtype, generator=random).requires_grad_()
    targets = torch.randint(0, KNOWN, (TOKENS,), generator=random)
    upstream = torch.randn(2, TOKENS, dtype=torch.float64, generator=random)
    return hidden, weight, targets, upstream


def plain(hidden, weight, targets, temperature):
    """The textbook way: the whole matrix, padding ids at -inf."""
    z = (hidden @ weight.T).double() / temperature
    z[:, KNOWN:] = -torch.inf
    log_probs = torch.log_softmax(z, -1)
    entropy = -(log_probs.exp() * log_probs.masked_fill(log_probs == -torch.inf, 0.0)).sum(-1)
    return log_probs.gather(-1, targets[:, None])[:, 0], entropy


def ours(hidden, weight, targets, temperature, **settings):
    return logprobs_and_entropy(
        hidden, lambda h: h @ weight.T, targets, temperature=temperature, vocab_size=KNOWN, **settings
    )


@pytest.mark.parametrize("chunk", [None, 1, 4, 22, 23, 50])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("entropy_grad", [False, True])
def test_values_and_gradients_equal_plain_log_softmax(chunk, temperature, entropy_grad):
    hidden, weight, targets, upstream = inputs()
    expected = plain(hidden, weight, targets, temperature)
    loss = (expected[0] * upstream[0]).sum() + entropy_grad * (expected[1] * upstream[1]).sum()
    wanted = torch.autograd.grad(loss, (hidden, weight))
    got = ours(hidden, weight, targets, temperature, chunk_tokens=chunk, entropy_grad=entropy_grad)
    assert got[0].dtype == got[1].dtype == torch.float64
    for mine, right in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-12)
    assert got[1].requires_grad == entropy_grad
    loss = (got[0] * upstream[0]).sum() + (entropy_grad and (got[1] * upstream[1]).sum())
    for mine, right in zip(torch.autograd.grad(loss, (hidden, weight)), wanted, strict=True):
        torch.testing.assert_close(mine, right, rtol=0, atol=1e-12)
    assert not wanted[1][KNOWN:].any(), "an id the tokenizer does not know gets no gradient"


def test_float32_and_bfloat16_models_give_float32_results():
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 0.1)):
        hidden, weight, targets, upstream = inputs(dtype)
        logprobs, entropy = ours(hidden, weight, targets, 0.7, chunk_tokens=5)
        assert logprobs.dtype == entropy.dtype == torch.float32
        exact = plain(hidden.detach().double(), weight.detach().double(), targets, 0.7)
        torch.testing.assert_close(logprobs.detach().double(), exact[0], rtol=0, atol=tolerance)
        torch.testing.assert_close(entropy.double(), exact[1], rtol=0, atol=tolerance)
        (logprobs * upstream[0]).sum().backward()
        assert hidden.grad is not None
        assert hidden.grad.dtype == dtype


def test_large_logits_stay_finite_and_a_nearly_certain_token_has_entropy_near_zero():
    logits = torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]], requires_grad=True)
    logprobs, entropy = logprobs_and_entropy(
        logits, lambda h: h, torch.tensor([1, 2]), temperature=1.0, vocab_size=3, entropy_grad=True
    )
    torch.testing.assert_close(logprobs, torch.tensor([-1e4, -1.0986123]))
    torch.testing.assert_close(entropy, torch.tensor([0.0, 1.0986123]))
    (logprobs.sum() + entropy.sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_nan_stays_visible():
    hidden, weight, targets, _ = inputs()
    broken = hidden.detach().clone()
    broken[3, 0] = torch.nan
    logprobs, entropy = ours(broken, weight, targets, 1.0)
    assert logprobs.isnan().nonzero().flatten().tolist() == [3]
    assert entropy.isnan().nonzero().flatten().tolist() == [3]


def test_no_token_is_no_error():
    hidden, weight, targets, _ = inputs()
    logprobs, entropy = ours(hidden[:0], weight, targets[:0], 1.0)
    assert logprobs.shape == entropy.shape == (0,)
    logprobs.sum().backward()


class CountingHead:
    """A head of a large vocabulary that remembers how many tokens it was asked for at once."""

    def __init__(self, vocabulary: int) -> None:
        self.weight = torch.zeros(vocabulary, HIDDEN, requires_grad=True)
        self.calls: list[int] = []

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        self.calls.append(len(hidden))
        return hidden @ self.weight.T


def test_logits_never_exist_for_more_than_one_chunk(monkeypatch):
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 6 << 20)
    vocabulary, tokens = 50_000, 250
    head = CountingHead(vocabulary)
    alive: dict[int, int] = {}
    peak = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        """Sums the bytes of every tensor with a vocabulary dimension that is alive."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal peak
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (list, tuple)) else [out]:
                if isinstance(tensor, torch.Tensor) and tensor.ndim == 2 and tensor.shape[1] == vocabulary:
                    key = tensor.untyped_storage().data_ptr()
                    if key not in alive:
                        alive[key] = tensor.untyped_storage().nbytes()
                        weakref.finalize(tensor.untyped_storage(), alive.pop, key, None)
                        peak = max(peak, sum(alive.values()))
            return out

    hidden = torch.randn(tokens, HIDDEN, requires_grad=True)
    targets = torch.randint(0, vocabulary, (tokens,))
    with Watch():
        logprobs, _ = logprobs_and_entropy(hidden, head, targets, temperature=0.9, vocab_size=vocabulary)
        logprobs.sum().backward()
    chunk = chunk_size(tokens, vocabulary, torch.device("cpu"))
    assert max(head.calls) == chunk < tokens / 7
    assert peak <= 6 * chunk * vocabulary * 4 < tokens * vocabulary * 4
    assert len(head.calls) == 2 * -(-tokens // chunk), "with gradients every chunk is made twice"


def test_one_chunk_is_computed_once_and_without_gradients_nothing_is_computed_twice():
    targets = torch.zeros(100, dtype=torch.int64)
    head = CountingHead(50)
    hidden = torch.randn(100, HIDDEN, requires_grad=True)
    logprobs_and_entropy(hidden, head, targets, temperature=1.0, vocab_size=50)[0].sum().backward()
    assert head.calls == [100]
    head.calls.clear()
    with torch.no_grad():
        logprobs_and_entropy(hidden, head, targets, temperature=1.0, vocab_size=50, chunk_tokens=40)
    assert head.calls == [40, 40, 20]


def test_chunks_leave_no_reference_cycles():
    """A graph that only the garbage collector can free would double an update's memory."""
    gc.collect()
    gc.disable()
    try:
        head = CountingHead(ROWS)
        hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
        targets = torch.zeros(TOKENS, dtype=torch.int64)
        graph = logprobs_and_entropy(
            hidden, head, targets, temperature=1.0, vocab_size=KNOWN, chunk_tokens=4, entropy_grad=True
        )
        (graph[0] + graph[1]).sum().backward()
        alive = weakref.ref(head)
        del head, graph
        assert alive() is None
    finally:
        gc.enable()


def test_chunk_size_follows_memory_and_divides_evenly():
    cpu = torch.device("cpu")
    assert chunk_size(10_000, 60, cpu) == 10_000
    assert chunk_size(0, 60, cpu) == 1
    large = chunk_size(1000, 49_152, cpu)
    assert large * 49_152 * 4 <= CHUNK_BYTES["cpu"]
    assert -(-1000 // large) * large - 1000 < 8, "the last chunk is about as large as the others"
    assert chunk_size(1000, 10_000_000, cpu) == 32


def test_predecessor_is_one_before_in_the_answer_and_the_prompts_end_for_its_first_token():
    offset = torch.tensor([0, 1, 2, 0, 1])
    first = torch.tensor([5, 5, 5, 8, 8])
    prompt_end = torch.tensor([4, 4, 4, 4, 4])
    assert predecessors(offset, first, prompt_end).tolist() == [4, 5, 6, 4, 8]
