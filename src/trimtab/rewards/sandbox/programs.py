"""Run one program on one input, and say what it printed and how it ended."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from trimtab.rewards.sandbox.child import Child, pump
from trimtab.rewards.sandbox.clock import Allowance, Budget
from trimtab.rewards.sandbox.duty import Duty
from trimtab.rewards.sandbox.place import Place

TICK = 0.1
"""Seconds between two looks at the clocks."""


class StoppedError(Exception):
    """The caller asked to stop; everything that was started is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    ``cut`` says why it was ended from outside (time, output), None when it ended by itself; ``exit_code``
    as a shell says it, None when it was cut. ``complaint`` is the last line of stderr.
    """

    output: bytes
    complaint: str
    exit_code: int | None
    cut: str | None
    seconds: float

    @property
    def clean(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        if self.cut is not None:
            return self.cut
        return self.complaint or f"exit code {self.exit_code}"


def run_program(
    place: Place,
    program: str,
    stdin: bytes = b"",
    *,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
) -> Ended:
    """Runs ``program`` as ``python program.py < stdin`` would.

    budget: for callers with a limit over several programs.
    Raises SandboxError when the sandbox fails, StoppedError when ``stop`` is set.
    """
    arguments = {"program": program, "packages": list(place.interpreter.packages)}
    duty = Duty(module="program", function="run", arguments=arguments)
    begun = time.monotonic()
    with Child(duty, place, stdin=stdin, listen=True) as child:
        assert child.output is not None
        child.await_ready()
        cut = None
        limits, pid = place.limits, child.process.pid
        with Allowance(pid, limits.seconds, limits.wall_seconds, budget=budget) as allowance:
            while cut is None and not child.ended:
                pump([child], TICK)
                if child.output.overflown:
                    cut = f"printed more than {limits.output_bytes} bytes"
                elif stop is not None and stop.is_set():
                    raise StoppedError
                else:
                    cut = allowance.spent()
        if cut is None:
            child.output.drain()
            child.errors.drain()
            if child.output.overflown:
                cut = f"printed more than {place.limits.output_bytes} bytes"
        lines = child.errors.text.decode(errors="replace").strip().splitlines()
        return Ended(
            output=bytes(child.output.text),
            complaint=lines[-1].strip()[:200] if lines else "",
            exit_code=child.exit_code if cut is None else None,
            cut=cut,
            seconds=time.monotonic() - begun,
        )
