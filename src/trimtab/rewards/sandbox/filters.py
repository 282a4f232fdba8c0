"""Seccomp filters as classic BPF: which system calls a sandboxed program may not make.

A call that is not listed is allowed, a call newer than the list is not. The filter is a list of
instructions (code, jump if true, jump if false, operand), packed as the kernel's ``struct sock_filter``;
it looks at the number of the call and at the low half of one argument. Refused calls fail with EPERM,
so that a program sees an ordinary PermissionError.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import platform
import struct
from functools import lru_cache

from trimtab.rewards.sandbox.report import SandboxError

OWN_PID_MARK = struct.pack("<I", 0x7EADBEA7)
"""Stands for the program's process id in a filter; replaced before the filter is loaded."""

_NEWEST = 462  # mseal, Linux 6.10: later calls are refused as unknown
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Name: number on x86_64, number on aarch64 (None: there is no such call).
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # the network, and what could open a socket behind a filter's back
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # other processes: starting, tracing, reading
    "fork": (57, None), "vfork": (58, None), "ptrace": (101, 117), "kcmp": (312, 272),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "perf_event_open": (298, 241), "setpriority": (141, 140),
    "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429), "open_tree": (428, 428),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458),
    # doors into the kernel
    "bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "userfaultfd": (323, 282), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "personality": (135, 92),
    "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None), "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18), "uselib": (134, None), "fanotify_init": (300, 262),
    # the machine: clock, names, swap, devices, memory policy
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116),
    "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "vhangup": (153, 58),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    "mknod": (133, None), "mknodat": (259, 33), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    # memory that outlives the program, or that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "msgget": (68, 186), "msgsnd": (69, 189), "msgctl": (71, 187),
    "semget": (64, 190), "semctl": (66, 191), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip

# Landlock says nothing about these: attributes of files, and signals by other ways than kill.
_REFUSED_WITHOUT_NAMESPACES: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "truncate": (76, 45), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip

_CLONE, _CLONE3 = (56, 220), (435, 435)
_NEW_NAMESPACES, _THREAD = 0x7E020000, 0x00010000

# Call, argument, refused values: F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP, TIOCSTI.
_REFUSED_VALUES = (((72, 25), 1, (8, 10, 15)), ((16, 29), 1, (0x8901, 0x8902, 0x5412)))
_PARENT_DEATH_SIGNAL = ((157, 167), 0, (1,))  # prctl: the program must not outlive the trainer

# Calls about a process: kill, tgkill (own only); limits and scheduling (own, which may be written 0).
_OWN = ((62, 129), (234, 131))
_OWN_OR_ZERO = ((302, 261), (203, 122), (142, 118), (144, 119), (314, 274))

# A pair of connected streams (event loops need one) cannot name another socket, datagrams can.
_SOCKETPAIR, _UNIX_FAMILY, _STREAM, _TYPE_BITS = (53, 199), 1, 1, 0xF

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET = 0x15, 0x35, 0x45
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]
_refuse: Instruction = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
_unknown: Instruction = (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
_allow: Instruction = (_RETURN, 0, 0, _ALLOW)


@lru_cache
def seccomp_filter(*, namespaces: bool, machine: str | None = None) -> bytes:
    """The packed filter. Without own namespaces it must also protect other processes and files.

    Without namespaces it contains ``OWN_PID_MARK`` where the process id belongs.
    Raises SandboxError on a processor whose call numbers are not known here.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        known = " and ".join(_ARCHITECTURES)
        raise SandboxError(f"system calls are known for {known} only, and this machine is {machine}")
    architecture, column = _ARCHITECTURES[machine]
    lines: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _NEWEST + 1),
        _unknown,
    ]
    refused = _REFUSED if namespaces else _REFUSED | _REFUSED_WITHOUT_NAMESPACES
    for numbers in refused.values():
        lines += _when(numbers[column], [_refuse])
    lines += _when(_CLONE3[column], [_unknown])  # its flags cannot be seen; the C library falls back to clone
    only_threads = [(_JUMP_SET, 0, 1, _NEW_NAMESPACES), _refuse, (_JUMP_SET, 1, 0, _THREAD), _refuse]
    lines += _when(_CLONE[column], [_argument(0), *only_threads, _allow])
    unix_stream: list[Instruction] = [
        *(_argument(0), (_JUMP_EQUAL, 1, 0, _UNIX_FAMILY), _refuse),
        *(_argument(1), (_AND, 0, 0, _TYPE_BITS), (_JUMP_EQUAL, 1, 0, _STREAM), _refuse, _allow),
    ]
    lines += _when(_SOCKETPAIR[column], unix_stream)
    for numbers, argument, values in _REFUSED_VALUES + (() if namespaces else (_PARENT_DEATH_SIGNAL,)):
        checks = [line for value in values for line in ((_JUMP_EQUAL, 0, 1, value), _refuse)]
        lines += _when(numbers[column], [_argument(argument), *checks, _allow])
    if not namespaces:
        own: Instruction = (_JUMP_EQUAL, 0, 1, struct.unpack("<I", OWN_PID_MARK)[0])
        for numbers in _OWN:
            lines += _when(numbers[column], [_argument(0), own, _allow, _refuse])
        for numbers in _OWN_OR_ZERO:
            zero: Instruction = (_JUMP_EQUAL, 0, 1, 0)
            lines += _when(numbers[column], [_argument(0), zero, _allow, own, _allow, _refuse])
    return b"".join(struct.pack("<HBBI", *line) for line in [*lines, _allow])


def _argument(index: int) -> Instruction:
    """Loads the low half of an argument; the kernel reads only this half of pids, commands and flags."""
    return (_LOAD, 0, 0, 16 + 8 * index)


def _when(number: int | None, lines: list[Instruction]) -> list[Instruction]:
    """These lines for this call only; they must end in a return."""
    return [] if number is None else [(_JUMP_EQUAL, 0, len(lines), number), *lines]
