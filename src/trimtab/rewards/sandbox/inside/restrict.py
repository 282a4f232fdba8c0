"""Gives up rights, for good, before any line of the program runs: user, limits, Landlock, seccomp."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import resource
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KILL = 9  # not from the module signal, which takes longer to import than all of this takes to run
_SET_DEATH_SIGNAL, _SET_KEEP_CAPABILITIES, _SET_SECCOMP, _NO_NEW_PRIVILEGES = 1, 8, 22, 38
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION_3, _CAP_DAC_READ_SEARCH = 0x20080522, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _WRITE_FILE, _READ_FOLDER, _EXECUTE = 1 << 2, 1 << 1, 1 << 3, 1 << 0


def restrict(rules: dict[str, Any]) -> None:
    """``rules``: uid (or None), keep_reading, limits [(name, value)], landlock (or None: namespaces confine).

    keep_reading: root may read what is closed to others, such as a standard library below /root. This right
    is kept through the change of user, as the only one; what there is to read is bounded all the same.
    """
    landlock, uid = rules["landlock"], rules["uid"]
    keep_reading = rules["keep_reading"] and uid is not None
    libc: Any = _libc() if landlock is not None or keep_reading else None
    if uid is not None:
        if keep_reading:
            _call(libc.prctl, _SET_KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        if libc is not None:
            _keep_capability(libc, _CAP_DAC_READ_SEARCH if keep_reading else None)
    for name, value in rules["limits"]:
        _, highest = resource.getrlimit(getattr(resource, name))
        value = value if highest == resource.RLIM_INFINITY else min(value, highest)
        resource.setrlimit(getattr(resource, name), (value, value))
    if landlock is not None:
        _die_with(libc, landlock["parent"])
        _confine_files(libc, landlock)
        own_pid = struct.pack("<I", os.getpid())
        _filter_calls(libc, landlock["filter"].replace(landlock["own_pid_mark"], own_pid))


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _call(function: Any, *arguments: Any) -> int:
    """Calls a C function with long arguments; raises OSError when it returns a negative number."""
    import ctypes

    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    returned = function(*given)
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function.__name__} {arguments}: {os.strerror(number)}")
    return returned


def _keep_capability(libc: Any, capability: int | None) -> None:
    """Only this one, or none."""
    import ctypes

    mask = 0 if capability is None else 1 << capability
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITIES_VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.pack("<IIIIII", mask, mask, 0, 0, 0, 0))
    _call(libc.syscall, _CAPSET[os.uname().machine], header, sets)


def _die_with(libc: Any, parent: int) -> None:
    _call(libc.prctl, _SET_DEATH_SIGNAL, _KILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError("the trainer has ended")
    _call(libc.prctl, _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def _confine_files(libc: Any, landlock: dict[str, Any]) -> None:
    """Everything that Landlock knows is forbidden, but reading below ``readable`` and using ``devices``."""
    import ctypes

    version = _call(libc.syscall, _LANDLOCK_CREATE, None, 0, 1)
    kinds = 13 + (version >= 2) + (version >= 3) + (version >= 5)
    fields = [(1 << kinds) - 1]
    if version >= 4:
        fields.append(0b11)  # TCP: bind, connect
    if version >= 6:
        fields.append(0b11)  # abstract sockets and signals of others
    attributes = ctypes.create_string_buffer(struct.pack(f"<{len(fields)}Q", *fields))
    rules = _call(libc.syscall, _LANDLOCK_CREATE, attributes, 8 * len(fields), 0)
    for place in landlock["readable"]:
        rights = _READ_FILE | _EXECUTE | (_READ_FOLDER if os.path.isdir(place) else 0)
        _allow(libc, rules, place, rights)
    for place, writable in landlock["devices"]:
        _allow(libc, rules, place, _READ_FILE | (_WRITE_FILE if writable else 0))
    _call(libc.syscall, _LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _allow(libc: Any, rules: int, place: str, rights: int) -> None:
    import ctypes

    folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
    rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, folder))
    _call(libc.syscall, _LANDLOCK_ADD, rules, 1, rule, 0)
    os.close(folder)


def _filter_calls(libc: Any, program: bytes) -> None:
    import ctypes

    lines = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(lines)))
    _call(libc.prctl, _SET_SECCOMP, 2, header, 0, 0)
