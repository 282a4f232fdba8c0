"""Cutting an update into micro-batches, reordering it or spreading it over ranks keeps its gradient."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.steps import Leaves, Step, advantaged, loss_of, packed, steps
from trimtab.algorithms import ALGORITHMS
from trimtab.objectives.aggregate import AGGREGATES, aggregate_named
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import RATIOS
from trimtab.objectives.regularizers import EntropyBonus, ReferenceKL
from trimtab.objectives.surrogate import SURROGATES
from trimtab.objectives.value import ClippedValueLoss


def pieces(data, count: int, parts: int) -> list[list[int]]:
    """The numbers 0..count-1 in any order, dealt to ``parts`` hands; some hands may be empty."""
    order = data.draw(st.permutations(range(count)))
    hands = data.draw(st.lists(st.integers(0, parts - 1), min_size=count, max_size=count))
    return [[i for i, hand in zip(order, hands, strict=True) if hand == part] for part in range(parts)]


def whole_gradient(objective: Objective, batch, step: Step) -> torch.Tensor:
    leaves = Leaves.of(step)
    return leaves.gradient(loss_of(objective, leaves.output(batch), batch))


def split_gradient(objective: Objective, batch, step: Step, hands: list[list[int]]) -> torch.Tensor:
    """The sum of the gradients of the hands, each one a forward and backward of its own."""
    total = torch.zeros(3 * batch.num_tokens, dtype=torch.float64)
    for hand in hands:
        micro, leaves = batch.select(hand), Leaves.of(step)
        total += leaves.gradient(loss_of(objective, leaves.output(micro), micro))
    return total


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(step=steps(spread=0.3), data=st.data())
def test_any_split_of_any_algorithm_gives_the_same_gradient(name, step, data):
    algorithm = ALGORITHMS[name]()
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    hands = pieces(data, len(step.groups), parts=4)
    found = split_gradient(algorithm.objective, batch, step, hands)
    torch.testing.assert_close(found, whole_gradient(algorithm.objective, batch, step), rtol=0, atol=1e-10)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("ratio", RATIOS)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(step=steps(spread=0.3), data=st.data(), surrogate=st.sampled_from(sorted(SURROGATES)))
def test_any_split_of_any_composition_gives_the_same_gradient(aggregate, ratio, step, data, surrogate):
    horizon = 16 if aggregate.endswith("norm") else None
    terms = (
        (1.0, PolicyGradient(RATIOS[ratio], SURROGATES[surrogate]())),
        (0.1, ReferenceKL(data.draw(st.sampled_from(["k1", "k2", "k3"])), data.draw(st.booleans()))),
        (0.5, ClippedValueLoss(0.2)),
        (0.01, EntropyBonus()),
    )
    objective = Objective(terms, aggregate_named(aggregate, horizon))
    batch = advantaged(packed(step), ALGORITHMS["ppo"]())
    batch = objective.weighted(batch)
    hands = pieces(data, len(step.groups), parts=3)
    found = split_gradient(objective, batch, step, hands)
    torch.testing.assert_close(found, whole_gradient(objective, batch, step), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(step=steps(spread=0.3), data=st.data())
def test_ranks_that_average_gradients_agree_with_one_even_when_one_has_no_token(name, step, data):
    """D ranks scale their loss by D and a backend averages; rank 3 never gets a sequence."""
    algorithm, ranks = ALGORITHMS[name](), 4
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    shards = [*pieces(data, len(step.groups), parts=ranks - 1), []]
    gradients = []
    for shard in shards:
        micro_batches = [shard[:1], shard[1:]]
        gradients.append(ranks * split_gradient(algorithm.objective, batch, step, micro_batches))
    found = torch.stack(gradients).mean(0)
    torch.testing.assert_close(found, whole_gradient(algorithm.objective, batch, step), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(step=steps(spread=0.3), data=st.data())
def test_the_order_of_the_rollouts_changes_nothing_from_advantages_on(name, step, data):
    algorithm = ALGORITHMS[name]()
    order = data.draw(st.permutations(range(len(step.groups))))
    straight = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    shuffled = algorithm.objective.weighted(advantaged(packed(step).select(order), algorithm))
    leaves = Leaves.of(step)
    found = leaves.gradient(loss_of(algorithm.objective, leaves.output(shuffled), shuffled))
    torch.testing.assert_close(found, whole_gradient(algorithm.objective, straight, step), rtol=0, atol=1e-10)


def test_a_local_token_mean_would_fail_this():
    """The test can fail: weights made inside each micro-batch give another gradient."""
    algorithm = ALGORITHMS["dapo"]()
    step = Step(
        groups=[0, 0],
        rewards=[1.0, 0.0],
        mask=[[True], [True] * 5],
        logp=[[-1.0], [-1.0] * 5],
        old=[[-1.0], [-1.0] * 5],
        ref=[[-1.0], [-1.0] * 5],
        entropy=[[1.0], [1.0] * 5],
        values=[[0.0], [0.0] * 5],
        new_values=[[0.0], [0.0] * 5],
    )
    batch = algorithm.objective.weighted(advantaged(packed(step), algorithm))
    wrong = torch.zeros(18, dtype=torch.float64)
    for hand in ([0], [1]):
        micro, leaves = algorithm.objective.weighted(batch.select(hand)), Leaves.of(step)
        wrong += leaves.gradient(0.5 * loss_of(algorithm.objective, leaves.output(micro), micro))
    assert float((wrong - whole_gradient(algorithm.objective, batch, step)).abs().max()) > 0.1


@settings(max_examples=50, deadline=None, derandomize=True)
@given(step=steps())
def test_weights_of_means_add_up_to_one_and_of_nothing_to_zero(step):
    batch = packed(step)
    any_trained = bool(batch.mask_T.any())
    for name in ("token-mean", "seq-mean-token-mean", "prompt-mean"):
        weights_T = aggregate_named(name)(batch)
        assert weights_T.dtype == torch.float64
        assert float(weights_T.sum()) == pytest.approx(1.0 if any_trained else 0.0, abs=1e-12)
        assert not weights_T[~batch.mask_T].any()
    trained = batch.trained_S
    counted = max(1, int((trained > 0).sum()))
    sums = aggregate_named("seq-mean-token-sum")(batch)
    assert float(sums.sum()) == pytest.approx(float(trained.sum()) / counted)
    norm = aggregate_named("seq-mean-token-sum-norm", 8)(batch)
    torch.testing.assert_close(norm, sums / 8)
    assert torch.equal(aggregate_named("token-sum")(batch), batch.mask_T.double())


def test_masking_one_group_away_leaves_the_weights_of_the_others():
    batch = packed(
        Step(
            groups=[0, 0, 1],
            rewards=[1.0, 0.0, 1.0],
            mask=[[True, True], [True], [True, True, True]],
            logp=[[-1.0, -1.0], [-1.0], [-1.0] * 3],
            old=[[-1.0, -1.0], [-1.0], [-1.0] * 3],
            ref=[[-1.0, -1.0], [-1.0], [-1.0] * 3],
            entropy=[[1.0, 1.0], [1.0], [1.0] * 3],
            values=[[0.0, 0.0], [0.0], [0.0] * 3],
            new_values=[[0.0, 0.0], [0.0], [0.0] * 3],
        )
    )
    without = dataclasses.replace(batch, mask_T=batch.mask_T & (batch.seq_T < 2))
    alone = batch.select([0, 1])
    for name in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "prompt-mean", "token-sum"):
        torch.testing.assert_close(aggregate_named(name)(without)[:3], aggregate_named(name)(alone))
