"""Code tests: runs the program of a response in the sandbox, on inputs and against asserts.

The program is the last fenced block (```` ```python ```` or without a language) after the thinking, and it
must be closed. ``prompt.answer`` is a list of tests, or JSON for one:

    [{"stdin": "2 3\\n", "stdout": "5\\n"}, {"assert": "assert add(2, 3) == 5"}]

An input test runs the program anew, with ``stdin`` as its input; it passes when the program ends with exit
code 0 and what it printed is ``stdout``, blanks at line ends and empty lines at the end apart. The expected
output never enters the sandbox. An assert test calls the program's functions from another sandbox
(``sandbox/asserts.py``), so the program sees the arguments of the calls and nothing else of the test.

A program that is too slow, too large, or ends early is wrong. A sandbox that fails is raised, never graded.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError
from trimtab.rewards.blocks import last_program, prefilled
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.repeats import Repeats
from trimtab.rewards.sandbox import (
    AssertTest,
    Budget,
    Limits,
    Place,
    UnusableTestError,
    Verdict,
    open_place,
    probe,
    read_assert,
    run_asserts,
    run_program,
)
from trimtab.types import Grade, GradeState, Prompt, Rollout

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class InputTest:
    """What goes in, and what must come out."""

    stdin: bytes
    stdout: bytes


Test = InputTest | AssertTest


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTests:
    """Grades right when the program passes every test, else wrong, with the first test that failed.

    partial: the value is the share of tests that passed, and all are run; else the first failure ends it.
    seconds_per_test: processor time for one test. A program that sleeps is ended after three times as much;
        waiting for a processor does not count, so that a busy machine makes no program wrong.
    seconds: for all tests of one answer together, asleep or awake; starting the sandbox, and waiting for a
        processor, do not count.
    megabytes: memory of the program.
    sandbox: ``auto`` takes the strongest that works, ``bubblewrap`` before ``landlock``.
    unsafe: where no sandbox works, run programs with all rights of your user instead of refusing.
    packages: folders of third-party packages that programs may import besides the standard library.
    remembered: grades that are kept, so that the same program is run once on the same tests, however often a
        group holds it; 0 runs every program anew.

    Answers are graded side by side, at most one for each processor core.
    """

    limits_itself: ClassVar[Literal[True]] = True
    partial: bool = False
    seconds_per_test: float = 4.0
    seconds: float = 20.0
    megabytes: int = 1024
    sandbox: Literal["auto", "bubblewrap", "landlock"] = "auto"
    unsafe: bool = False
    packages: tuple[str, ...] = ()
    remembered: int = 4096
    name: str = "code"
    _repeats: Repeats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds_per_test <= self.seconds:
            raise SettingError(
                f"grader {self.name!r}: seconds_per_test must be > 0 and at most seconds = {self.seconds:g}, "
                f"got {self.seconds_per_test:g}"
            )
        if self.megabytes < 64:
            raise SettingError(
                f"grader {self.name!r}: megabytes must be at least 64 for Python itself, got {self.megabytes}"
            )
        if self.remembered < 0:
            raise SettingError(f"grader {self.name!r}: remembered must be >= 0, got {self.remembered}")
        object.__setattr__(self, "_repeats", Repeats(self.remembered))
        for folder in self.packages:
            if not os.path.isdir(folder):
                raise SettingError(f"grader {self.name!r}: packages names {folder!r}, which is no folder")

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        try:
            tests = read_tests(prompt.answer)
        except UnusableTestError as fault:
            return Grade(
                state=GradeState.NOT_GRADABLE, value=None, detail=f"the tests cannot be used: {fault}"
            )
        program, fault = last_program(prefilled(prompt) + rollout.text)
        if program is None:
            return Grade.of(0.0, detail=fault)
        return await self._repeats.grade((program, str(prompt.answer)), lambda: self._run(program, tests))

    async def _run(self, program: str, tests: Sequence[Test]) -> Grade:
        stop = threading.Event()
        running = asyncio.get_running_loop().run_in_executor(_threads(), self._graded, program, tests, stop)
        try:
            return await running
        except asyncio.CancelledError:
            stop.set()
            raise

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """The prompts whose tests cannot tell a right program from a wrong one.

        Raises SettingError, before the run, when programs cannot be confined here.
        """
        self.place()
        return [
            Unverifiable(prompt.id, _short(prompt.answer), reason)
            for prompt in prompts
            if (reason := _fault_of(prompt.answer)) is not None
        ]

    def place(self) -> Place:
        """Where programs will run. Raises SettingError when there is no such place."""
        limits = Limits(seconds=self.seconds_per_test, memory_bytes=self.megabytes * MIB)
        return open_place(limits, tier=self.sandbox, unsafe=self.unsafe, packages=self.packages)

    def describe(self) -> str:
        """One sentence on how programs are confined, for the start of a run."""
        return str(probe(self.place().tier))

    def _graded(self, program: str, tests: Sequence[Test], stop: threading.Event) -> Grade:
        budget = Budget(self.seconds)
        place = self.place()
        verdicts: list[Verdict] = []
        try:
            for verdict in self._verdicts(place, program, tests, budget, stop):
                verdicts.append(verdict)
                if not (verdict.passed or self.partial):
                    break
        except UnusableTestError as fault:
            return Grade(
                state=GradeState.NOT_GRADABLE, value=None, detail=f"the tests cannot be used: {fault}"
            )
        passed = sum(verdict.passed for verdict in verdicts)
        value = passed / len(tests) if self.partial else float(passed == len(tests))
        failed = next((k for k, verdict in enumerate(verdicts) if not verdict.passed), None)
        if failed is None:
            return Grade.of(value, detail=f"passed all {len(tests)} tests")
        count = f"passed {passed} of {len(tests)} tests; " if self.partial else ""
        detail = f"{count}test {failed + 1} of {len(tests)}: {verdicts[failed].why}"
        return Grade.of(value, detail=detail)

    def _verdicts(
        self, place: Place, program: str, tests: Sequence[Test], budget: Budget, stop: threading.Event
    ) -> Iterator[Verdict]:
        """One verdict a test, in order. Asserts that follow one another share a run of the program."""
        for kind, group in itertools.groupby(tests, type):
            if kind is InputTest:
                for test in group:
                    assert isinstance(test, InputTest)
                    yield self._tried(place, program, test, budget, stop)
                continue
            asserts = [test for test in group if isinstance(test, AssertTest)]
            found = run_asserts(
                place,
                program,
                asserts,
                stop_at_first=not self.partial,
                budget=budget,
                stop=stop,
            )
            for test, verdict in zip(asserts, found, strict=False):
                why = verdict.why or "does not hold"
                yield verdict if verdict.passed else Verdict(False, f"{_short(test.source)}: {why}")

    def _tried(
        self, place: Place, program: str, test: InputTest, budget: Budget, stop: threading.Event
    ) -> Verdict:
        if budget.spent is not None:
            return Verdict(False, budget.spent)
        ended = run_program(place, program, test.stdin, budget=budget, stop=stop)
        if not ended.clean:
            return Verdict(False, str(ended))
        if normalised(ended.output) == normalised(test.stdout):
            return Verdict(True)
        return Verdict(False, f"printed {_short(ended.output)} instead of {_short(test.stdout)}")


@lru_cache
def _threads() -> ThreadPoolExecutor:
    """One thread a core; each waits for the processes of one answer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(cores, thread_name_prefix="trimtab-code")


