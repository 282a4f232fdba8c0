"""Errors a user can mend. Each message is one sentence: what, where, and what to do."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrimtabError(Exception):
    """Base of every error that is the user's to mend; the command line prints it without traceback."""


class SettingError(TrimtabError, ValueError):
    """A setting is unknown, impossible, or contradicts another one."""


class DataError(TrimtabError, ValueError):
    """Rows, files or models that cannot be used as they are."""


class RunError(TrimtabError, RuntimeError):
    """A run that had to stop, or cannot be continued."""


class WorkerLostError(RunError):
    """A process that sampled or trained for a run died, hung, or failed, and was not replaced."""


class WeightsLostError(WorkerLostError):
    """The weights since the last checkpoint are gone with a process; the run can go on from there."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` or `` (known: a, b)``, to end a sentence about an unknown name."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(options)})"
