"""What the operating system says of a process: memory, its peak since a moment, processor seconds."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ctypes
import re
import resource
from pathlib import Path

STATUS, REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_bytes() -> int:
    """Most resident memory since the start, or since ``forget_peak``."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """Memory of the process that is in use now."""
    return _status("VmRSS")


def forget_peak() -> int:
    """Give freed memory back to the system and count the peak anew; the resident bytes then. Linux only."""
    ctypes.CDLL(None).malloc_trim(0)
    REFERENCES.write_text("5")
    return resident_bytes()


def processor_seconds() -> float:
    """Of all threads, in the program and in the system's calls."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _status(name: str) -> int:
    if not STATUS.exists():
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.M)
    return int(found[1]) * 1024 if found else 0
