"""What a failed call to a worker means: the worker is gone, or it says why it cannot."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re

from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from trimtab.distributed.workers import Worker
from trimtab.errors import TrimtabError, WorkerLostError

LONGEST_REASON = 4000


def told(error: BaseException) -> TrimtabError | None:
    """The error that the worker itself raised in words; None where it broke or is gone."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return cause if isinstance(cause, TrimtabError) else None


def said(error: BaseException) -> TrimtabError | None:
    """The error that the worker raised for its user to mend; None where it is lost."""
    own = told(error)
    return None if isinstance(own, WorkerLostError) else own


def is_gone(error: BaseException) -> bool:
    """Whether the worker's process, or its node, is not there any more."""
    return isinstance(error, RayActorError)


def is_lost(error: BaseException) -> bool:
    """Whether a worker can do nothing more: its process is gone, or it says that what it ran is."""
    return is_gone(error) or isinstance(told(error), WorkerLostError)


def reason(worker: Worker, error: BaseException) -> str:
    """Why a worker failed, in its own words: what the watchdog found, its traceback, or how it ended."""
    if worker.condemned:
        return worker.condemned
    if (own := told(error)) is not None:
        return "\n".join([str(own), *getattr(own, "__notes__", [])])
    if isinstance(error, RayTaskError):
        return f"it raised\n{_plain(error)}"
    if isinstance(error, ActorDiedError):
        return _end_of_process(str(error))
    return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST_REASON]}"


def is_fault(error: BaseException) -> bool:
    """Whether it is a failure of a worker or of Ray, and not the driver's own."""
    return isinstance(error, RayError)


def _end_of_process(text: str) -> str:
    """The end of a process in one sentence, without Ray's guesses; a traceback is kept whole."""
    if "Traceback (most recent call last)" in text:
        return f"it raised\n{_plain(text)}"
    for mark, words in (
        ("SYSTEM_ERROR", "its process ended without a word (killed, out of memory, or crashed)"),
        ("NODE_DIED", "its node left the cluster"),
        ("node has died", "its node left the cluster"),
        ("INTENDED_USER_EXIT", "its process was ended"),
    ):
        if mark in text:
            return words
    return " ".join(text.split())[:LONGEST_REASON]


def _plain(error: object) -> str:
    """A traceback as Ray prints it, without colours; its end where it is long."""
    return re.sub(r"\x1b\[\d+m", "", str(error)).strip()[-LONGEST_REASON:]
