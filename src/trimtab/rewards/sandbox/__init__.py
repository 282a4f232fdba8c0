"""Runs programs that nobody has read, such as a policy writes, without the rights of the trainer.

Three tiers, the strongest that works here is taken: **bubblewrap** (own namespaces, nothing but the
interpreter to see), **Landlock** with seccomp (the same refusals by the kernel's rules for one process), and
none: then this room refuses to run anything, unless the user says ``unsafe``. ``open_place`` chooses by
trying to break out (``probe.py``); ``run_program`` runs one program on one input; ``run_asserts`` calls the
program's functions from tests that live in another sandbox.

What it contains and what not is in ``report.py``, measured in docs/sandbox.md.
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.rewards.sandbox.asserts import Verdict, run_asserts
from trimtab.rewards.sandbox.clock import Budget
from trimtab.rewards.sandbox.limits import Limits
from trimtab.rewards.sandbox.place import Place
from trimtab.rewards.sandbox.probe import open_place, probe
from trimtab.rewards.sandbox.programs import Ended, StoppedError, run_program
from trimtab.rewards.sandbox.report import Attempt, Report, SandboxError, Tier
from trimtab.rewards.sandbox.sentences import AssertTest, UnusableTestError, read_assert

__all__ = [
    "AssertTest",
    "Attempt",
    "Budget",
    "Ended",
    "Limits",
    "Place",
    "Report",
    "SandboxError",
    "StoppedError",
    "Tier",
    "UnusableTestError",
    "Verdict",
    "open_place",
    "probe",
    "read_assert",
    "run_asserts",
    "run_program",
]
