"""Assert tests: the program in one sandbox, its tests in another, plain values between them.

The program's process holds neither the tests' source nor the nonce, and cannot reach the process that does.
It is called, and sends back values; the tests compare them in their own process with Python's own operators.
A result counts when its line, and the line after the last test, come behind the nonce.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from trimtab.rewards.sandbox.child import Child, pump
from trimtab.rewards.sandbox.clock import TOGETHER, Allowance, Budget
from trimtab.rewards.sandbox.duty import Duty
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.programs import TICK, StoppedError
from trimtab.rewards.sandbox.report import SandboxError
from trimtab.rewards.sandbox.sentences import AssertTest, UnusableTestError

JUDGE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one test passed, and if not, why."""

    passed: bool
    why: str = ""


def run_asserts(
    place: Place,
    program: str,
    tests: Sequence[AssertTest],
    *,
    stop_at_first: bool = True,
    budget: Budget | None = None,
    stop: threading.Event | None = None,
) -> list[Verdict]:
    """A verdict for each test, in order; with ``stop_at_first`` none after the first that failed.

    The tests share one run of the program. When a test ends it (too slow, exit), the next gets a fresh one.
    Raises SandboxError when the sandbox fails, UnusableTestError when a test cannot be run here,
    StoppedError when ``stop`` is set.
    """
    verdicts: list[Verdict] = []
    budget = budget or Budget()
    while len(verdicts) < len(tests):
        rest = tests[len(verdicts) :]
        session = _Session(place, program, rest, stop_at_first)
        try:
            session.watch(budget, stop)
        except UnusableTestError as fault:
            raise UnusableTestError(f"test {len(verdicts) + len(session.verdicts) + 1} {fault}") from None
        if not session.verdicts and session.hopeless is None:
            raise SandboxError("the tests' side ended without a result")
        verdicts += session.verdicts
        if session.hopeless is not None:
            verdicts += [Verdict(False, session.hopeless)] * (len(tests) - len(verdicts))
        if stop_at_first and not verdicts[-1].passed:
            first = next(index for index, verdict in enumerate(verdicts) if not verdict.passed)
            return verdicts[: first + 1]
    return verdicts


class _Session:
    """One run of the program with as many tests as it lives for.

    ``hopeless``: why no further run can do better, None otherwise.
    """

    def __init__(
        self,
        place: Place,
        program: str,
        tests: Sequence[AssertTest],
        stop_at_first: bool,
    ) -> None:
        self.place = place
        self.verdicts: list[Verdict] = []
        self.hopeless: str | None = None
        self._count = len(tests)
        self._nonce = secrets.token_hex(16)
        self._loaded = False
        self._over = False
        self._position = len(b"ready\n")
        packages = list(place.interpreter.packages)
        self._program = {"program": program, "packages": packages}
        self._tests = {
            "tests": [(test.source, sorted(test.classes), sorted(test.modules)) for test in tests],
            "nonce": self._nonce,
            "packages": packages,
            "stop_at_first": stop_at_first,
        }

    def watch(self, budget: Budget, stop: threading.Event | None) -> None:
        with ExitStack() as stack:
            program, judge = self._start(stack)
            while not self._over and self.hopeless is None:
                with self._allowance(program, judge, budget) as allowance:
                    if not self._next(program, judge, allowance, stop):
                        return

    def _allowance(self, program: Child, judge: Child, budget: Budget) -> Allowance:
        limits, others = self.place.limits, (judge.process.pid,)
        seconds, wall = limits.seconds, limits.wall_seconds
        return Allowance(program.process.pid, seconds, wall, budget=budget, others=others)

    def _next(self, program: Child, judge: Child, allowance: Allowance, stop: threading.Event | None) -> bool:
        """Waits for the next line of the tests' side; whether there is more to wait for."""
        while True:
            ended = judge.ended
            pump([program, judge], TICK)
            if ended:
                judge.status.drain()
            if self._read(judge):
                return True
            if ended:
                self._ended_early(judge)
                return False
            if stop is not None and stop.is_set():
                raise StoppedError
            if (why := allowance.spent()) is not None:
                if self._loaded and why != TOGETHER:
                    self.verdicts.append(Verdict(False, why))
                else:
                    self.hopeless = why
                return False

    def _ended_early(self, judge: Child) -> None:
        """The tests' side is gone without a result. Values that fill its memory are the program's doing."""
        lines = judge.errors.text.decode(errors="replace").strip().splitlines()
        told = lines[-1] if lines else "nothing on stderr"
        if told.startswith("MemoryError"):
            self.verdicts.append(Verdict(False, "what the program returned filled the memory of the tests"))
            return
        raise SandboxError(
            f"the tests' side ended with exit code {judge.exit_code} and without a result: {told}"
        )

    def _start(self, stack: ExitStack) -> tuple[Child, Child]:
        """Starts both sides, joined by two pipes of which the trainer keeps no end."""
        with ExitStack() as ours:
            ends = [*os.pipe(), *os.pipe()]
            for end in ends:
                ours.callback(os.close, end)
            asked, ask, answered, answer = ends
            duty = Duty(
                module="serve",
                function="run",
                needs=("program", "wire"),
                arguments={**self._program, "read": asked, "write": answer},
            )
            limits = replace(self.place.limits, seconds=self.place.limits.seconds * self._count)
            place = replace(self.place, limits=limits)
            program = stack.enter_context(Child(duty, place, pass_fds=(asked, answer)))
            duty = Duty(
                module="judge",
                function="run",
                needs=("wire", "remote"),
                arguments={**self._tests, "read": answered, "write": ask},
                reports=True,
            )
            # Its time is the trainer's to watch: a limit that ends it would look like a fault of the sandbox.
            limits = replace(limits, seconds=JUDGE_SECONDS, memory_bytes=2 * limits.memory_bytes)
            place = replace(self.place, limits=limits)
            judge = stack.enter_context(Child(duty, place, pass_fds=(answered, ask)))
        program.await_ready()
        judge.await_ready()
        return program, judge

    def _read(self, judge: Child) -> bool:
        """Takes the lines that are complete; whether a test has ended, or the program was loaded."""
        news = False
        while (end := judge.status.text.find(b"\n", self._position)) >= 0:
            line = bytes(judge.status.text[self._position : end]).decode("ascii", errors="replace")
            self._position = end + 1
            nonce, _, said = line.partition(" ")
            if nonce == self._nonce:
                self._take(*said.partition(" ")[::2])
                news = True
        return news

    def _take(self, outcome: str, said: str) -> None:
        _, _, why = said.partition(" ")
        match outcome:
            case "loaded":
                self._loaded = True
            case "broken":
                self.hopeless = f"the program does not run: {said}"
            case "passed":
                self.verdicts.append(Verdict(True))
            case "failed" | "gone":
                self.verdicts.append(Verdict(False, why))
            case "unusable":
                raise UnusableTestError(f"cannot be run: {why}")
            case _:
                self._over = outcome == "end"
