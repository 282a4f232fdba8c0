"""KL estimators: their values, and the gradients they really have under sampling. Segment sums."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import torch

from trimtab.errors import SettingError
from trimtab.objectives.aggregate import AGGREGATES, aggregate_named, seq_mean_token_mean, token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.regularizers import EntropyTarget, ReferenceKL
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, SoftGate
from trimtab.objectives.value import ClippedValueLoss
from trimtab.ops.kl import ESTIMATORS, k1, k2, k3, kl_clamped
from trimtab.ops.segments import seq_mean, seq_sum
from trimtab.types import Batch, MissingColumnError, ModelOutput

LOGITS = torch.tensor([0.3, -0.7, 1.1, 0.0], dtype=torch.float64)
REF = torch.tensor([0.9, 0.1, -0.4, 0.2], dtype=torch.float64)


def one_token_each(count: int) -> Batch:
    """``count`` answers of one token, one for each token of a tiny vocabulary."""
    ids = torch.arange(count)
    return Batch(
        prompts_P=(torch.tensor([0]),),
        token_ids_T=ids,
        seq_T=ids,
        mask_T=torch.ones(count, dtype=torch.bool),
        rollout_logprobs_T=torch.zeros(count),
        group_S=torch.zeros(count, dtype=torch.int64),
        rewards_S=torch.zeros(count, dtype=torch.float64),
        outcomes_S=torch.zeros(count, dtype=torch.float64),
        truncated_S=torch.zeros(count, dtype=torch.bool),
        version_S=torch.zeros(count, dtype=torch.int64),
        keys_S=tuple(f"p#0/{i}" for i in range(count)),
    )


def expected_gradient(estimator: str, weighted: bool, *, behind: torch.Tensor | None = None) -> torch.Tensor:
    """E over tokens drawn from pi_old of d (KL term) / d logits, summed exactly over the vocabulary."""
    logits = LOGITS.clone().requires_grad_()
    logp_V = torch.log_softmax(logits, 0)
    old_V = torch.log_softmax(LOGITS if behind is None else behind, 0)
    batch = one_token_each(4).with_columns(
        old_logprobs_T=old_V, ref_logprobs_T=torch.log_softmax(REF, 0), weights_T=old_V.exp()
    )
    objective = Objective(((1.0, ReferenceKL(estimator, weighted)),), token_mean)
    losses, _ = objective(ModelOutput(logprobs_T=logp_V, entropy_T=torch.zeros(4)), batch)
    return torch.autograd.grad(losses["kl"], logits)[0]


def true_gradient(forward: bool) -> torch.Tensor:
    logits = LOGITS.clone().requires_grad_()
    p, q = torch.log_softmax(logits, 0), torch.log_softmax(REF, 0)
    divergence = (q.exp() * (q - p)).sum() if forward else (p.exp() * (p - q)).sum()
    return torch.autograd.grad(divergence, logits)[0]


def test_the_gradients_that_the_estimators_really_have():
    torch.testing.assert_close(expected_gradient("k1", False), torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(expected_gradient("k2", False), true_gradient(forward=False))
    torch.testing.assert_close(expected_gradient("k3", False), true_gradient(forward=True))
    torch.testing.assert_close(expected_gradient("k1", True), true_gradient(forward=False))
    torch.testing.assert_close(expected_gradient("k3", True), true_gradient(forward=False))
    assert float((true_gradient(True) - true_gradient(False)).abs().max()) > 0.05


def test_the_importance_weight_keeps_the_gradient_when_the_policy_has_moved_on():
    behind = torch.tensor([-0.2, 0.4, 0.3, -0.5], dtype=torch.float64)
    torch.testing.assert_close(expected_gradient("k3", True, behind=behind), true_gradient(forward=False))
    assert float((expected_gradient("k2", False, behind=behind) - true_gradient(False)).abs().max()) > 0.01


def test_k1_and_k3_are_exact_on_average_and_k3_never_negative():
    p, q = torch.log_softmax(LOGITS, 0), torch.log_softmax(REF, 0)
    true = float((p.exp() * (p - q)).sum())
    assert float((p.exp() * k1(p - q)).sum()) == pytest.approx(true)
    assert float((p.exp() * k3(p - q)).sum()) == pytest.approx(true)
    d = torch.linspace(-30, 30, 601)
    assert (k3(d) >= 0).all()
    assert (k2(d) >= 0).all()


def test_k3_is_clamped_on_one_side_only_and_says_where():
    d = torch.tensor([-1000.0, -20.1, -19.9, 0.0, 19.9, 1000.0, float("nan")], requires_grad=True)
    value = k3(d)
    assert value[:-1].isfinite().all()
    assert value[-1].isnan()
    (slope,) = torch.autograd.grad(value[:-1].sum(), d)
    assert slope[[0, 1]].tolist() == [0.0, 0.0]
    assert slope[5].item() == 1.0
    assert kl_clamped(d, "k3").tolist() == [True, True, False, False, False, False, False]
    assert not kl_clamped(d, "k1").any()
    assert set(ESTIMATORS) == {"k1", "k2", "k3"}


def test_k3_keeps_its_digits_for_small_differences_in_float32():
    assert k3(torch.tensor(1e-3)).item() == pytest.approx(0.5e-6, rel=0.01)


# ------------------------------------------------------------------------------------------- segments
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_segments_with_empty_sequences_in_any_float_type(dtype):
    x_T = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=dtype, requires_grad=True)
    seq_T, mask_T = torch.tensor([1, 1, 3, 3]), torch.tensor([True, True, True, False])
    total_S = seq_sum(x_T, seq_T, 5)
    assert total_S.dtype == dtype
    assert total_S.tolist() == [0.0, 3.0, 0.0, 12.0, 0.0]
    mean_S = seq_mean(x_T, mask_T, seq_T, 5)
    assert mean_S.dtype == dtype
    assert mean_S.tolist() == [0.0, 1.5, 0.0, 4.0, 0.0]
    (grad_T,) = torch.autograd.grad(mean_S.sum(), x_T)
    assert grad_T.tolist() == [0.5, 0.5, 1.0, 0.0]


def test_half_precision_sums_do_not_stall():
    ones_T = torch.ones(1000, dtype=torch.bfloat16)
    assert seq_sum(ones_T, torch.zeros(1000, dtype=torch.int64), 1).item() == 1000.0
    assert seq_mean(ones_T, ones_T.bool(), torch.zeros(1000, dtype=torch.int64), 1).item() == 1.0


def test_no_tokens_and_no_sequences():
    nothing_T, nowhere_T = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    assert seq_sum(nothing_T, nowhere_T, 2).tolist() == [0.0, 0.0]
    assert seq_mean(nothing_T, nothing_T.bool(), nowhere_T, 0).shape == (0,)


# ------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    "make",
    [
        lambda: Clip(-0.1, 0.2),
        lambda: Clip(0.2, float("nan")),
        lambda: Clip(0.2, float("inf")),
        lambda: DualClip(0.2, 0.2, 1.0),
        lambda: DualClip(-0.2, 0.2, 3.0),
        lambda: SoftGate(0.0, 1.0),
        lambda: SoftGate(1.0, -1.0),
        lambda: SoftGate(float("nan"), 1.0),
        lambda: ClippedWeight(1.0, -0.5),
        lambda: SignDecoupledClip(alpha=0.0),
        lambda: SignDecoupledClip(bound="mean"),
        lambda: SignDecoupledClip(neg=-0.05),
        lambda: ReferenceKL("k4"),
        lambda: ClippedValueLoss(0.0),
        lambda: EntropyTarget(target=0.0),
        lambda: aggregate_named("tokenmean"),
        lambda: aggregate_named("seq-mean-token-sum-norm"),
        lambda: aggregate_named("seq-mean-token-sum-norm", 0),
        lambda: aggregate_named("token-mean", 8),
    ],
)
def test_impossible_values_are_setting_errors(make):
    with pytest.raises(SettingError):
        make()


def test_the_aggregates_have_the_golden_names():
    assert list(AGGREGATES) == [
        "token-mean",
        "seq-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "prompt-mean",
        "token-sum",
    ]
    assert aggregate_named("seq-mean-token-mean") is seq_mean_token_mean


def test_a_value_loss_without_a_critic_says_so():
    batch = one_token_each(2).with_columns(values_T=torch.zeros(2), returns_T=torch.zeros(2))
    with pytest.raises(MissingColumnError, match="no critic"):
        ClippedValueLoss()(ModelOutput(logprobs_T=torch.zeros(2), entropy_T=torch.zeros(2)), batch)
