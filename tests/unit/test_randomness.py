"""Uniforms by counting: even, independent, the same in any company. Tokens by inverse distribution."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
import torch

from trimtab.rollout.randomness import choose, streams, uniforms


def numbers(seeds: int, positions: int, first: int = 0) -> np.ndarray:
    rows = streams(torch.arange(first, first + seeds))[:, None]
    return uniforms(rows, torch.arange(positions)[None]).numpy()


def test_known_values():
    """Pinned: runs recorded by one version must be repeatable by the next."""
    got = uniforms(streams(torch.tensor([0, 1, 2**63 - 1])), torch.tensor([0, 7, 100]))
    assert [splitmix(0, 0), splitmix(1, 7), splitmix(2**63 - 1, 100)] == got.tolist()


def splitmix(seed: int, position: int) -> float:
    """The same number in Python's unbounded integers."""
    golden, full = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & full
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & full
        return x ^ (x >> 31)

    bits = mix((mix((seed + golden) & full) + (position + 1) * golden) & full)
    return ((bits >> 11) + 0.5) / 2**53


@pytest.mark.parametrize("first", [0, 2**40, 2**62])
def test_even(first):
    """Chi-square over 64 bins, both of all numbers and of each row's first ones."""
    u = numbers(1000, 100, first)
    assert 0 < u.min() < u.max() < 1
    for part in (u.ravel(), u[:, 0], u[0]):
        bins = 64 if part.size > 5000 else 8
        counts = np.histogram(part, bins, (0, 1))[0]
        chi = ((counts - part.size / bins) ** 2 / (part.size / bins)).sum()
        assert chi < bins + 5 * np.sqrt(2 * bins)


def test_neighbours_are_independent():
    """No correlation between neighbouring seeds, positions, or along the diagonal of both."""
    u = numbers(2000, 60) - 0.5
    limit = 4 / np.sqrt(u.size)
    for a, b in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u[1:, 1:], u[:-1, :-1]), (u[1:, :-1], u[:-1, 1:])):
        assert abs((a * b).mean() * 12) < limit


def test_neighbouring_seeds_share_no_number():
    u = numbers(300, 300)
    assert len(np.unique(u)) == u.size


@pytest.mark.parametrize("vocabulary", [2, 53, 256, 257, 1000, 5000])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_choice_is_the_inverse_distribution(vocabulary, temperature):
    torch.manual_seed(vocabulary)
    logits = 3 * torch.randn(200, vocabulary)
    u = uniforms(streams(torch.arange(200)), torch.tensor(3))
    got = choose(logits.clone(), u, temperature)
    exact = torch.log_softmax(logits.double() / temperature, -1)
    edges = exact.exp().cumsum(1)
    ids = got.ids_R[:, None]
    low = edges.gather(1, ids) - exact.exp().gather(1, ids)
    assert ((low[:, 0] - 1e-6 <= u) & (u <= edges.gather(1, ids)[:, 0] + 1e-6)).all()
    torch.testing.assert_close(got.logprobs_R.double(), exact.gather(1, ids)[:, 0], rtol=0, atol=1e-5)
    assert got.logprobs_R.dtype is torch.float32


def test_frequencies():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).expand(40_000, 4)
    ids = choose(logits.clone(), uniforms(streams(torch.arange(40_000)), torch.tensor(0)), 0.7).ids_R
    share = torch.bincount(ids, minlength=4) / 40_000
    torch.testing.assert_close(share, torch.softmax(logits[0] / 0.7, 0), rtol=0, atol=0.01)


@pytest.mark.parametrize("vocabulary", [40, 700])
def test_what_has_no_probability_is_never_chosen(vocabulary):
    """Not even by the smallest and largest uniform there are, nor at the edge between two tokens."""
    logits = torch.full((4, vocabulary), -torch.inf)
    logits[:, 7] = logits[:, 30] = 0.0
    edges = torch.tensor([2.0**-54, 0.5, 0.5 - 2.0**-54, 1 - 2.0**-54], dtype=torch.float64)
    assert choose(logits.clone(), edges, 1.0).ids_R.tolist() == [7, 30, 7, 30]


def test_company_does_not_matter():
    torch.manual_seed(0)
    logits = torch.randn(50, 600)
    u = uniforms(streams(torch.arange(50)), torch.tensor(1))
    together = choose(logits.clone(), u, 0.9)
    for i in (0, 17, 49):
        alone = choose(logits[i : i + 1].clone(), u[i : i + 1], 0.9)
        assert alone.ids_R.item() == together.ids_R[i].item()
        assert abs(alone.logprobs_R.item() - together.logprobs_R[i].item()) < 1e-6


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("vocabulary", [40, 700])
def test_damage_shows_in_the_logprob(bad, vocabulary):
    logits = torch.zeros(3, vocabulary)
    logits[1, 5] = bad
    logprobs = choose(logits, torch.full((3,), 0.4, dtype=torch.float64), 1.0).logprobs_R
    assert logprobs.isfinite().tolist() == [True, False, True]


def test_half_precision_logits_are_summed_in_float32():
    torch.manual_seed(0)
    logits = torch.randn(8, 500).bfloat16()
    got = choose(logits, torch.full((8,), 0.3, dtype=torch.float64), 0.7)
    exact = torch.log_softmax(logits.double() / 0.7, -1).gather(1, got.ids_R[:, None])[:, 0]
    torch.testing.assert_close(got.logprobs_R.double(), exact, rtol=0, atol=2e-6)
