"""Seccomp filters, run by a small machine for classic BPF, so that every processor can be tested."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import struct

import pytest

from trimtab.rewards.sandbox import SandboxError
from trimtab.rewards.sandbox.filters import OWN_PID_MARK, seccomp_filter

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = "allowed", "killed"
OWN = 4321


def verdict(machine, number, *arguments, namespaces=False, architecture=None):
    """What the kernel would do."""
    program = seccomp_filter(namespaces=namespaces, machine=machine)
    program = program.replace(OWN_PID_MARK, struct.pack("<I", OWN))
    lines = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    words = [value & 0xFFFF_FFFF for value in (number, architecture or ARCHITECTURES[machine], 0, 0)]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        words += [argument & 0xFFFF_FFFF, argument >> 32 & 0xFFFF_FFFF]
    at = register = 0
    while True:
        code, yes, no, operand = lines[at]
        at += 1
        if code == 0x20:
            register = words[operand // 4]
        elif code == 0x54:
            register &= operand
        elif code == 0x06:
            kind = {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(operand)
            return kind or errno.errorcode[operand & 0xFFFF]
        else:
            holds = {0x15: register == operand, 0x35: register >= operand, 0x45: bool(register & operand)}[
                code
            ]
            at += yes if holds else no


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
@pytest.mark.parametrize("namespaces", [True, False])
def test_the_filter_refuses_the_same_calls_on_both_processors(machine, column, namespaces):
    def asked(*numbers_and_arguments):
        numbers, *arguments = numbers_and_arguments
        return verdict(machine, numbers[column], *arguments, namespaces=namespaces)

    read, write, execve, mmap = (0, 63), (1, 64), (59, 221), (9, 222)
    assert {asked(number) for number in (read, write, execve, mmap)} == {ALLOWED}
    socket, ptrace, bpf, io_uring, unshare = (41, 198), (101, 117), (321, 280), (425, 425), (272, 97)
    assert {asked(number) for number in (socket, ptrace, bpf, io_uring, unshare)} == {"EPERM"}
    clone, thread, plain_fork, new_user = (56, 220), 0x3D0F00, 17, 0x10000000
    assert asked(clone, thread) == ALLOWED
    assert asked(clone, plain_fork) == "EPERM"
    assert asked(clone, thread | new_user) == "EPERM"
    assert asked((435, 435)) == "ENOSYS"
    assert asked((463, 463)) == "ENOSYS"
    socketpair, unix, inet, stream, datagram, close_on_exec = (53, 199), 1, 2, 1, 2, 0x80000
    assert asked(socketpair, unix, stream | close_on_exec) == ALLOWED
    assert asked(socketpair, unix, datagram) == "EPERM"
    assert asked(socketpair, inet, stream) == "EPERM"
    fcntl, get_flags, set_owner = (72, 25), 3, 8
    assert asked(fcntl, 5, get_flags) == ALLOWED
    assert asked(fcntl, 5, set_owner) == "EPERM"


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_without_namespaces_other_processes_and_files_are_protected_too(machine, column):
    def asked(numbers, *arguments, namespaces=False):
        return verdict(machine, numbers[column], *arguments, namespaces=namespaces)

    kill, tgkill, prlimit, chmod = (62, 129), (234, 131), (302, 261), (268, 53)
    for call in (kill, tgkill):
        assert asked(call, OWN, OWN, 9) == ALLOWED
        for other in (OWN + 1, 1, 0, -1, -OWN):
            assert asked(call, other, other, 9) == "EPERM"
        assert asked(call, 1, 9, namespaces=True) == ALLOWED
    assert asked(prlimit, 0) == asked(prlimit, OWN) == ALLOWED
    assert asked(prlimit, OWN + 1) == "EPERM"
    assert asked(chmod, -100) == "EPERM"
    assert asked(chmod, -100, namespaces=True) == ALLOWED
    prctl, set_death_signal, set_name = (157, 167), 1, 15
    assert asked(prctl, set_death_signal) == "EPERM"
    assert asked(prctl, set_name) == ALLOWED


def test_calls_in_another_dialect_of_the_processor_are_no_way_around():
    i386, x32 = 0x40000003, 0x40000000
    assert verdict("x86_64", 41, architecture=i386) == KILLED
    assert verdict("x86_64", x32 | 41) == "ENOSYS"


def test_an_unknown_processor_has_no_filter():
    with pytest.raises(SandboxError, match="this machine is riscv64"):
        seccomp_filter(namespaces=True, machine="riscv64")
