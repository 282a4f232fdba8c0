"""rldoctor 0.2: a ``trainer_state.json`` with TRL's names, and verl's where TRL has none."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.doctor.peers.alarms import Alarm, Severity, parts_of, seen, soft, steps_of

from trimtab.record.reader import RunReader

NAMES: dict[str, tuple[str, ...]] = {
    "reward": ("reward/mean", "reward/outcome"),
    "reward_std": ("reward/std",),
    "frac_reward_zero_std": ("groups/uniform",),
    "entropy": ("policy/entropy",),
    "kl": ("kl/reference_k3",),
    "grad_norm": ("optimizer/grad_norm",),
    "learning_rate": ("optimizer/learning_rate",),
    "loss": ("loss/total",),
    "completions/mean_length": ("length/mean",),
    "completions/min_length": ("length/min",),
    "completions/max_length": ("length/max",),
    "completions/clipped_ratio": ("length/truncated",),
    "critic/vf_explained_var": ("value/explained_variance",),
    "step_time": ("seconds/step",),
}
CLIPS: dict[str, tuple[str, ...]] = {
    "clip_ratio/region_mean": ("clip/removed",),
    "clip_ratio/low_mean": ("clip/low",),
    "clip_ratio/high_mean": ("clip/high",),
}
SEVERITIES: dict[str, Severity] = {"CRITICAL": "critical", "WARNING": "warning", "INFO": "note"}


def log_history(reader: RunReader) -> list[dict[str, Any]]:
    """One row a step, and one for each evaluation, as a Trainer logs them."""
    names = NAMES if soft(reader) else {**NAMES, **CLIPS}
    rows: list[dict[str, Any]] = []
    for step in steps_of(reader):
        values = {name: seen(reader, step, *keys) for name, keys in names.items()}
        values |= {f"rewards/{part}/mean": value for part, value in parts_of(reader, step).items()}
        rows.append({"step": step + 1} | {name: v for name, v in values.items() if v is not None})
    scores = reader.evaluations.series("evaluation/pass@1")
    rows += [
        {"step": int(step), "eval_reward": float(value)}
        for step, value in zip(scores.steps, scores.values, strict=True)
    ]
    return sorted(rows, key=lambda row: row["step"])


def trainer_state(reader: RunReader) -> dict[str, Any]:
    """The whole file: history, and the settings that the package looks for."""
    run = reader.run["run"]
    algorithm = run["algorithm"]
    return {
        "log_history": log_history(reader),
        "algorithm": algorithm["name"],
        "num_generations": run["sampling"]["samples_per_prompt"],
        "max_completion_length": run["sampling"]["max_new_tokens"],
        "learning_rate": run["trainer"]["learning_rate"],
        "max_steps": run["run"]["steps"],
        **({"beta": algorithm["kl_coef"]} if "kl_coef" in algorithm else {}),
    }


def rldoctor_alarms(reader: RunReader, folder: Path) -> list[Alarm]:
    """Everything above its OK."""
    from rl_doctor import diagnose, load_run

    path = folder / "trainer_state.json"
    path.write_text(json.dumps(trainer_state(reader)), encoding="utf-8")
    found = diagnose(load_run(str(path)))
    return [
        Alarm(
            finding.detector,
            SEVERITIES[finding.severity.name],
            " ".join([finding.title, finding.summary, *finding.evidence, *finding.prescription]),
        )
        for finding in found.findings
        if finding.severity.name in SEVERITIES
    ]
