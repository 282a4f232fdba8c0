"""Every algorithm, value and gradient, against plain padded loops written from the papers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings

from tests.property import padded
from tests.property.padded import Padded
from tests.property.steps import Leaves, advantaged, loss_of, packed, steps
from trimtab.algorithms import ALGORITHMS, build_algorithm
from trimtab.algorithms.algorithm import Algorithm


def built(**table) -> Algorithm:
    return build_algorithm(table, max_new_tokens=3000, samples_per_prompt=8)


PAIRS = {
    "ppo": (ALGORITHMS["ppo"](), padded.ppo),
    "grpo": (ALGORITHMS["grpo"](), padded.grpo),
    "dr_grpo": (ALGORITHMS["dr_grpo"](), padded.dr_grpo),
    "dapo": (ALGORITHMS["dapo"](), padded.dapo),
    "dapo-prompt-mean": (
        built(name="dapo", aggregate="prompt-mean"),
        functools.partial(padded.dapo, aggregate=padded.prompt_mean),
    ),
    "gspo": (ALGORITHMS["gspo"](), padded.gspo),
    "gspo_token": (ALGORITHMS["gspo_token"](), padded.gspo_token),
    "sapo": (ALGORITHMS["sapo"](), padded.sapo),
    "sign_decoupled": (ALGORITHMS["sign_decoupled"](), padded.sign_decoupled),
    "sign_decoupled-max": (
        built(name="sign_decoupled", bound="max"),
        functools.partial(padded.sign_decoupled, bound="max"),
    ),
    "cispo": (ALGORITHMS["cispo"](), padded.cispo),
    "rloo": (ALGORITHMS["rloo"](), padded.rloo),
    "grpo-dual-entropy": (
        built(
            name="grpo",
            surrogate={"name": "dual-clip", "low": 0.2, "high": 0.2, "cap": 3.0},
            terms={"kl": "none", "entropy": {"coef": 0.01}},
        ),
        padded.grpo_dual_entropy,
    ),
}


def test_every_preset_has_a_reference():
    assert set(ALGORITHMS) <= set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(step=steps())
def test_value_and_gradient_equal_the_padded_loops(name, step):
    algorithm, reference = PAIRS[name]
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    leaves = Leaves.of(step)
    loss = loss_of(algorithm.objective, leaves.output(batch), batch)
    found = leaves.gradient(loss)

    b = Padded.of(step)
    expected_loss = reference(b)
    parts = torch.autograd.grad(expected_loss, (b.logp, b.entropy, b.new_values), allow_unused=True)
    real = torch.tensor([[t < n for t in range(b.logp.shape[1])] for n in step.lengths])
    expected = torch.cat(
        [torch.zeros(sum(step.lengths), dtype=torch.float64) if g is None else g[real] for g in parts]
    )

    scale = max(1.0, float(expected.abs().max()) if len(expected) else 1.0)
    assert float(loss.detach()) == pytest.approx(float(expected_loss.detach()), rel=1e-10, abs=1e-10)
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=1e-11)
