"""Asking one grader about an answer: its limit, its turn, faults that pass, and what a fault becomes.

A fault of a grader is never a grade of 0. What it becomes:
    no grade within the limit, or a time-out of its own    timeout
    a fault named in ``retry.on``, ``retry.times`` times over  asked again, after a pause; then as the next
    any other fault                                        grader_failed, asked once: it would only recur
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
import traceback
import types
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from trimtab.errors import SettingError
from trimtab.rewards.grader import Grader, GroupGrading, SelfLimiting
from trimtab.rewards.workers import WorkerCrashedError, WorkerFaultError, WorkerTimeoutError
from trimtab.types import Grade, GradeState, Prompt, Rollout

T = TypeVar("T")

LONGEST_PAUSE = 30.0
TRANSIENT = ("ConnectionError", "TimeoutError", "Timeout", "TransportError", "APIConnectionError")
"""The built-in ones, and the bases of those of requests, httpx, aiohttp and the clients made with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """The ``[reward.retry]`` table: which faults of graders pass, so that asking again makes sense.

    on: names of exceptions, bare (``ConnectionError``) or with their module; subclasses count. A fault of any
        other class is taken to recur and is not retried.
    times: attempts after the first one.
    pause: seconds before the second attempt, doubled before each further one, 30 at most, and up to half
        longer, by the answer's own seed, so that the answers of a group do not come back together.
    killed: ask again also where an answer took longer than its limit or ended its worker.
    """

    on: tuple[str, ...] = TRANSIENT
    times: int = 2
    pause: float = 0.5
    killed: bool = False

    def __post_init__(self) -> None:
        if self.times < 0:
            raise SettingError(f"reward.retry.times must be >= 0, got {self.times}")
        if not 0.0 <= self.pause < float("inf"):
            raise SettingError(f"reward.retry.pause must be >= 0 seconds and finite, got {self.pause}")
        if not all(self.on):
            raise SettingError(
                "reward.retry.on must name exceptions, such as ConnectionError; got an empty name"
            )

    def passes(self, fault: Exception) -> bool:
        """Is this a fault after which asking again makes sense?"""
        if isinstance(fault, WorkerTimeoutError | WorkerCrashedError | _LateError):
            return self.killed
        return not set(self.on).isdisjoint(_kinds(fault))

    def pause_before(self, attempt: int, seed: int) -> float:
        """Seconds before attempt 1, 2, ... after the first."""
        spread = 1.0 + (seed % 1024) / 2048
        return min(LONGEST_PAUSE, self.pause * 2 ** (attempt - 1)) * spread


@dataclass(slots=True, eq=False)
class Account:
    """What the grading of a rubric has met: the first traceback, and the seconds that it added to the run."""

    first_traceback: str | None = None
    seconds: float = 0.0

    def remember(self, grader: str, rollout: Rollout, fault: Exception) -> None:
        if self.first_traceback is None:
            remote = isinstance(fault, WorkerFaultError)
            trace = f"{fault}" if remote else "".join(traceback.format_exception(fault))
            self.first_traceback = f"grader {grader!r}, rollout {rollout.key}:\n{trace}"


