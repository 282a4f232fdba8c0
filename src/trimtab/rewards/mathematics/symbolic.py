"""The symbolic checker, for gold answers that our own rules cannot read: sums, integrals, limits.

It needs ``pip install "trimtab[math]"``. It can compute without end, so it is asked only in a worker that can
be killed, after a look at the sizes. It is not asked about an answer that our rules cannot read where they
can read the gold: an unevaluated integral is no answer to "compute this integral".
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.util
import re

from trimtab.rewards.workers import WorkerCrashedError, WorkerFaultError, WorkerTimeoutError, shared_pool

MISSING = 'this needs the symbolic checker: pip install "trimtab[math]"'
LONGEST = 300
"""Characters of one expression."""

_CHECK = "trimtab.rewards.mathematics.sympy_check"
_TOO_MUCH = re.compile(
    r"\d{31}"  # a number of more than 30 digits
    r"|(?:\^\s*\{?[^{}^]{0,40}){3}"  # three powers on top of each other
    r"|\^\s*\{?\s*\d{5}"  # an exponent above 9999
    r"|\d{4}\s*\}?\s*!"  # the factorial of a number above 999
    r"|!\s*!"
)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_read: dict[str, bool] = {}


def is_installed() -> bool:
    """Is the optional reader there?"""
    return importlib.util.find_spec("latex2sympy2_extended") is not None


def refusal(text: str) -> str | None:
    """Why an expression is not even tried: too long, too large, words in it. None when it is."""
    if len(text) > LONGEST:
        return f"more than {LONGEST} characters"
    if _TOO_MUCH.search(text):
        return "numbers too large to evaluate"
    if "\\text" in text:
        return "words"
    words = _WORD.search(re.sub(r"\\[A-Za-z]+", " ", text))
    return f"the word {words[0]!r}" if words else None


def reads(gold: str, timeout: float) -> bool:
    """Can it read this gold answer, within the time? Asked once for each; waits in the calling thread."""
    if gold not in _read:
        if not is_installed() or refusal(gold) is not None:
            return False
        try:
            _read[gold] = bool(shared_pool().call(f"{_CHECK}:reads", {"gold": gold}, timeout))
        except (WorkerTimeoutError, WorkerFaultError, WorkerCrashedError):
            _read[gold] = False
    return _read[gold]


async def check(answer: str, gold: str, timeout: float) -> bool:
    """Are they equal? Raises WorkerTimeoutError, WorkerFaultError, WorkerCrashedError."""
    return bool(await shared_pool().run(f"{_CHECK}:check", {"answer": answer, "gold": gold}, timeout))
