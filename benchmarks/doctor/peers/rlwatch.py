"""rlwatch 0.5.1: its monitor, one ``log_step`` a step, with every argument that it takes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.doctor.peers.alarms import Alarm, advantages_of, rows_of, seen, soft, steps_of

from trimtab.record.reader import RunReader

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "entropy": ("policy/entropy",),
    "kl_divergence": ("kl/reference_k3",),
    "reward_mean": ("reward/mean", "reward/outcome"),
    "reward_std": ("reward/std",),
    "loss": ("loss/total",),
    "learning_rate": ("optimizer/learning_rate",),
    "grad_norm": ("optimizer/grad_norm",),
}


def arguments(reader: RunReader, step: int) -> dict[str, Any]:
    """What ``log_step`` is given for a step."""
    given: dict[str, Any] = {name: seen(reader, step, *keys) for name, keys in ARGUMENTS.items()}
    if not soft(reader):
        given["clip_fraction"] = seen(reader, step, "clip/removed")
    rows = rows_of(reader, step)
    rewards = [row.reward for row in rows if row.reward is not None]
    advantages = advantages_of(rows)
    given["rewards"] = np.array(rewards) if rewards else None
    given["advantage_std"] = float(advantages.std()) if len(advantages) else None
    return given


def rlwatch_alarms(reader: RunReader, folder: Path) -> list[Alarm]:
    """Every alert that it would have sent, repeats within its cool-down left out as it does itself."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        sent = _sent(reader, folder)
    return [
        Alarm(
            alert.detector,
            "critical" if alert.severity == "critical" else "warning",
            f"{alert.message} {alert.recommendation}",
        )
        for alert in sent
    ]


def _sent(reader: RunReader, folder: Path) -> list[Any]:
    from rlwatch.config import RLWatchConfig
    from rlwatch.core import RLWatch

    with contextlib.chdir(folder):  # it keeps its database below the working directory
        monitor = RLWatch(RLWatchConfig(run_id=reader.name, framework="manual"))
        monitor.start()
        steps = [(step, arguments(reader, step)) for step in steps_of(reader)]
        alerts = [alert for step, given in steps for alert in monitor.log_step(step, **given)]
        monitor.stop()
    return alerts
