"""The papers once more: plain loops over a padded [B, L] batch, independent of the package.

Written from the formulas, to be read beside them. Nothing is imported from trimtab. Padding is filled with
numbers that would show if they leaked (logp -7, old -3, ...).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass
class Padded:
    """[B, L] tensors; ``mask`` is False on padding and on tokens that are not the policy's."""

    groups: list[int]
    rewards: list[float]
    mask: list[list[bool]]
    logp: torch.Tensor
    old: torch.Tensor
    ref: torch.Tensor
    entropy: torch.Tensor
    values: torch.Tensor
    new_values: torch.Tensor

    @classmethod
    def of(cls, step, extra: int = 3) -> Padded:
        width = max(step.lengths, default=0) + extra

        def pad(rows, filler, grad=False):
            full = [list(row) + [filler] * (width - len(row)) for row in rows]
            return torch.tensor(full, dtype=torch.float64, requires_grad=grad)

        return cls(
            groups=step.groups,
            rewards=step.rewards,
            mask=[list(row) + [False] * (width - len(row)) for row in step.mask],
            logp=pad(step.logp, -7.0, grad=True),
            old=pad(step.old, -3.0),
            ref=pad(step.ref, -50.0),
            entropy=pad(step.entropy, 9.0, grad=True),
            values=pad(step.values, 11.0),
            new_values=pad(step.new_values, -11.0, grad=True),
        )

    @property
    def answers(self) -> range:
        return range(len(self.groups))

    def tokens(self, i: int) -> list[int]:
        return [t for t, on in enumerate(self.mask[i]) if on]


# ---------------------------------------------------------------------------------------- advantages
def group_advantages(rewards, groups, std: bool, eps: float = 1e-6) -> list[float]:
    out = []
    for reward, group in zip(rewards, groups, strict=True):
        mates = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        if len(mates) < 2 or max(mates) - min(mates) <= 1e-6:
            out.append(0.0)
            continue
        mean = sum(mates) / len(mates)
        scale = math.sqrt(sum((r - mean) ** 2 for r in mates) / (len(mates) - 1)) + eps if std else 1.0
        out.append((reward - mean) / scale)
    return out


def leave_one_out(rewards, groups, std: bool, eps: float = 1e-6) -> list[float]:
    out = []
    for i, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        others = [r for j, (r, g) in enumerate(zip(rewards, groups, strict=True)) if g == group and j != i]
        mates = [*others, reward]
        if not others or max(mates) - min(mates) <= 1e-6:
            out.append(0.0)
            continue
        mean = sum(others) / len(others)
        scale = 1.0
        if std and max(others) - min(others) > 1e-6:
            scale = math.sqrt(sum((r - mean) ** 2 for r in others) / (len(others) - 1)) + eps
        out.append((reward - mean) / scale)
    return out


def gae(rewards, values, gamma, lam, bootstrap=0.0) -> tuple[list[float], list[float]]:
    """One answer, backwards. ``rewards`` and ``values`` of its trained tokens only."""
    advantages, after, carried = [0.0] * len(values), bootstrap, 0.0
    for t in reversed(range(len(values))):
        delta = rewards[t] + gamma * after - values[t]
        carried = delta + gamma * lam * carried
        advantages[t], after = carried, values[t]
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def ppo_advantages(b: Padded, *, gamma=1.0, lam=0.95, whiten=True, kl_coef=0.02):
    advantages = [[0.0] * len(row) for row in b.mask]
    returns = [[0.0] * len(row) for row in b.mask]
    for i in b.answers:
        tokens = b.tokens(i)
        rewards = [-kl_coef * float(b.old[i, t] - b.ref[i, t]) for t in tokens]
        if rewards:
            rewards[-1] += b.rewards[i]
        adv, ret = gae(rewards, [float(b.values[i, t]) for t in tokens], gamma, lam)
        for t, a, r in zip(tokens, adv, ret, strict=True):
            advantages[i][t], returns[i][t] = a, r
    if whiten:
        every = [advantages[i][t] for i in b.answers for t in b.tokens(i)]
        if len(every) > 1:
            mean = sum(every) / len(every)
            std = math.sqrt(sum((a - mean) ** 2 for a in every) / (len(every) - 1))
            for i in b.answers:
                for t in b.tokens(i):
                    advantages[i][t] = (advantages[i][t] - mean) / (std + 1e-8)
    return advantages, returns


# ------------------------------------------------------------------------------------------- per token
def ratio_of(b: Padded, i: int, t: int):
    return torch.exp(torch.clamp(b.logp[i, t] - b.old[i, t], -20, 20))


def sequence_ratio_of(b: Padded, i: int):
    tokens = b.tokens(i)
    total = sum(b.logp[i, t] - b.old[i, t] for t in tokens)
    return torch.exp(torch.clamp(total / len(tokens), -20, 20))


def ppo_clip(r, a: float, low: float, high: float):
    boxed = torch.clamp(r, 1 - low, 1 + high)
    return torch.minimum(r * a, boxed * a)


def dual_clip(r, a: float, low: float, high: float, cap: float):
    value = ppo_clip(r, a, low, high)
    return torch.maximum(value, torch.tensor(cap * a, dtype=torch.float64)) if a < 0 else value


