"""The command line that starts a sandboxed interpreter, by tier."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trimtab.rewards.sandbox.duty import BOOT, DEVICES
from trimtab.rewards.sandbox.interpreter import FLAGS
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.report import Tier

TITLE = "trimtab-sandbox"
"""Last word of every sandboxed command line, so that ``ps`` shows what these processes are."""


def command(place: Place, *, duty: int, uid: int | None, seccomp: int | None) -> list[str]:
    """``duty`` and ``seccomp`` are file descriptors; ``uid`` is the user the program will run under."""
    python = [place.interpreter.executable, *FLAGS, "-c", BOOT, str(duty), TITLE]
    if place.tier is not Tier.BUBBLEWRAP:
        return python
    rights = ["CAP_SETUID", "CAP_SETGID"]  # to become the other user, who has none of them
    if place.interpreter.closed_places:
        rights.append("CAP_DAC_READ_SEARCH")
    user = ["--unshare-user"] if uid is None else [word for name in rights for word in ("--cap-add", name)]
    return [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
        *user,
        *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
        *("--perms", "1777", "--size", str(place.limits.folder_bytes), "--tmpfs", "/tmp"),
        *_folders(place.interpreter.readable),
        *[word for path in place.interpreter.readable for word in ("--ro-bind", path, path)],
        *[word for path, _ in DEVICES if os.path.exists(path) for word in ("--dev-bind", path, path)],
        *("--remount-ro", "/", "--chdir", "/tmp", "--seccomp", str(seccomp), "--"),
        *python,
    ]


def _folders(places: tuple[str, ...]) -> list[str]:
    """The folders above these places: empty ones that anybody may enter, whatever they are outside."""
    above = {parent for place in places for parent in Path(place).parents if parent != Path("/")}
    return [word for folder in sorted(above) for word in ("--perms", "0755", "--dir", str(folder))]
