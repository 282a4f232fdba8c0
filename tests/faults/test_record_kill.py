"""A writer killed at random moments leaves a directory that reads, resumes and adds up."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab.record.reader import RunReader, State

WRITER = """
import sys
from pathlib import Path
from tests.scenes import everything, rewarded, scored
from trimtab.metrics import Sum
from trimtab.record.rollouts import GroupEntry
from trimtab.record.writer import RunRecord

path, start = Path(sys.argv[1]), int(sys.argv[2])
make = dict(run={}, seeds={})
record = RunRecord.resume(path, step=start, **make) if start else RunRecord.create(path, **make)
metrics, group = everything(), scored("p", [1, 0], [30, 40])
entries = [GroupEntry(scored=group, kept=True, reason="kept", rewarded=rewarded(group))] * 8
print("ready", flush=True)
for step in range(start + 1, 100000):
    record.rollouts(step, entries)
    record.step(step, metrics | {"flow/draws": Sum(float(step))})
"""


@pytest.mark.slow
def test_killed_again_and_again(tmp_path):
    path, rng, done = tmp_path / "run", random.Random(0), 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(done)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"src{os.pathsep}."},
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert RunReader(path).status().state is State.RUNNING
        time.sleep(0.3 + 0.3 * rng.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        reader = RunReader(path)
        assert reader.status().state is State.KILLED
        assert reader.damage == []
        last = reader.history.last_step
        assert last is not None
        assert last > done
        draws = reader.history.series("flow/draws")
        assert draws.steps.tolist() == list(range(1, last + 1))
        assert draws.values.tolist() == [float(step) for step in draws.steps]
        assert reader.distribution_steps()[:last] == draws.steps.tolist(), "no step lacks its histograms"
        for step in reader.rollout_steps():
            assert len(reader.rollouts(step)) == 16
        assert reader.rollout_steps()[:last] == draws.steps.tolist()
        done = last - 1  # resume from before the last step, as from an older checkpoint
