"""Updates over 1, 2 and 3 ranks are those of one process, whatever is trained, however uneven the shares."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.ranks import Here, Spread, spawned
from tests.sharded_cases import CASES, LOW, Case, adapted_model, alone, apart, low, over
from tests.tiny import tiny_model
from tests.trainers import (
    BOTH,
    VALUES,
    annotate,
    batch_for,
    kept_gradients,
    masters,
    update,
    weights,
    with_returns,
)
from tests.training import POLICY
from trimtab.models import LoadedModel
from trimtab.trainer.local import LocalTrainer


@pytest.fixture
def here() -> Iterator[Here]:
    rank = Here()
    yield rank
    rank.close()


def spread(ranks: Any, case: Case) -> Spread:
    return case.built(lambda model, **settings: Spread(ranks, model, **settings))


@pytest.mark.parametrize("name", ["policy", "critic model", "reference and entropy", "frozen with adapters"])
def test_one_rank_is_the_single_process_to_the_bit(here: Here, name: str):
    assert apart(alone(name), over(name, here)) == 0.0


UNEVEN = ("policy", "one sequence, other ranks idle", "some answers empty", "critic model", "experts")
"""Cases that are tried over three ranks too; all others over two."""


@pytest.mark.parametrize(("name", "size"), [*((name, 2) for name in CASES), *((name, 3) for name in UNEVEN)])
def test_ten_updates_are_those_of_the_single_process(name: str, size: int):
    case, expected = CASES[name], alone(name)
    found = over(name, spawned(size))
    assert apart(expected, found) <= case.tolerance
    moved = [
        float((t - u).abs().max()) for t, u in zip(first_weights(case), last_weights(found), strict=True)
    ]
    assert max(moved) > 1e-3, "ten updates have moved the weights far more than they may differ"
    for left, right in zip(expected.reports, found.reports, strict=True):
        assert (left.applied, left.critic_warmup) == (right.applied, right.critic_warmup)
        assert left.losses.keys() == right.losses.keys()
        assert left.loss == pytest.approx(right.loss, abs=10 * case.tolerance)
        for mine, theirs in (
            (left.grad_norm, right.grad_norm),
            (left.critic_grad_norm, right.critic_grad_norm),
        ):
            assert (mine is None) == (theirs is None)
            assert mine is None or mine == pytest.approx(theirs, rel=max(1e-3, 20 * case.tolerance), abs=1e-6)
        if case.tolerance == LOW and left is not expected.reports[0]:
            continue  # in bfloat16 gates open at other tokens from here on
        for column in ("logprobs_T", "entropy_T", "ratio_T", "gate_T", "kl_T", "values_T"):
            mine, theirs = getattr(left.trace, column), getattr(right.trace, column)
            assert (mine is None) == (theirs is None), column
            if mine is not None:
                torch.testing.assert_close(
                    mine, theirs, rtol=0, atol=max(2e-4, 50 * case.tolerance), equal_nan=True
                )


def first_weights(case: Case) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in case.model().module.parameters()]


def last_weights(found: Any) -> list[torch.Tensor]:
    return list(found.weights["policy"].values())


def test_the_mean_over_ranks_would_be_another_gradient():
    """FSDP's own division, and token means of each rank by itself: both are far from the gradient."""
    case = Case(settings={"max_grad_norm": float("inf")})
    batch = POLICY.weighted(annotate(case.built(LocalTrainer), case.batch()))
    right = kept_gradients(case.built(LocalTrainer), batch, POLICY)
    pair = spread(spawned(2), case)
    assert differ(right, kept_gradients(pair, batch, POLICY)) < 1e-5
    divided = spread(spawned(2), case)
    divided.inside("divide_by_ranks")
    assert differ(right, kept_gradients(divided, batch, POLICY)) == pytest.approx(0.5, abs=1e-3)
    weights_T = batch.weights_T.clone()
    for mine_S in pair.ranks.run(rank_shares, batch, 24):
        own_T = mine_S[batch.seq_T] & batch.mask_T
        weights_T[own_T] = 1.0 / (2 * int(own_T.sum()))
    means = kept_gradients(case.built(LocalTrainer), batch.with_columns(weights_T=weights_T), POLICY)
    assert differ(right, means) > 0.01


