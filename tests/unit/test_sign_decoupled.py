"""What the two bounds of the sign-decoupled clip do to a bad token when one batch is used again and again."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

import pytest
import torch

from tests.unit.test_loss_cases import answers, policy
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import SignDecoupledClip
from trimtab.types import ModelOutput

UPDATES = 1000


def ratio_after(bound: str, *, start: float = 1.0) -> float:
    """Ratio of a bad token (A = -1, sampled at probability 1/4) after the updates, begun at ``start``."""
    old = math.log(1 / 4)
    objective = policy(token_ratio, SignDecoupledClip(bound=bound))
    batch = objective.weighted(answers([[old]], advantages=[[-1.0]]))
    begin = start / 4
    logits = torch.tensor([math.log(begin), *[math.log((1 - begin) / 3)] * 3], dtype=torch.float64)
    logits.requires_grad_()
    optimizer = torch.optim.SGD([logits], lr=0.1)
    for _ in range(UPDATES):
        logp_T = torch.log_softmax(logits, 0)[:1]
        losses, _ = objective(ModelOutput(logprobs_T=logp_T, entropy_T=torch.zeros_like(logp_T)), batch)
        optimizer.zero_grad()
        losses["policy"].backward()
        optimizer.step()
    return float(torch.log_softmax(logits, 0)[0].exp().detach() / math.exp(old))


def test_min_stops_at_its_bound_and_max_suppresses_without_limit():
    assert ratio_after("min") == pytest.approx(0.93, abs=5e-3), "one update beyond the bound"
    assert ratio_after("max") == pytest.approx(0.015, abs=5e-4)


def test_a_bad_token_that_rose_is_corrected_by_min_alone():
    assert ratio_after("min", start=1.3) == pytest.approx(0.92, abs=5e-3)
    assert ratio_after("max", start=1.3) == pytest.approx(1.3)
