"""What a sandboxed interpreter is given: our compiled code, the rules it submits to, and its work."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import marshal
import math
import os
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from trimtab.rewards.sandbox.filters import OWN_PID_MARK, seccomp_filter
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.report import Tier

INSIDE = "trimtab.rewards.sandbox.inside"
BOOT = (
    "import marshal,sys\n"
    "with open(int(sys.argv[1]),'rb') as file: duty=marshal.load(file)\n"
    "exec(duty.pop('boot'),globals())\n"
    "start(duty)"
)
"""Source for ``python -c``: the rest comes through a file descriptor, not the command line."""

DEVICES = (("/dev/null", True), ("/dev/zero", True), ("/dev/random", False), ("/dev/urandom", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """One piece of work: ``function`` of the inside module ``module`` is called with ``arguments``.

    ``needs``: further inside modules, in the order of their imports. ``reports``: whether the status pipe
    stays open for it; only code that we trust may have that.
    """

    module: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    reports: bool = False


def packed(duty: Duty, place: Place, *, uid: int | None, status: int) -> bytes:
    """The duty as bytes for the interpreter of the same version; it knows nothing that is not in them."""
    names = [*duty.needs, duty.module]
    return marshal.dumps(
        {
            "boot": _compiled("boot"),
            "modules": [(f"{INSIDE}.{name}", _compiled(name)) for name in ["restrict", *names]],
            "restrict": f"{INSIDE}.restrict",
            "rules": _rules(place, uid),
            "status": status,
            "reports": duty.reports,
            "entry": (f"{INSIDE}.{duty.module}", duty.function),
            "arguments": duty.arguments,
        }
    )


def _rules(place: Place, uid: int | None) -> dict[str, Any]:
    tier, limits = place.tier, place.limits
    keep_reading = place.interpreter.closed_places
    if tier is Tier.LANDLOCK:
        keep_reading = keep_reading or place.interpreter.closed_above
        landlock = {
            "readable": list(place.interpreter.readable),
            "devices": [pair for pair in DEVICES if os.path.exists(pair[0])],
            "filter": seccomp_filter(namespaces=False),
            "own_pid_mark": OWN_PID_MARK,
            "parent": os.getpid(),
        }
    else:
        landlock = None
    limited = [
        ("RLIMIT_CPU", math.ceil(limits.seconds) + 1),  # behind the trainer's own clock, should that fail
        ("RLIMIT_FSIZE", limits.file_bytes),
        ("RLIMIT_NOFILE", limits.open_files),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_AS", limits.memory_bytes),
    ]
    if tier is not Tier.UNSAFE:
        limited += [("RLIMIT_MEMLOCK", 0), ("RLIMIT_MSGQUEUE", 0), ("RLIMIT_NICE", 0), ("RLIMIT_RTPRIO", 0)]
        own_count = tier is Tier.BUBBLEWRAP or uid is not None
        limited.append(("RLIMIT_NPROC", limits.threads + (0 if own_count else _tasks())))
    return {"uid": uid, "keep_reading": keep_reading, "limits": limited, "landlock": landlock}


def _tasks() -> int:
    """All threads of this machine now: a bound for those of this user, which the kernel counts together."""
    with open("/proc/loadavg", encoding="ascii") as file:
        return int(file.read().split()[3].partition("/")[2])


@lru_cache
def _compiled(name: str) -> CodeType:
    source = (Path(__file__).parent / "inside" / f"{name}.py").read_text(encoding="utf-8")
    return compile(source, f"trimtab/{name}.py", "exec", dont_inherit=True, optimize=2)


def readable_file(content: bytes) -> int:
    """A file descriptor, for reading only and without a name, that holds ``content``."""
    if hasattr(os, "memfd_create"):
        writable = os.memfd_create("trimtab", os.MFD_CLOEXEC)
        try:
            with open(writable, "wb", closefd=False) as file:
                file.write(content)
            return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(writable)
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return os.open(file.name, os.O_RDONLY | os.O_CLOEXEC)
