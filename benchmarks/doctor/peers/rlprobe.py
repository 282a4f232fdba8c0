"""rlprobe 0.1: its own recorder, scalars and samples, then its doctor."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.doctor.peers.alarms import (
    Alarm,
    Severity,
    advantages_of,
    parts_of,
    rows_of,
    seen,
    soft,
    steps_of,
)

from trimtab.record.reader import RunReader

FIELDS: dict[str, tuple[str, ...]] = {
    "reward_mean": ("reward/mean", "reward/outcome"),
    "reward_std": ("reward/std",),
    "kl_mean": ("kl/reference_k3",),
    "entropy_mean": ("policy/entropy",),
    "ratio_mean": ("ratio/token",),
    "ratio_p95": ("ratio/token_p99",),
    "adv_mean": ("advantage/token",),
    "adv_zero_frac": ("advantage/silent",),
    "group_reward_std_mean": ("groups/reward_std",),
    "zero_variance_group_frac": ("groups/uniform",),
    "value_loss": ("loss/value",),
    "value_explained_variance": ("value/explained_variance",),
    "value_clip_fraction": ("value/clipped",),
    "loss": ("loss/total",),
    "lr": ("optimizer/learning_rate",),
    "grad_norm": ("optimizer/grad_norm",),
    "completion_len_mean": ("length/mean",),
    "completion_len_p95": ("length/p90",),
    "completion_len_max": ("length/max",),
    "truncation_rate": ("length/truncated",),
    "max_len_hit_frac": ("length/truncated",),
    "step_time_s": ("seconds/step",),
    "generation_time_s": ("seconds/sample",),
    "optimization_time_s": ("seconds/update",),
}
SEVERITIES: dict[str, Severity] = {"critical": "critical", "warn": "warning", "info": "note"}
SAMPLES = 32
"""Rollouts of a step that are handed over with their texts."""


def step_fields(reader: RunReader, step: int) -> dict[str, Any]:
    """The scalars of a step under the package's names."""
    fields: dict[str, Any] = {name: seen(reader, step, *keys) for name, keys in FIELDS.items()}
    if not soft(reader):
        fields["clip_fraction"] = seen(reader, step, "clip/removed")
    rows = rows_of(reader, step)
    rewards = [row.reward for row in rows if row.reward is not None]
    advantages = advantages_of(rows)
    fields |= {"reward_min": min(rewards), "reward_max": max(rewards)} if rewards else {}
    fields |= {"adv_std": float(advantages.std())} if len(advantages) else {}
    truncated = fields["truncation_rate"]
    fields |= {"eos_rate": 1.0 - truncated} if truncated is not None else {}
    fields = {name: value for name, value in fields.items() if value is not None}
    return {**fields, "reward_components": parts_of(reader, step), "nan_count": 0, "inf_count": 0}


def sample_fields(reader: RunReader, step: int) -> list[dict[str, Any]]:
    """Rollouts of a step with their texts."""
    return [
        {
            "sample_id": f"{row.group}/{row.index}",
            "group_id": row.group,
            "prompt_id": row.prompt_id,
            "prompt_text": row.prompt,
            "completion_text": row.text,
            "reward_total": row.reward,
            "reward_components": dict(row.parts),
            "advantage": row.advantage,
            "completion_len": row.length,
            "truncated": row.finish != "stop",
        }
        for row in rows_of(reader, step)[:SAMPLES]
    ]


def rlprobe_alarms(reader: RunReader, folder: Path) -> list[Alarm]:
    """All its findings."""
    from rlprobe.doctor import diagnose
    from rlprobe.recorder import Recorder

    run = reader.run["run"]
    recorder = Recorder(
        folder / "run",
        algorithm=run["algorithm"]["name"],
        trainer_config={"learning_rate": run["trainer"]["learning_rate"]},
        capture_env=False,
        install_handlers=False,
    )
    for step in steps_of(reader):
        recorder.log_step(step, **step_fields(reader, step))
        recorder.log_samples(step, sample_fields(reader, step), select=False)
    recorder.close()
    return [
        Alarm(
            finding.signature_id,
            SEVERITIES[finding.severity],
            " ".join([finding.explanation, *finding.suggested_actions]),
        )
        for finding in diagnose(folder / "run")
    ]
