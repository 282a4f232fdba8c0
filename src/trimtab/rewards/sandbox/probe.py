"""Finds the strongest sandbox that works here, by trying to break out of it.

Versions and kernel settings promise little: a container may forbid namespaces, a distribution may need a
profile. So the probe starts a program in each tier that tries to leave, and believes what it sees.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

from trimtab.errors import SettingError, nearest
from trimtab.rewards.sandbox.interpreter import ENVIRONMENT, Interpreter, this_interpreter
from trimtab.rewards.sandbox.limits import Limits
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.programs import run_program
from trimtab.rewards.sandbox.report import Attempt, Report, SandboxError, Tier

_LOCK = threading.Lock()
_STANDARD_WORDS = {*ENVIRONMENT, "PWD", "LC_CTYPE"}

_ESCAPES = """
import os, socket, subprocess, sys
def tried(name, escape):
    try:
        told = escape()
    except BaseException as fault:
        print(name, "refused", f"{type(fault).__name__}: {fault}", sep="\\t")
    else:
        print(name, "ESCAPED", told, sep="\\t")
def nothing():
    raise LookupError("nothing found")
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        return out.sendto(b"escaped", ("127.0.0.1", UDP))
def write():
    with open(os.path.join(OUTSIDE, "escaped"), "w") as file:
        return file.write("escaped")
def environment():
    extra = sorted(set(os.environ) - WORDS)
    return extra or nothing()
def home():
    names = set(os.listdir(HOME)) - SHELLS
    return names or nothing()
def processes():
    return [name for name in os.listdir("/proc") if name.isdigit()]
tried("TCP", lambda: socket.create_connection(("127.0.0.1", TCP), 2))
tried("UDP", udp)
tried("read a file outside", lambda: open(os.path.join(OUTSIDE, "canary")).read())
tried("list the home folder", home)
tried("write outside", write)
tried("the environment", environment)
tried("see other processes", processes)
tried("signal another process", lambda: os.kill(VICTIM, 9))
tried("start a process", lambda: subprocess.run([sys.executable, "-c", "0"], check=True))
print("done")
"""


def open_place(
    limits: Limits | None = None,
    *,
    tier: str = "auto",
    unsafe: bool = False,
    packages: tuple[str, ...] = (),
) -> Place:
    """A place to run programs in: the strongest tier that works, or the named one.

    unsafe: where no tier works, run programs with the rights of this user instead of refusing.
    packages: folders of third-party packages that programs may import.
    Raises SettingError, with what to install or set, when there is no such place.
    """
    limits = limits or Limits()
    tiers = [Tier.BUBBLEWRAP, Tier.LANDLOCK]
    if tier != "auto":
        if tier not in tiers:
            raise SettingError(f"there is no sandbox {tier!r}{nearest(tier, ['auto', *tiers])}")
        tiers = [Tier(tier)]
    reports: list[Report] = []
    for candidate in tiers:
        report = probe(candidate)
        if report.usable:
            return Place(candidate, this_interpreter(packages), limits)
        reports.append(report)
    if unsafe:
        return Place(Tier.UNSAFE, this_interpreter(packages), limits)
    faults = "; ".join(f"{report.tier}: {report.fault}" for report in reports)
    raise SettingError(
        f"programs of the model cannot be confined on this machine ({faults}); mend one of these, or set "
        "the grader's option unsafe = true to run them with all rights of your user"
    )


def probe(tier: Tier) -> Report:
    """What this tier is worth here. Tried once, then remembered for as long as this process lives."""
    with _LOCK:
        return _probed(tier)


@lru_cache
def _probed(tier: Tier) -> Report:
    missing = _missing(tier)
    if missing is not None:
        return Report(tier=tier, fault=missing)
    if tier is Tier.UNSAFE:
        return Report(tier=tier)
    try:
        attempts = _attempts(tier)
    except SandboxError as fault:
        return Report(tier=tier, fault=f"{fault}{_hint(str(fault))}")
    escaped = [attempt.name for attempt in attempts if not attempt.refused]
    if escaped:
        return Report(tier=tier, attempts=attempts, fault=f"it does not hold here: {', '.join(escaped)}")
    return Report(tier=tier, attempts=attempts)


def _missing(tier: Tier) -> str | None:
    if tier is Tier.UNSAFE:
        return None
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if tier is Tier.BUBBLEWRAP and shutil.which("bwrap") is None:
        return "the command bwrap is not installed (apt-get install bubblewrap, dnf install bubblewrap)"
    return None


def _hint(fault: str) -> str:
    """What usually helps against this complaint, to end a sentence."""
    complaint = fault.lower()
    if "namespace" in complaint or "uid map" in complaint or "rtm_newaddr" in complaint:
        return (
            " (in a container: start it with --security-opt seccomp=unconfined --security-opt "
            "apparmor=unconfined; on Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0; "
            "elsewhere: sysctl user.max_user_namespaces=10000)"
        )
    if "syscall (444" in complaint:
        return (
            " (Landlock needs Linux 5.13 or later, built with it and with landlock in the lsm= boot option)"
        )
    if "unknown option" in complaint:
        return " (bubblewrap 0.8 or later is needed)"
    return ""


def _attempts(tier: Tier) -> tuple[Attempt, ...]:
    """What the program says it could do, and what the targets saw of it."""
    place = Place(tier, this_interpreter(), Limits(seconds=5.0))
    with ExitStack() as stack:
        outside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-probe-")))
        outside.chmod(0o777)  # refused by the sandbox, not for want of permissions
        (outside / "canary").write_text("canary")
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        victim = stack.enter_context(_victim())
        targets = {
            "TCP": tcp.getsockname()[1],
            "UDP": udp.getsockname()[1],
            "OUTSIDE": str(outside),
            "HOME": str(Path.home()),
            "SHELLS": _shells(place.interpreter),
            "WORDS": _STANDARD_WORDS,
            "VICTIM": victim.pid,
        }
        program = "".join(f"{name} = {value!r}\n" for name, value in targets.items()) + _ESCAPES
        ended = run_program(place, program)
        seen = {
            "TCP": _readable(tcp),
            "UDP": _readable(udp),
            "write outside": (outside / "escaped").exists(),
            "signal another process": victim.poll() is not None,
        }
        victim.send_signal(signal.SIGKILL)
    *lines, last = ended.output.decode(errors="replace").splitlines() or [""]
    if last != "done":
        raise SandboxError(f"the probe's own program did not run: {ended}")
    rows = [line.split("\t", 2) for line in lines]
    return tuple(
        Attempt(name, word == "refused" and not seen.get(name, False), told) for name, word, told in rows
    )


def _shells(interpreter: Interpreter) -> set[str]:
    """Names in the home folder that exist inside too, because the interpreter lies below them."""
    home = Path.home()
    below = [Path(place) for place in interpreter.readable if home in Path(place).parents]
    return {place.relative_to(home).parts[0] for place in below} or {""}


def _victim() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(30)"], cwd=os.sep)


def _readable(server: socket.socket) -> bool:
    """Whether somebody connected or sent something."""
    server.setblocking(False)
    try:
        server.recv(1) if server.type == socket.SOCK_DGRAM else server.accept()
    except OSError:
        return False
    return True
