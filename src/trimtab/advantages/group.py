"""Advantages against the other answers to the same prompt: no critic.

    GroupRelative    A_i = (R_i - mean_g R) / (std_g R + eps)       or without the division
    LeaveOneOut      A_i = R_i - mean of the others of the group    or divided by their std

R_i is ``rewards_S``, plus the sum of the answer's ``kl_rewards_T`` where KL is part of the reward.
Groups are told apart by id (``group_S``), never by position. Everything is float64, and whether a group
is uniform is decided by max - min <= UNIFORM_TOLERANCE: eight rewards of 0.7 have a float32 standard
deviation of 6e-8, which divided by itself is not a signal. Every answer of the batch counts in the
baseline, one without a trained token too; advantages are 0 where masked.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import SettingError
from trimtab.ops.segments import seq_sum
from trimtab.types import UNIFORM_TOLERANCE, Batch


@dataclass(frozen=True, slots=True)
class GroupRelative:
    """A_i = (R_i - mean) / (std + eps), mean and std over the answers of one group.

    scale: "std" divides by the sample standard deviation (n - 1 in its denominator); "none" does not,
        which keeps hard and easy prompts (small std) from counting more.
    eps: >= 0, only with "std"; in units of reward.
    A uniform group, and a group of one answer, get exactly 0. For [1, 0, 0, 0]: 1.5 and -0.5.
    Source: GRPO, arXiv 2402.03300, section 4.1.2 (which says neither n - 1 nor eps); without std, Dr. GRPO,
    arXiv 2503.20783, section 3.
    """

    scale: Literal["std", "none"] = "std"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check("group", self.scale, self.eps)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        return _as_column(self.advantages(total_rewards(batch), batch.group_S), batch)

    def advantages(self, rewards_S: Tensor, group_S: Tensor) -> Tensor:
        """[S] float64 -> [S] float64, before they are given to tokens."""
        table = _Table.of(rewards_S, group_S)
        centred = table.rewards - table.mean()
        if self.scale == "std":
            centred = centred / (table.std() + self.eps)
        return table.back(torch.where(table.uniform(), 0.0, centred))

    def __str__(self) -> str:
        return "group mean and std" if self.scale == "std" else "group mean"


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """A_i = R_i - mean of the other answers of the group (= n / (n - 1) times the centred reward).

    The baseline does not contain the answer it judges, so the policy gradient is unbiased.
    scale: "none", or "std" to divide by the others' standard deviation + eps. Where the others are
        uniform, or only one, the scale is 1: their deviation of 0 is no unit to measure with.
    A uniform group, and a group of one answer, get exactly 0.
    Source: RLOO, arXiv 2402.14740, section 2.3; dividing by std is not part of it.
    """

    scale: Literal["std", "none"] = "none"
    eps: float = 1e-6

    def __post_init__(self) -> None:
        _check("leave-one-out", self.scale, self.eps)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        return _as_column(self.advantages(total_rewards(batch), batch.group_S), batch)

    def advantages(self, rewards_S: Tensor, group_S: Tensor) -> Tensor:
        """[S] float64 -> [S] float64, before they are given to tokens."""
        table = _Table.of(rewards_S, group_S)
        others = table.others()
        centred = table.rewards - others.mean().squeeze(-1)
        if self.scale == "std":
            scale = torch.where(others.uniform(), 1.0, others.std() + self.eps)
            centred = centred / scale.squeeze(-1)
        return table.back(torch.where(table.uniform(), 0.0, centred))

    def __str__(self) -> str:
        return "leave-one-out mean" if self.scale == "none" else "leave-one-out mean and std"


def total_rewards(batch: Batch) -> Tensor:
    """``rewards_S`` plus each answer's summed ``kl_rewards_T``, if there are any; float64."""
    rewards_S = batch.rewards_S.to(torch.float64)
    kl_T = batch.columns.get("kl_rewards_T")
    if kl_T is None:
        return rewards_S
    return rewards_S + seq_sum(
        torch.where(batch.mask_T, kl_T.to(torch.float64), 0.0), batch.seq_T, batch.num_sequences
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Rewards laid out one group a row, padded at the end; statistics run over the last axis.

    ``row_S, place_S`` say where each answer's reward stands. ``present`` is False on padding.
    """

    rewards: Tensor
    present: Tensor
    row_S: Tensor
    place_S: Tensor

    @classmethod
    def of(cls, rewards_S: Tensor, group_S: Tensor) -> _Table:
        rewards_S = rewards_S.to(torch.float64)
        order_S = torch.argsort(group_S, stable=True)
        sizes_P = torch.bincount(group_S)
        starts_P = sizes_P.cumsum(0) - sizes_P
        place_S = torch.empty_like(group_S)
        place_S[order_S] = torch.arange(len(group_S), device=group_S.device) - starts_P[group_S[order_S]]
        width = int(sizes_P.max()) if len(sizes_P) else 0
        rewards = rewards_S.new_zeros(len(sizes_P), width)
        rewards[group_S, place_S] = rewards_S
        present = torch.arange(width, device=group_S.device) < sizes_P[:, None]
        return cls(rewards, present, group_S, place_S)

    def others(self) -> _Table:
        """One row for each answer, holding the rest of its group: [P, G, G]."""
        width = self.rewards.shape[1]
        apart = ~torch.eye(width, dtype=torch.bool, device=self.rewards.device)
        present = self.present[:, None, :] & apart
        return _Table(self.rewards[:, None, :].expand_as(present), present, self.row_S, self.place_S)

    def mean(self) -> Tensor:
        return torch.where(self.present, self.rewards, 0.0).sum(-1, keepdim=True) / self._size(least=1)

    def std(self) -> Tensor:
        """Sample standard deviation in two passes: the mean first, so that nothing cancels."""
        away = torch.where(self.present, self.rewards - self.mean(), 0.0)
        return (away.square().sum(-1, keepdim=True) / (self._size(least=2) - 1.0)).sqrt()

    def uniform(self) -> Tensor:
        """max - min <= UNIFORM_TOLERANCE, or fewer than two answers. NaN is not uniform: it must show."""
        top = torch.where(self.present, self.rewards, -torch.inf)
        bottom = torch.where(self.present, self.rewards, torch.inf)
        if self.rewards.shape[-1] == 0:
            return torch.ones_like(self.mean(), dtype=torch.bool)
        spread = top.amax(-1, keepdim=True) - bottom.amin(-1, keepdim=True)
        return (spread <= UNIFORM_TOLERANCE) | (self._size(least=0) < 2)

    def back(self, values: Tensor) -> Tensor:
        """[P, G] -> [S], in the batch's order."""
        return values[self.row_S, self.place_S]

    def _size(self, least: int) -> Tensor:
        return self.present.sum(-1, keepdim=True).to(torch.float64).clamp(min=least)


def _as_column(advantages_S: Tensor, batch: Batch) -> dict[str, Tensor]:
    return {"advantages_T": torch.where(batch.mask_T, advantages_S[batch.seq_T], 0.0)}


def _check(what: str, scale: str, eps: float) -> None:
    if scale not in ("std", "none"):
        raise SettingError(f'the {what} advantage needs scale "std" or "none", got {scale!r}')
    if not (math.isfinite(eps) and eps >= 0.0):
        raise SettingError(f"the {what} advantage needs eps >= 0, got {eps}")