class Asker:
    """Asks ``grader``, at most ``concurrency`` answers at once, each for at most ``timeout`` seconds.

    A grader that limits itself (``SelfLimiting``) has its own limits for both.
    """

    def __init__(
        self, grader: Grader, account: Account, *, timeout: float, concurrency: int, retry: RetryConfig
    ) -> None:
        self.grader = grader
        self.account = account
        self._limits_itself = isinstance(grader, SelfLimiting)
        self._group = grader if isinstance(grader, GroupGrading) and grader.sees_group else None
        self.timeout: float = getattr(grader, "timeout", timeout) if self._limits_itself else timeout
        self.concurrency = concurrency
        self.retry = retry
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def grades(self, prompt: Prompt, rollouts: Sequence[Rollout]) -> list[Grade]:
        """A grade for each answer, in order; whatever the grader raises becomes one."""
        if self._group is not None:
            return await self._together(self._group, prompt, rollouts)
        return await asyncio.gather(*(self._alone(prompt, rollout) for rollout in rollouts))

    async def _alone(self, prompt: Prompt, rollout: Rollout) -> Grade:
        attempt = 0
        while True:
            try:
                grade = await _timed(self._limited(self.grader(prompt, rollout), self.timeout), self.account)
                if not isinstance(grade, Grade):
                    raise TypeError(f"grader {self.grader.name!r} returned {grade!r}, not a Grade")
                return grade
            except Exception as fault:
                attempt += 1
                if not await self._again(fault, attempt, rollout):
                    return self._ungraded(prompt, rollout, fault, attempt)

    async def _together(
        self, grader: GroupGrading, prompt: Prompt, rollouts: Sequence[Rollout]
    ) -> list[Grade]:
        """One question about all of them; a fault of the question is one of each answer."""
        attempt = 0
        while rollouts:
            attempt += 1
            work = self._limited(grader.grade_group(prompt, rollouts), self.timeout * len(rollouts))
            try:
                found = await _timed(work, self.account)
            except Exception as fault:
                found = [fault] * len(rollouts)
            faults = [entry for entry in found if isinstance(entry, Exception)]
            if faults and await self._again(faults[0], attempt, rollouts[0]):
                continue
            return [
                self._ungraded(prompt, rollout, entry, attempt) if isinstance(entry, Exception) else entry
                for rollout, entry in zip(rollouts, found, strict=True)
            ]
        return []

    async def _again(self, fault: Exception, attempt: int, rollout: Rollout) -> bool:
        """Waits, and says True, where the fault of this attempt (from 1) passes and may be met once more."""
        if attempt > self.retry.times or not self.retry.passes(fault):
            return False
        await asyncio.sleep(self.retry.pause_before(attempt, rollout.seed))
        return True

    async def _limited(self, work: Awaitable[T], seconds: float) -> T:
        if self._limits_itself:
            return await work
        async with self._turn():
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await work
            except TimeoutError as fault:
                if limit.expired():
                    raise _LateError(seconds) from fault
                raise

    def _turn(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._turns:
            self._turns[loop] = asyncio.Semaphore(self.concurrency)
        return self._turns[loop]

    def _ungraded(self, prompt: Prompt, rollout: Rollout, fault: Exception, attempts: int) -> Grade:
        self.account.remember(self.grader.name, rollout, fault)
        answer = f"{rollout.key} (prompt {prompt.id})"
        tried = f" ({attempts} attempts)" if attempts > 1 else ""
        state = GradeState.TIMEOUT if "TimeoutError" in _kinds(fault) else GradeState.GRADER_FAILED
        if isinstance(fault, _LateError | WorkerTimeoutError):
            killed = "; its process was killed" if getattr(fault, "killed", False) else ""
            told = f"no grade of {answer} within {fault.seconds:g} s{killed}"
        elif isinstance(fault, WorkerCrashedError):
            told = f"no grade of {answer}: {_last_line(str(fault))}"
        else:
            told = _said(fault)
        return Grade(state=state, value=None, detail=f"{self.grader.name}: {told}{tried}")


class _LateError(TimeoutError):
    """The grader took longer than its limit; not a time-out that it met itself, in a network."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


def _kinds(fault: Exception) -> set[str]:
    """Names of the fault's class and its bases, bare and with their module."""
    if isinstance(fault, WorkerFaultError):
        return {fault.kind, *fault.kinds}
    classes = type(fault).__mro__
    return {kind.__name__ for kind in classes} | {
        f"{kind.__module__}.{kind.__qualname__}" for kind in classes
    }


def _said(fault: Exception) -> str:
    """The last line of the fault's traceback, that of the worker where it happened there."""
    if isinstance(fault, WorkerFaultError):
        return fault.said
    return traceback.format_exception_only(fault)[-1].strip()


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:300] if text.strip() else text


@types.coroutine
def _timed(work: Coroutine[Any, Any, T], account: Account) -> Generator[Any, Any, T]:
    """``await work``, adding the time that its steps take in this thread, its waiting apart."""
    received: Any = None
    thrown: BaseException | None = None
    while True:
        began = time.perf_counter()
        try:
            awaited = work.send(received) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            return done.value
        finally:
            account.seconds += time.perf_counter() - began
        received = thrown = None
        try:
            received = yield awaited
        except BaseException as fault:
            thrown = fault
