"""Preflight's questions about cost: time and memory, from one real update on what was drawn."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trimtab.algorithms.algorithm import Algorithm
from trimtab.data.packing import pack, split_updates
from trimtab.doctor.preflight.check import Check, Level
from trimtab.doctor.preflight.draw import Drawn
from trimtab.record.machine import device_peak_bytes, hardware, peak_bytes
from trimtab.rewards.shaping import reward_groups
from trimtab.trainer.trainer import Trainer
from trimtab.types import ScoredGroup

GIB = 1 << 30
TIGHT = 0.8
"""Share of the memory from which on a step of the run may not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the run asks for, as far as cost goes: all but ``steps`` are of one step."""

    steps: int
    prompts: int
    samples: int
    epochs: int
    max_new_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One real update: seconds a packed response token, of columns and of the update itself."""

    annotate: float
    update: float


async def measure_update(
    trainer: Trainer, algorithm: Algorithm, groups: Sequence[ScoredGroup], max_new_tokens: int
) -> Measured | None:
    """Seconds a token of one update on these groups; None where they hold no gradient.

    It really trains, so nothing may be sampled from this model afterwards.
    """
    rewarded = reward_groups(groups, algorithm.reward, algorithm.shaping, max_new_tokens)
    batch = pack(rewarded, overlong_filter=algorithm.overlong_filter)
    tokens = len(batch.mask_T)
    began = time.perf_counter()
    batch = await trainer.annotate(batch, algorithm.needs | {"old_logprobs_T"})
    annotated = time.perf_counter()
    if algorithm.kl_in_reward is not None:
        batch = batch.with_columns(kl_rewards_T=algorithm.kl_in_reward(batch))
    batch = batch.with_columns(**algorithm.advantage(batch))
    if not bool((batch.advantages_T != 0.0).any()):
        return None
    (sequences,) = split_updates(batch, updates=1, epochs=1, seed=0)
    ready = time.perf_counter()
    await trainer.update(algorithm.objective.weighted(batch.select(sequences)), algorithm.objective)
    return Measured(annotate=(annotated - began) / tokens, update=(time.perf_counter() - ready) / tokens)


def time_check(plan: Plan, drawn: Drawn, measured: Measured | None, draws_per_group: float) -> Check:
    """Seconds a step and for the whole run, at today's lengths. draws_per_group: drawn for each kept one."""
    answers = plan.prompts * plan.samples
    lengths = [rollout.length for scored in drawn.groups for rollout in scored.group.rollouts]
    length = sum(lengths) / len(lengths)
    drawn_answers = answers * draws_per_group
    sample = drawn_answers * length * drawn.seconds_per_token
    grade = drawn_answers * drawn.grade_seconds_per_answer
    parts = {"sample": sample, "grade": grade}
    if measured is not None:
        parts["update"] = answers * length * (measured.annotate + plan.epochs * measured.update)
    step = sum(parts.values())
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
    unknown = "" if measured is not None else "; an update was not measured: no drawn group had a gradient"
    says = (
        f"about {step:.1f} s a step ({told}), {_duration(step * plan.steps)} for {plan.steps} steps without "
        f"evaluations, while answers stay {length:.0f} tokens long; at the limit of {plan.max_new_tokens} "
        f"tokens {plan.max_new_tokens / max(1.0, length):.1f} times as long{unknown}"
    )
    numbers = {"step_seconds": step, "run_seconds": step * plan.steps, "parts": parts, "mean_length": length}
    return Check(name="time", level=Level.OK if measured else Level.NOTE, says=says, numbers=numbers)


def memory_check(trained: Measured | None) -> Check:
    """The most memory that sampling and one update took, against what there is."""
    device = device_peak_bytes()
    peak = peak_bytes() if device is None else device
    total = (
        int(hardware()["memory_bytes"])
        if device is None
        else torch.cuda.get_device_properties(0).total_memory
    )
    share = peak / total
    where = "main" if device is None else "accelerator"
    missing = "" if trained is not None else ", an update not included"
    level = Level.WARNING if share >= TIGHT else Level.OK
    return Check(
        name="memory",
        level=level,
        says=f"{peak / GIB:.2f} GiB of {where} memory at most, {share:.0%} of {total / GIB:.1f} GiB{missing}",
        advice="lower trainer.tokens_per_micro_batch, or set trainer.gradient_checkpointing = true"
        if level is Level.WARNING
        else "",
        numbers={"peak_bytes": peak, "total_bytes": total, "update_included": trained is not None},
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
