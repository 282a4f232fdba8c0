"""A process that writes a run as training does, a line of JSON on its input at a time, until it is killed.

{"step": 3, "metrics": {"reward/mean": 0.5}}   a step;   {"event": "warned", "message": "x"}   an event
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from trimtab.metrics import Bins, Histogram, Mean, Metric
from trimtab.record.writer import RunRecord

BINS = Bins("linear", 0.0, 1.0, 20)


def answer(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main() -> None:
    settings = {"run": {"name": "live", "steps": 50}, "algorithm": {"name": "dapo"}}
    with RunRecord.create(Path(sys.argv[1]), run=settings, seeds={"run": 0}) as record:
        answer("ready")
        for line in sys.stdin:
            told = json.loads(line)
            if "event" in told:
                record.event(**told)
            else:
                metrics: dict[str, Metric] = {
                    key: Mean.of(np.array([x])) for key, x in told["metrics"].items()
                }
                metrics["gate/positive"] = Histogram.of(np.array([0.5, 0.9]), BINS)
                record.step(told["step"], metrics)
            answer("written")


if __name__ == "__main__":
    main()
