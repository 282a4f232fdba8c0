"""Advantages that an algorithm would have given to the recorded answers, from their grades and lengths."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.advantages.gae import GAE
from trimtab.algorithms import Algorithm
from trimtab.errors import SettingError
from trimtab.record.rows import RolloutRow
from trimtab.types import Batch, Finish

MADE_BY = ("advantage", "reward", "shaping", "kl_in_reward")
"""The parts of an algorithm that decide an advantage."""


def made_anew(algorithm: Algorithm, own: Algorithm | None, rows: Sequence[RolloutRow]) -> bool:
    """Whether advantages have to be made from the recorded grades; False takes the recorded ones.

    own: the run's algorithm. Without it, recorded advantages are taken only where a critic made them.
    Raises: SettingError where they can be had in neither way.
    """
    if own is not None and all(getattr(own, part) == getattr(algorithm, part) for part in MADE_BY):
        return False
    if isinstance(algorithm.advantage, GAE):
        critic = any(row.tokens is not None and row.tokens.values is not None for row in rows)
        if own is None and critic:
            return False
        raise SettingError(
            f"{algorithm.name}'s advantages come from a critic, and the run has none with these settings; "
            "compare with an algorithm that makes advantages within groups"
        )
    if algorithm.kl_in_reward is not None:
        raise SettingError(
            f"{algorithm.name} adds a KL penalty to the reward, which needs values per token of every "
            'answer of a group; set kl_in_reward = "none" to compare the rest'
        )
    return True


def advantages_of(rows: Sequence[RolloutRow], algorithm: Algorithm) -> Tensor:
    """[S] float64: one advantage for each row, over complete groups; the rows are graded."""
    answers = len(rows)
    groups: dict[str, int] = {}
    group_S = torch.tensor([groups.setdefault(row.group, len(groups)) for row in rows], dtype=torch.int64)
    batch = Batch(
        prompts_P=tuple(torch.empty(0, dtype=torch.int64) for _ in groups),
        token_ids_T=torch.zeros(answers, dtype=torch.int64),
        seq_T=torch.arange(answers),
        mask_T=torch.ones(answers, dtype=torch.bool),
        rollout_logprobs_T=torch.zeros(answers),
        group_S=group_S,
        rewards_S=torch.from_numpy(rewards_of(rows, algorithm)),
        outcomes_S=torch.tensor([row.value for row in rows], dtype=torch.float64),
        truncated_S=torch.tensor([row.finish is not Finish.STOP for row in rows]),
        version_S=torch.zeros(answers, dtype=torch.int64),
        keys_S=tuple(row.key for row in rows),
    )
    return algorithm.advantage(batch)["advantages_T"]


def rewards_of(rows: Sequence[RolloutRow], algorithm: Algorithm) -> NDArray[np.float64]:
    """The reward of each row under the algorithm's scale and length penalty."""
    rewards = algorithm.reward(np.array([row.value for row in rows], dtype=np.float64))
    if algorithm.shaping is None:
        return rewards
    lengths = np.array([row.length for row in rows], dtype=np.int64)
    longest = algorithm.shaping.maximum or int(lengths.max())
    return rewards + algorithm.shaping.penalties(lengths, longest)
