"""What a tier promises, what a probe found, and the error of a sandbox that failed."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trimtab.errors import RunError


class SandboxError(RunError):
    """The sandbox itself failed. It says nothing about the program that was to run in it."""


class Tier(StrEnum):
    """How programs are confined, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    UNSAFE = "unsafe"


CONTAINS: dict[Tier, tuple[str, ...]] = {
    Tier.BUBBLEWRAP: (
        "no network (own network namespace, and sockets are refused)",
        "read-only system: the interpreter and the system's libraries, nothing else",
        "a private temporary folder in memory, gone afterwards",
        "own process, IPC, host-name and mount namespaces; no /proc, no /sys",
        "no other processes, no new namespaces, no tracing (seccomp)",
        "cleared environment, no open files of the trainer",
        "limits on time, memory, output, files, open files and threads",
    ),
    Tier.LANDLOCK: (
        "no network (sockets are refused)",
        "reads the interpreter and the system's libraries, nothing else; writes nothing",
        "no /proc, no /sys, no System V shared memory, no message queues",
        "no other processes, no signals or limits for others, no tracing (seccomp)",
        "cleared environment, no open files of the trainer",
        "limits on time, memory, output, open files and threads",
    ),
    Tier.UNSAFE: (
        "cleared environment, no open files of the trainer",
        "limits on time, memory, output, size of a file and open files",
    ),
}

LEAVES_OPEN: dict[Tier, tuple[str, ...]] = {
    Tier.BUBBLEWRAP: (
        "faults of the kernel: it is shared with the host",
        "what can be measured: clocks, kernel version, number of cores, load of caches",
    ),
    Tier.LANDLOCK: (
        "faults of the kernel: it is shared with the host",
        "what can be measured: clocks, kernel version, number of cores, load of caches",
        "names, sizes and dates (not contents) of files whose path the program guesses",
        "without root: the program runs as the user of the trainer, and its threads are bounded loosely",
    ),
    Tier.UNSAFE: (
        "everything the user of the trainer may do: read and delete files, use the network, start and "
        "kill processes",
    ),
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One escape that the probe tried from inside: its name, whether it was refused, and what happened."""

    name: str
    refused: bool
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the probe of one tier found. ``fault`` says why the tier cannot be used; None when it can."""

    tier: Tier
    attempts: tuple[Attempt, ...] = ()
    fault: str | None = None

    @property
    def usable(self) -> bool:
        return self.fault is None

    @property
    def contains(self) -> tuple[str, ...]:
        return CONTAINS[self.tier] if self.usable else ()

    @property
    def leaves_open(self) -> tuple[str, ...]:
        return LEAVES_OPEN[self.tier]

    def __str__(self) -> str:
        """One sentence for people."""
        if self.fault is not None:
            return f"The sandbox {self.tier} cannot be used: {self.fault}."
        if self.tier is Tier.UNSAFE:
            return "Programs run UNSAFELY, with the rights of this user: only time and memory are limited."
        tried = len(self.attempts)
        names = ", ".join(attempt.name for attempt in self.attempts)
        return f"Programs run in {self.tier}: {tried} of {tried} escape attempts were refused ({names})."