def rank_shares(place: Any, batch: Any, limit: int) -> torch.Tensor:
    """Which sequences a rank computes."""
    from trimtab.trainer.sharded_ranks import Ranks
    from trimtab.trainer.update import cut

    ranks = Ranks(place.group)
    batch, parts = ranks.cut(lambda most: cut(batch, POLICY, most, None, skip_silent=False), limit)
    share = ranks.share(batch, parts)
    assert share.mine_S is not None
    return share.mine_S[:-1]


def differ(right: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Size of the difference over the size of the gradient."""
    off = sum(float((right[name] - other[name]).square().sum()) for name in right)
    return (off / sum(float(gradient.square().sum()) for gradient in right.values())) ** 0.5


def test_each_rank_holds_its_part_of_everything_frozen_weights_included():
    pair = spread(spawned(2), CASES["frozen with adapters"])
    held = pair.ranks.run(held_elements, pair.number)
    whole = sum(p.numel() for p in adapted_model().module.parameters())
    assert sum(held) == whole
    assert max(held) < 0.52 * whole


def held_elements(place: Any, number: int) -> int:
    owned = place.trainers[number].owners
    return sum(tensor.numel() for one in owned for tensor in one.everything().values())


def test_only_adapters_are_trained_and_frozen_weights_stay():
    pair = spread(spawned(2), CASES["frozen with adapters"])
    before = masters(pair)["policy"]
    batch = annotate(pair, CASES["frozen with adapters"].batch())
    assert update(pair, batch).applied
    moved = {
        name for name, tensor in masters(pair)["policy"].items() if not torch.equal(tensor, before[name])
    }
    assert moved
    assert all(name.endswith(("up", "down")) for name in moved)
    assert "in 4 tensors" in pair.words
    assert "sharded over 2 ranks on cpu" in pair.words


BFLOAT16 = {
    "all": Case(model=lambda: low(tiny_model())),
    "critic head": Case(
        model=lambda: low(tiny_model()), settings={"critic": "head"}, objective=BOTH, columns=VALUES
    ),
    "frozen base": Case(model=lambda: low(adapted_model())),
}


def whole(model: LoadedModel) -> LoadedModel:
    """The model with its weights in float32."""
    for parameter in model.module.parameters():
        parameter.data = parameter.data.float()
    return model


@pytest.mark.parametrize("name", BFLOAT16)
def test_a_bfloat16_model_computes_in_bfloat16_with_float32_shards_and_sums(name: str):
    given = BFLOAT16[name]
    case = dataclasses.replace(given, settings={**given.settings, "critic_warmup_updates": 0})
    local, pair = case.built(LocalTrainer), spread(spawned(2), case)
    batch = with_returns(annotate(local, case.batch(), case.columns), 0.5)
    right, found = (kept_gradients(trainer, batch, case.objective) for trainer in (local, pair))
    assert right.keys() == found.keys()
    assert all(gradient.dtype is torch.float32 for gradient in found.values())
    assert differ(right, found) < 1e-3
    exact = dataclasses.replace(case, model=lambda: whole(case.model())).built(LocalTrainer)
    assert 1e-3 < differ(kept_gradients(exact, batch, case.objective), found) < 0.2, "not float32's gradient"
    published = weights(pair)
    for name, tensor in masters(pair)["policy"].items():
        trained = f"policy/{name}" in found
        assert tensor.dtype is (torch.float32 if trained else torch.bfloat16)
        assert published[name].dtype is dict(case.model().module.named_parameters())[name].dtype


def test_updates_are_reported_with_the_time_of_the_slowest_rank():
    pair = spread(spawned(2), CASES["policy"])
    report = update(pair, annotate(pair, batch_for(tiny_model())))
    assert set(report.seconds) == {"forward", "objective", "backward", "optimizer"}
