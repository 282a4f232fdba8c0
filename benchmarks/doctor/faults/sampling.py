"""Faults of sampling: old weights, too few or too similar answers, wrong prompts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from functools import partial

from benchmarks.doctor import prompts
from benchmarks.doctor.engines import Late
from benchmarks.doctor.faults.ways import FAST, way, ways
from benchmarks.doctor.scene import Fault, Injection
from benchmarks.doctor.toys import MERGED

SAMPLING: tuple[Fault, ...] = (
    Fault(
        cause="stale-sampler",
        what="The sampler's weights are several steps old.",
        variants=ways(
            way("claims", "grpo", Injection(engine=partial(Late, lag=4, claims=True)), trainer=FAST),
            way("honest", "grpo", Injection(engine=partial(Late, lag=6, claims=False)), trainer=FAST),
        ),
    ),
    Fault(
        cause="weights-never-synced",
        what="The sampler keeps the weights it began with.",
        variants=ways(
            way("grpo", "grpo", Injection(engine=partial(Late, lag=None, claims=True)), trainer=FAST),
            way("dapo", "dapo", Injection(engine=partial(Late, lag=None, claims=True)), trainer=FAST),
            way("honest", "gspo", Injection(engine=partial(Late, lag=None, claims=False)), trainer=FAST),
        ),
    ),
    Fault(
        cause="group-too-small",
        what="Two answers to a prompt.",
        variants=ways(
            way("grpo", "grpo", sampling={"samples_per_prompt": 2, "prompts_per_step": 32}),
            way("gspo", "gspo", sampling={"samples_per_prompt": 2, "prompts_per_step": 32}),
        ),
    ),
    Fault(
        cause="temperature-too-low",
        what="Sampled at temperature 0.2: the answers to a prompt are nearly all the same.",
        variants=ways(
            way("grpo", "grpo", sampling={"temperature": 0.2}),
            way("gspo", "gspo", sampling={"temperature": 0.2}),
        ),
    ),
    Fault(
        cause="max-length-too-short",
        what="Answers are cut off long before they could end.",
        variants=ways(
            way("grpo", "grpo", sampling={"max_new_tokens": 12}),
            way("sapo", "sapo", sampling={"max_new_tokens": 18}),
        ),
    ),
    Fault(
        cause="double-bos",
        what="Two start tokens before every prompt.",
        variants=ways(
            way("grpo", "grpo", Injection(prompts=prompts.second_start), model={"path": MERGED}),
            way("dapo", "dapo", Injection(prompts=prompts.second_start), model={"path": MERGED}),
        ),
    ),
)
