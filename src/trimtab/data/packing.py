"""From rewarded groups to a packed batch, and a batch cut into updates and micro-batches.

None of these cuts can change a gradient: the weights of an update are computed before it is cut into
micro-batches. Whole sequences always stay whole.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.errors import SettingError
from trimtab.types import Batch, RewardedGroup, Rollout


def pack(groups: Sequence[RewardedGroup], *, overlong_filter: bool = False) -> Batch:
    """The graded rollouts of these groups, in order, as one batch. Ungraded ones never enter.

    A group without a graded rollout leaves no trace; groups are told apart by position in ``groups``,
    so two draws of one prompt stay two groups. With ``overlong_filter`` a truncated answer has no
    trained token but keeps its place, its reward and so its share in the group's baseline.
    """
    prompts: list[Tensor] = []
    rollouts: list[Rollout] = []
    numbers: list[tuple[int, float, float]] = []
    for group in groups:
        scored = group.scored
        graded = [i for i, grade in enumerate(scored.grades) if grade.graded]
        if not graded:
            continue
        for i in graded:
            value = scored.grades[i].value
            assert value is not None, "a graded state has a value"
            rollouts.append(scored.group.rollouts[i])
            numbers.append((len(prompts), float(group.rewards[i]), value))
        prompts.append(torch.from_numpy(np.array(scored.group.prompt.token_ids, dtype=np.int64)))
    lengths_S = torch.tensor([rollout.length for rollout in rollouts], dtype=torch.int64)
    masks = [r.mask & (not (overlong_filter and r.truncated)) for r in rollouts]
    return Batch(
        prompts_P=tuple(prompts),
        token_ids_T=_joined([r.token_ids for r in rollouts], np.int64),
        seq_T=torch.repeat_interleave(torch.arange(len(rollouts)), lengths_S),
        mask_T=_joined(masks, np.bool_),
        rollout_logprobs_T=_joined([r.logprobs for r in rollouts], np.float32),
        group_S=torch.tensor([group for group, _, _ in numbers], dtype=torch.int64),
        rewards_S=torch.tensor([reward for _, reward, _ in numbers], dtype=torch.float64),
        outcomes_S=torch.tensor([value for _, _, value in numbers], dtype=torch.float64),
        truncated_S=torch.tensor([r.truncated for r in rollouts], dtype=torch.bool),
        version_S=torch.tensor([r.version for r in rollouts], dtype=torch.int64),
        keys_S=tuple(r.key for r in rollouts),
    )


def split_updates(batch: Batch, updates: int, epochs: int, seed: int) -> list[list[int]]:
    """Sequence indices of each update: ``epochs`` times over, each time cut into ``updates`` parts.

    Every epoch is a seeded order of its own and holds each sequence exactly once. Groups stay whole
    and parts differ by at most one group; where there are fewer groups than updates, groups are cut
    and parts differ by at most one sequence. Uneven is fine, and no part is empty: with fewer
    sequences than updates an epoch has fewer updates.
    """
    if updates < 1 or epochs < 1:
        raise SettingError(
            f"a step needs at least 1 update and 1 epoch, got {updates} updates, {epochs} epochs"
        )
    group_S = batch.group_S.numpy()
    members = [np.flatnonzero(group_S == group) for group in np.unique(group_S)]
    parts: list[list[int]] = []
    for epoch in range(epochs):
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        shuffled = [members[i] for i in rng.permutation(len(members))]
        parts += [sorted(part.tolist()) for part in _cut(shuffled, updates) if len(part)]
    return parts


def micro_batches(batch: Batch, max_tokens: int) -> list[list[int]]:
    """Sequence indices of each micro-batch, longest sequences first.

    A sequence costs its prompt and response tokens. A micro-batch of n sequences costs n times its
    longest one, what it takes up when padded, and stays within ``max_tokens``; a sequence that is
    longer than that has a micro-batch of its own. Depends on the batch alone.
    """
    if max_tokens < 1:
        raise SettingError(f"the token budget of a micro-batch must be >= 1, got {max_tokens}")
    prompt_P = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    cost_S = (batch.lengths_S + prompt_P[batch.group_S]).tolist()
    parts: list[list[int]] = []
    room = 0
    for index in sorted(range(batch.num_sequences), key=lambda s: (-cost_S[s], s)):
        if room < 1:
            parts.append([])
            room = max(1, max_tokens // max(1, cost_S[index]))
        parts[-1].append(index)
        room -= 1
    return parts


def _cut(shuffled: Sequence[NDArray[np.intp]], updates: int) -> list[NDArray[np.intp]]:
    if len(shuffled) < updates:
        return np.array_split(np.concatenate(shuffled), updates) if shuffled else []
    bounds = [len(shuffled) * part // updates for part in range(updates + 1)]
    return [np.concatenate(shuffled[a:b]) for a, b in itertools.pairwise(bounds)]


def _joined(arrays: Sequence[NDArray[np.generic]], dtype: type[np.generic]) -> Tensor:
    whole = np.concatenate(arrays) if arrays else np.empty(0)
    return torch.from_numpy(whole.astype(dtype))
