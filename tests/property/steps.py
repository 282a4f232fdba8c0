"""One optimizer step as ragged lists, drawn by hypothesis, and its packed form, for the property tests."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from trimtab.types import Batch, ModelOutput

Ragged = list[list[float]]


@dataclass(frozen=True)
class Step:
    """Answers with one list entry a token. Groups need not be contiguous; answers may be empty or masked."""

    groups: list[int]
    rewards: list[float]
    mask: list[list[bool]]
    logp: Ragged
    old: Ragged
    ref: Ragged
    entropy: Ragged
    values: Ragged
    new_values: Ragged

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.mask]


@st.composite
def steps(draw, *, spread=None, max_answers: int = 7, max_length: int = 6, binary: bool = False) -> Step:
    """``spread``: standard deviation of the log-ratios; None draws one of tiny, usual and wild."""
    count = draw(st.integers(1, max_answers))
    groups = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    order: dict[int, int] = {}
    groups = [order.setdefault(g, len(order)) for g in groups]
    lengths = draw(st.lists(st.integers(0, max_length), min_size=count, max_size=count))
    keep = draw(st.sampled_from([1.0, 0.7, 0.0]))
    wide = draw(st.sampled_from([0.001, 0.3, 3.0])) if spread is None else spread
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def rows(center: float, scale: float) -> Ragged:
        return [list(rng.normal(center, scale, n)) for n in lengths]

    old = rows(-2.0, 1.0)
    rewards = rng.integers(0, 2, count).astype(float) if binary else rng.normal(0.0, 1.0, count)
    return Step(
        groups=groups,
        rewards=[float(r) for r in rewards],
        mask=[[bool(x < keep) for x in rng.random(n)] for n in lengths],
        logp=[[o + wide * float(rng.normal()) for o in row] for row in old],
        old=old,
        ref=[[o + 0.5 * float(rng.normal()) for o in row] for row in old],
        entropy=rows(1.0, 0.2),
        values=rows(0.0, 1.0),
        new_values=rows(0.0, 1.0),
    )


def flat(rows: list[list], dtype=torch.float64) -> torch.Tensor:
    return torch.tensor([x for row in rows for x in row], dtype=dtype)


def packed(step: Step, **columns: torch.Tensor) -> Batch:
    """The step as the real Batch in float64, with ``place_T``: each token's number in the whole step."""
    count, lengths = len(step.groups), step.lengths
    batch = Batch(
        prompts_P=tuple(torch.tensor([p]) for p in range(max(step.groups) + 1)),
        token_ids_T=torch.zeros(sum(lengths), dtype=torch.int64),
        seq_T=torch.repeat_interleave(torch.arange(count), torch.tensor(lengths)),
        mask_T=flat(step.mask, torch.bool),
        rollout_logprobs_T=flat(step.old),
        group_S=torch.tensor(step.groups),
        rewards_S=torch.tensor(step.rewards, dtype=torch.float64),
        outcomes_S=torch.tensor(step.rewards, dtype=torch.float64),
        truncated_S=torch.zeros(count, dtype=torch.bool),
        version_S=torch.zeros(count, dtype=torch.int64),
        keys_S=tuple(f"p{g}#0/{i}" for i, g in enumerate(step.groups)),
    )
    return batch.with_columns(
        old_logprobs_T=flat(step.old),
        ref_logprobs_T=flat(step.ref),
        values_T=flat(step.values),
        place_T=torch.arange(sum(lengths)),
        **columns,
    )


@dataclass(frozen=True)
class Leaves:
    """What a model gives out, as leaves whose gradient is compared."""

    logp: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, step: Step) -> Leaves:
        tensors = (flat(step.logp), flat(step.entropy), flat(step.new_values))
        return cls(*(tensor.requires_grad_() for tensor in tensors))

    def output(self, batch: Batch) -> ModelOutput:
        place_T = batch.columns["place_T"]
        return ModelOutput(
            logprobs_T=self.logp[place_T], entropy_T=self.entropy[place_T], values_T=self.values[place_T]
        )

    def gradient(self, loss: torch.Tensor) -> torch.Tensor:
        """d loss / d (logp, entropy, values), one after another; 0 where the loss does not depend on them."""
        leaves = (self.logp, self.entropy, self.values)
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        return torch.cat(
            [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        )


def advantaged(batch: Batch, algorithm) -> Batch:
    """KL in the reward and advantages, as the loop's stage does it."""
    if algorithm.kl_in_reward is not None:
        batch = batch.with_columns(kl_rewards_T=algorithm.kl_in_reward(batch))
    return batch.with_columns(**algorithm.advantage(batch))


def loss_of(objective, out: ModelOutput, batch: Batch) -> torch.Tensor:
    losses, _ = objective(out, batch)
    return torch.stack(list(losses.values())).sum()
