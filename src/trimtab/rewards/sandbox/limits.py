"""What a sandboxed program may use up."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds for one program. Beyond any of them it is ended, or its call fails.

    seconds: processor time for one piece of work (one test). A program that sleeps is ended after
        ``wall_seconds``, which is ``PATIENCE`` times as much; waiting for a processor does not count.
    memory_bytes: address space.
    output_bytes: what it may print to stdout.
    file_bytes: one file; folder_bytes: all files of its temporary folder together.
    open_files, threads: at once. Other processes cannot be started at all.
    """

    seconds: float = 4.0
    memory_bytes: int = 1024 * MIB
    output_bytes: int = 4 * MIB
    file_bytes: int = 16 * MIB
    folder_bytes: int = 64 * MIB
    open_files: int = 64
    threads: int = 16

    @property
    def wall_seconds(self) -> float:
        return PATIENCE * self.seconds


PATIENCE = 3.0
"""Seconds that a program may sleep through for each second of processor time it may use."""
