"""All escapes: what a program of the model could try against the machine."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from benchmarks.sandbox.attempts import Escape
from benchmarks.sandbox.outside import FILES, NETWORK
from benchmarks.sandbox.processes import PROCESSES
from benchmarks.sandbox.resources import RESOURCES

ESCAPES: tuple[Escape, ...] = (*NETWORK, *FILES, *PROCESSES, *RESOURCES)
