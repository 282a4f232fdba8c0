"""Programs that use up the machine: memory, output, time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

from benchmarks.sandbox.attempts import LIMITS, MIB, Escape, cut, failed, stopped

QUICK = replace(LIMITS, seconds=0.5)

RESOURCES = (
    Escape(
        "memory bomb",
        """
        import mmap
        tried(lambda: [bytearray(64 << 20) for _ in range(64)])
        tried(lambda: [mmap.mmap(-1, 64 << 20) for _ in range(64)])
        """,
        limits=replace(LIMITS, memory_bytes=512 * MIB),
    ),
    Escape(
        "endless output",
        """
        while True:
            print("x" * 1000)
        """,
        cut,
    ),
    Escape(
        "endless complaints on stderr",
        """
        while True:
            sys.stderr.write("x" * 1000)
        """,
        cut,
        QUICK,
    ),
    Escape(
        "sleeping for ever",
        """
        import time
        time.sleep(1e6)
        """,
        cut,
        QUICK,
    ),
    Escape(
        "sleeping for ever, deaf to signals, all files closed",
        """
        import signal, time
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.closerange(0, 64)
        while True:
            time.sleep(1)
        """,
        cut,
        QUICK,
    ),
    Escape(
        "computing for ever",
        """
        while True:
            pass
        """,
        cut,
        QUICK,
    ),
    Escape(
        "crashing the interpreter",
        """
        import ctypes
        ctypes.string_at(0)
        """,
        failed,
    ),
    Escape(
        "recursion without end",
        """
        sys.setrecursionlimit(10**9)
        def f():
            return f()
        f()
        """,
        stopped,
        QUICK,
    ),
)