def soft_gate(r, a: float, tau_pos: float, tau_neg: float):
    tau = tau_pos if a > 0 else tau_neg
    return 4.0 / tau / (1.0 + torch.exp(-tau * (r - 1.0))) * a


def k3(b: Padded, i: int, t: int):
    d = b.ref[i, t] - b.logp[i, t]
    return torch.exp(d) - d - 1.0


# ------------------------------------------------------------------------------------------ aggregation
def seq_mean_token_mean(b: Padded, loss):
    rows = [sum(loss(i, t) for t in b.tokens(i)) / len(b.tokens(i)) for i in b.answers if b.tokens(i)]
    return sum(rows) / len(rows) if rows else 0.0 * b.logp.sum()


def seq_mean_token_sum(b: Padded, loss, horizon: int = 1):
    rows = [sum(loss(i, t) for t in b.tokens(i)) / horizon for i in b.answers if b.tokens(i)]
    return sum(rows) / len(rows) if rows else 0.0 * b.logp.sum()


def token_mean(b: Padded, loss):
    every = [loss(i, t) for i in b.answers for t in b.tokens(i)]
    return sum(every) / len(every) if every else 0.0 * b.logp.sum()


def prompt_mean(b: Padded, loss):
    prompts = []
    for group in sorted(set(b.groups)):
        every = [loss(i, t) for i in b.answers if b.groups[i] == group for t in b.tokens(i)]
        if every:
            prompts.append(sum(every) / len(every))
    return sum(prompts) / len(prompts) if prompts else 0.0 * b.logp.sum()


# ------------------------------------------------------------------------------------------- algorithms
def ppo(b: Padded):
    adv, ret = ppo_advantages(b)

    def loss(i, t):
        new, old, target = b.new_values[i, t], b.values[i, t], ret[i][t]
        held = old + torch.clamp(new - old, -0.2, 0.2)
        value = 0.5 * torch.maximum((new - target) ** 2, (held - target) ** 2)
        return -ppo_clip(ratio_of(b, i, t), adv[i][t], 0.2, 0.2) + 0.1 * value

    return token_mean(b, loss)


def grpo(b: Padded):
    adv = group_advantages(b.rewards, b.groups, std=True)
    return seq_mean_token_mean(
        b, lambda i, t: -ppo_clip(ratio_of(b, i, t), adv[i], 0.2, 0.2) + 0.04 * k3(b, i, t)
    )


def dr_grpo(b: Padded, horizon: int = 3000):
    adv = group_advantages(b.rewards, b.groups, std=False)
    return seq_mean_token_sum(b, lambda i, t: -ppo_clip(ratio_of(b, i, t), adv[i], 0.2, 0.2), horizon)


def dapo(b: Padded, aggregate=token_mean):
    adv = group_advantages(b.rewards, b.groups, std=True)
    return aggregate(b, lambda i, t: -ppo_clip(ratio_of(b, i, t), adv[i], 0.2, 0.28))


def gspo(b: Padded):
    """Per answer, as the paper has it: no tokens in the sum at all."""
    adv = group_advantages(b.rewards, b.groups, std=True)
    rows = [-ppo_clip(sequence_ratio_of(b, i), adv[i], 3e-4, 4e-4) for i in b.answers if b.tokens(i)]
    return sum(rows) / len(rows) if rows else 0.0 * b.logp.sum()


def gspo_token(b: Padded):
    adv = group_advantages(b.rewards, b.groups, std=True)

    def loss(i, t):
        value = sequence_ratio_of(b, i).detach()
        own = torch.exp(b.logp[i, t] - b.logp[i, t].detach())
        return -ppo_clip(value * own, adv[i], 3e-4, 4e-4)

    return seq_mean_token_mean(b, loss)


def sapo(b: Padded):
    adv = group_advantages(b.rewards, b.groups, std=True)
    return seq_mean_token_mean(b, lambda i, t: -soft_gate(ratio_of(b, i, t), adv[i], 1.0, 1.05))


def sign_decoupled(b: Padded, bound: str = "min"):
    adv = group_advantages(b.rewards, b.groups, std=True)

    def loss(i, t):
        r, a = ratio_of(b, i, t), adv[i]
        if a > 0:
            return -ppo_clip(r, a, 0.2, 0.2)
        pair = torch.stack([r * a, torch.clamp(r, 0.95, 1.05) * a])
        return -0.5 * (pair.min() if bound == "min" else pair.max())

    return token_mean(b, loss)


def cispo(b: Padded):
    adv = group_advantages(b.rewards, b.groups, std=True)
    return token_mean(
        b, lambda i, t: -torch.clamp(ratio_of(b, i, t).detach(), 0.0, 5.0) * adv[i] * b.logp[i, t]
    )


def rloo(b: Padded):
    adv = leave_one_out(b.rewards, b.groups, std=False)
    return seq_mean_token_sum(b, lambda i, t: -ratio_of(b, i, t) * adv[i])


def grpo_dual_entropy(b: Padded):
    """GRPO with three things turned on or changed: dual clip, an entropy bonus, no KL."""
    adv = group_advantages(b.rewards, b.groups, std=True)
    return seq_mean_token_mean(
        b, lambda i, t: -dual_clip(ratio_of(b, i, t), adv[i], 0.2, 0.2, 3.0) - 0.01 * b.entropy[i, t]
    )
