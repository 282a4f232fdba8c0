"""A scorer of reasoning-gym in a worker: one answer to one question, scored.

Scorers that hand an answer to ``eval`` or to sympy's parser would run whatever a model writes. Those known
here are only given answers that cannot do anything but be a value; others like them are refused as a whole.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import lru_cache
from typing import Any

import reasoning_gym  # pyright: ignore[reportMissingImports]  (optional)
from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]  (optional)

LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Their scorers evaluate an answer as a Python list."""
FORMULAS = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Their scorers have sympy evaluate an answer as a formula."""
HARMLESS = frozenset(
    {"basic_arithmetic", "bitwise_arithmetic", "codeio", "number_sorting", "propositional_logic"}
)
"""They evaluate their own questions, never an answer (read at 0.1.25)."""
TUPLES = frozenset({"arc_agi", "rearc"})
"""Their scorers compare tuples."""
LONGEST_EVALUATED = 2000

_EVALUATES = re.compile(r"(?<!literal_)\b(?:eval|exec|parse_expr|sympify)\(")
_PLAIN = (
    ast.Expression,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.USub,
    ast.UAdd,
)
_FORMULA = re.compile(r"[\w\s+\-*/^().,]*", re.ASCII)
_LARGE = re.compile(
    r"\d{31}|(?:\*\*|\^)(?!\s*\(?\s*-?\d{1,3}(?:\s*/\s*\d{1,3})?\s*\)?(?!\s*(?:\*\*|\^|[\d.e])))"
)
"""Numbers and powers that take long to compute; only small powers, and no towers of them, are computed."""
_FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"}
    | {"exp", "log", "ln", "sqrt", "Abs", "pi", "erf"}
)


class UntrustedScorerError(Exception):
    """A scorer evaluates answers in a way that is not known here."""


def score(payload: dict[str, Any]) -> dict[str, Any]:
    """``{"score", "refused"}``: the score of ``answer``, or why it was not shown to the scorer.

    Raises UntrustedScorerError.
    """
    kept, answer = payload["entry"], payload["answer"]
    name = kept["dataset"]
    _trusted(name)
    if refused := refusal(name, answer):
        return {"score": 0.0, "refused": refused}
    entry = {key: kept[key] for key in ("question", "answer", "metadata")}
    if name in TUPLES:
        entry["metadata"] = _with_tuples(entry["metadata"])
    return {
        "score": float(_dataset(name, json.dumps(kept["settings"])).score_answer(answer, entry)),
        "refused": "",
    }


def refusal(dataset: str, answer: str) -> str:
    """Why this answer must not reach the scorer of this dataset; empty when it may."""
    if dataset not in LITERALS and dataset not in FORMULAS:
        return ""
    if len(answer) > LONGEST_EVALUATED:
        return f"more than {LONGEST_EVALUATED} characters to evaluate"
    if dataset in LITERALS:
        return "" if _is_plain(answer) else "the answer is code, not a value"
    if _LARGE.search(answer):
        return "a number or a power in the answer is too large to compute"
    names = re.findall(r"[^\W\d]\w*", answer)
    known = all(name in _FUNCTIONS or (len(name) == 1 and name != "_") for name in names)
    return "" if known and _FORMULA.fullmatch(answer) else "the answer is no plain formula"


def _is_plain(answer: str) -> bool:
    """A value, or text that Python refuses to parse, which is never evaluated."""
    try:
        tree = ast.parse(answer.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return True
    return all(isinstance(node, (*_PLAIN, ast.Name, ast.Load)) for node in ast.walk(tree))


@lru_cache
def _trusted(name: str) -> None:
    if name in LITERALS | FORMULAS | HARMLESS:
        return
    module = inspect.getmodule(DATASETS[name][0])
    if module is None or _EVALUATES.search(inspect.getsource(module)):
        raise UntrustedScorerError(
            f"the scorer of gym:{name} may evaluate answers as code, and is not known here; "
            "use another dataset"
        )


@lru_cache(maxsize=16)
def _dataset(name: str, settings: str) -> Any:
    return reasoning_gym.create_dataset(name, seed=0, size=1, **json.loads(settings))


def _with_tuples(value: Any) -> Any:
    """Lists, which JSON made of tuples, as tuples again."""
    if isinstance(value, list):
        return tuple(map(_with_tuples, value))
    return {key: _with_tuples(inner) for key, inner in value.items()} if isinstance(value, dict) else value
