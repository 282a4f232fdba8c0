"""Faults of the update: what is optimised, with what step, and by whom."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from functools import partial

from benchmarks.doctor import trainers
from benchmarks.doctor.engines import EndMasked, Retokenizing, by_characters, by_place
from benchmarks.doctor.faults.ways import FAST, RECOMPUTE, hidden, way, ways
from benchmarks.doctor.scene import Fault, Injection
from benchmarks.doctor.toys import MERGED

TRAINING: tuple[Fault, ...] = (
    Fault(
        cause="old-logprobs-recomputed",
        what="The ratio's denominator is taken anew before every update instead of once a step.",
        variants=ways(
            way("grpo", "grpo", Injection(trainer=trainers.OldFromNow), trainer=FAST),
            way("dapo", "dapo", Injection(trainer=trainers.OldFromNow), trainer={"updates_per_step": 8}),
        ),
    ),
    Fault(
        cause="eos-masked",
        what="The end token is masked out of the loss, so nobody learns to stop.",
        variants=ways(
            way("sampler-mask", "grpo", Injection(engine=EndMasked), trainer=FAST),
            way("trainer-mask", "dapo", Injection(trainer=trainers.EndLeftOut), trainer=FAST),
        ),
    ),
    Fault(
        cause="temperature-mismatch",
        what="Sampled at one temperature, trained at another.",
        variants=ways(
            way("cold", "grpo", Injection(trained_at=1.0), sampling={"temperature": 0.7}),
            way("hot", "grpo", Injection(trained_at=1.0), sampling={"temperature": 1.3}, trainer=RECOMPUTE),
        ),
    ),
    Fault(
        cause="retokenized",
        what="Answers travel as text and are tokenised again before training.",
        variants=ways(
            way(
                "by-place",
                "grpo",
                Injection(engine=partial(Retokenizing, align=by_place)),
                model={"path": MERGED},
                trainer=RECOMPUTE,
            ),
            way(
                "by-characters",
                "grpo",
                Injection(engine=partial(Retokenizing, align=by_characters)),
                model={"path": MERGED},
            ),
        ),
    ),
    Fault(
        cause="micro-batch-mean",
        what="Micro-batches are averaged one by one, and the averages averaged.",
        variants=ways(
            way(
                "dapo",
                "dapo",
                Injection(trainer=trainers.MeanOfMeans),
                trainer={"tokens_per_micro_batch": 512},
            ),
            way(
                "cispo",
                "cispo",
                Injection(trainer=trainers.MeanOfMeans),
                trainer={"tokens_per_micro_batch": 384},
            ),
            way(
                "grpo",
                "grpo",
                Injection(trainer=trainers.MeanOfMeans),
                trainer={"tokens_per_micro_batch": 768},
            ),
        ),
    ),
    Fault(
        cause="learning-rate-too-high",
        what="Thirty times the learning rate that works.",
        variants=ways(
            way("grpo", "grpo", trainer={"learning_rate": 9e-3}),
            way("dapo", "dapo", trainer={"learning_rate": 9e-3}),
        ),
    ),
    Fault(
        cause="clip-removed",
        what="Many updates a step, and no trust region.",
        variants=ways(
            way(
                "setting",
                {"name": "grpo", "kl_coef": 0.0, "surrogate": "unclipped"},
                trainer={"epochs": 3},
            ),
            way(
                "code",
                {"name": "grpo", "kl_coef": 0.0},
                Injection(algorithm=trainers.without_clip),
                trainer={"epochs": 3},
            ),
        ),
    ),
    Fault(
        cause="wrong-kl-sign",
        what="The KL to the reference is earned instead of paid.",
        variants=ways(
            way("term", {"name": "grpo", "kl_coef": 0.3}, Injection(algorithm=trainers.flip_kl)),
            way("coefficient", {"name": "grpo", "kl_coef": 0.3}, Injection(algorithm=trainers.negative_kl)),
            way(
                "reward",
                {"name": "ppo", "kl_coef": 0.3},
                Injection(algorithm=trainers.flip_kl),
                trainer={"critic_learning_rate": 1e-3, "critic_warmup_updates": 8},
            ),
        ),
    ),
    Fault(
        cause="gspo-clip-too-wide",
        what="GRPO's clip range on GSPO's sequence ratio: it never acts.",
        variants=ways(
            way("both", {"name": "gspo", "clip_low": 0.2, "clip_high": 0.2, "allow": ["wide-sequence-clip"]}),
            way(
                "fast",
                {"name": "gspo", "clip_low": 0.2, "clip_high": 0.28, "allow": ["wide-sequence-clip"]},
                trainer={"updates_per_step": 8},
            ),
        ),
    ),
    Fault(
        cause="sapo-temperature-too-large",
        what="SAPO with tau 50: the gate shuts at the smallest step.",
        variants=hidden(
            way(
                "both",
                {"name": "sapo", "tau_pos": 50.0, "tau_neg": 50.0},
                trainer={"epochs": 3},
            ),
            way(
                "epochs",
                {"name": "sapo", "tau_pos": 50.0, "tau_neg": 55.0},
                trainer={"updates_per_step": 2, "epochs": 6},
            ),
        ),
    ),
    Fault(
        cause="critic-frozen",
        what="The critic never learns.",
        variants=ways(
            way(
                "rate",
                {"name": "ppo"},
                trainer={"critic_learning_rate": 0.0, "critic_detached": True, "critic_warmup_updates": 8},
            ),
            way(
                "no-gradient",
                {"name": "ppo"},
                Injection(trainer=trainers.frozen_critic),
                trainer={"critic_learning_rate": 1e-3, "critic_warmup_updates": 0},
            ),
        ),
    ),
)
