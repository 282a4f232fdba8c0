"""What the worker runs: reads two expressions with latex2sympy2-extended, compares them with sympy.

Imported in a worker only (see symbolic.py): importing takes seconds, and evaluating may take for ever. It
imports nothing of trimtab, so that the worker stays light.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import sympy
from latex2sympy2_extended import latex2sympy  # pyright: ignore[reportMissingImports]  (optional)
from sympy.core.relational import Relational


def reads(payload: dict[str, str]) -> bool:
    """Can the gold answer be read?"""
    return _read(payload["gold"]) is not None


def check(payload: dict[str, str]) -> bool:
    """Are ``answer`` and ``gold`` equal? An answer that cannot be read is not."""
    answer, gold = _read(payload["answer"]), _read(payload["gold"])
    if isinstance(answer, Relational) and type(answer) is type(gold):
        return all(_equal(one, other) for one, other in zip(answer.args, gold.args, strict=True))
    return answer is not None and _equal(answer, gold)


def _read(text: str) -> Any:
    try:
        return latex2sympy(text)
    except Exception:  # its parser raises many kinds for what is no LaTeX
        return None


def _equal(one: Any, other: Any) -> bool:
    if one == other:
        return True
    if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
        return False
    return bool(sympy.simplify((one - other).doit()) == 0)