def read_tests(answer: Any) -> tuple[Test, ...]:
    """The tests that a gold answer stands for. Raises UnusableTestError, which says what is wrong."""
    if isinstance(answer, str):
        return _read_json(answer)
    if not isinstance(answer, Sequence) or isinstance(answer, bytes) or not answer:
        raise UnusableTestError("they are no list of tests, or an empty one")
    tests = tuple(_read_test(row, index + 1) for index, row in enumerate(answer))
    if all(isinstance(test, InputTest) and not test.stdout.strip() for test in tests):
        raise UnusableTestError("no test expects any output, so an empty program would pass")
    return tests


@lru_cache(maxsize=1024)
def _read_json(answer: str) -> tuple[Test, ...]:
    try:
        rows = json.loads(answer)
    except (ValueError, RecursionError) as fault:
        raise UnusableTestError(f"they are no JSON: {fault}") from None
    if isinstance(rows, str):
        raise UnusableTestError("they are JSON text, not a list")
    return read_tests(rows)


def _read_test(row: Any, number: int) -> Test:
    keys = set(row) if isinstance(row, Mapping) else None
    if keys == {"stdin", "stdout"} and isinstance(row["stdin"], str) and isinstance(row["stdout"], str):
        return InputTest(_encoded(row["stdin"]), _encoded(row["stdout"]))
    if keys == {"assert"} and isinstance(row["assert"], str):
        try:
            return read_assert(row["assert"])
        except UnusableTestError as fault:
            raise UnusableTestError(f"test {number} {fault}") from None
    raise UnusableTestError(
        f'test {number} must be {{"stdin": text, "stdout": text}} or {{"assert": Python}}, got {_short(row)}'
    )


def normalised(output: bytes) -> bytes:
    """Without blanks at line ends and empty lines at the end: all that is forgiven."""
    return b"\n".join(line.rstrip() for line in output.split(b"\n")).rstrip(b"\n")


def _fault_of(answer: Any) -> str | None:
    try:
        read_tests(answer)
    except UnusableTestError as fault:
        return str(fault)
    return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
