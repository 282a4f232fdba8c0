"""A regular expression on a response, for a worker process: the user's expression, a model's text."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Mapping


def not_valid(expression: str) -> str | None:
    """Why Python cannot compile this expression; None when it can."""
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as fault:
        return str(fault)
    return None


def matches(payload: Mapping[str, str | None]) -> bool:
    """Does ``expression`` match ``response`` as a whole, or ``whole``, which adds the tags the prompt began?

    ``opened`` is those tags, None where there are none. They must not match by themselves: then the prompt
    alone would earn the point.
    """
    expression = re.compile(payload["expression"] or "", re.DOTALL)
    if expression.fullmatch(payload["response"] or ""):
        return True
    opened, whole = payload["opened"], payload["whole"]
    if opened is None or whole is None or expression.fullmatch(opened):
        return False
    return expression.fullmatch(whole) is not None
