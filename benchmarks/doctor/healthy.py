"""Healthy runs: every algorithm as it comes, and runs that look odd and are well."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from benchmarks.doctor.faults.ways import ANSWER, graders
from benchmarks.doctor.scene import Scene, Variant, scenes_of
from benchmarks.doctor.toys import MERGED, TERSE

CRITIC = {"critic_learning_rate": 1e-3, "critic_warmup_updates": 8}


def well(name: str, algorithm: Any, *, tuning: bool = False, **settings: Any) -> Variant:
    """A kind of healthy run: seed 2 is scored, and seed 1 tunes rules where asked."""
    return Variant(
        name=name,
        settings={"algorithm": algorithm, **settings},
        tuning=(1,) if tuning else (),
        scored=(2,),
    )


PLAIN = (
    well("grpo", "grpo", tuning=True),
    well("dapo", {"name": "dapo", "overlong_buffer": 8}, tuning=True),
    well("gspo", "gspo", tuning=True),
    well("gspo-token", "gspo_token"),
    well("sapo", "sapo", tuning=True),
    well("ppo", "ppo", tuning=True, trainer=CRITIC),
    well("dr-grpo", "dr_grpo"),
    well("rloo", "rloo", tuning=True, trainer={"updates_per_step": 1}),
    well("cispo", "cispo"),
    well("sign-decoupled", "sign_decoupled"),
)

ODD = (
    well("one-update", "grpo", tuning=True, trainer={"updates_per_step": 1}),
    well("one-update-gspo", "gspo", trainer={"updates_per_step": 1}),
    well("one-update-sapo", "sapo", trainer={"updates_per_step": 1}),
    well("low-entropy-start", "grpo", tuning=True, model={"path": TERSE}),
    well("groups-of-16", "grpo", sampling={"samples_per_prompt": 16, "prompts_per_step": 4}),
    well("long-answers", "grpo", tuning=True, sampling={"max_new_tokens": 120}),
    well(
        "gspo-clips-many",
        "gspo",
        tuning=True,
        trainer={"updates_per_step": 8, "learning_rate": 2e-4},
    ),
    well("merged-tokens", "grpo", tuning=True, model={"path": MERGED}),
    well("no-kl", {"name": "grpo", "kl_coef": 0.0}),
    well("entropy-bonus", {"name": "grpo", "terms": {"entropy": {"coef": 0.01}}}),
    well("overlong-filter", {"name": "grpo", "overlong_filter": True}),
    well("two-epochs", "grpo", trainer={"epochs": 2, "updates_per_step": 2}),
    well("recomputed-before", "grpo", trainer={"old_logprobs": "recompute"}),
    well("warm", "grpo", sampling={"temperature": 1.2}),
    well("cool", "grpo", sampling={"temperature": 0.8}),
    well("few-prompts", "grpo", data={"train_prompts": 64}),
    well(
        "format-alive",
        "grpo",
        reward=graders(ANSWER, {"name": "format", "weight": 0.2, "options": {"regex": ".*\n#-?\\d+"}}),
    ),
    well("critic-of-its-own", "ppo", trainer={**CRITIC, "critic": "model", "critic_learning_rate": 3e-4}),
    well("sapo-sharper", {"name": "sapo", "tau_pos": 3.0, "tau_neg": 3.5}),
    well("small-micro-batches", "dapo", trainer={"tokens_per_micro_batch": 512}),
)

HEALTHY: tuple[Variant, ...] = (*PLAIN, *ODD)


def healthy_scenes() -> list[Scene]:
    """Every healthy run of the benchmark."""
    return scenes_of(None, HEALTHY)
