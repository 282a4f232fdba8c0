"""Reads assert tests before they run: are they usable, and which names do they take from the program?"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import builtins
import collections
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_PLAIN_TYPES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, collections.deque)
_PLAIN_ATTRIBUTES = {name for kind in _PLAIN_TYPES for name in dir(kind)} | set(dir(collections.Counter))


class UnusableTestError(ValueError):
    """A gold test that cannot tell a right program from a wrong one; the message says why."""


@dataclass(frozen=True, slots=True)
class AssertTest:
    """One assert test.

    source: Python, with at least one ``assert`` or ``raise``.
    classes: names of the program that the test uses as classes, by taking an attribute of what a call of
        them returns that no plain value has: ``s = Stack(); s.push(1)``. Only their objects may answer by
        operators of their own.
    modules: names of the standard library that the test uses as modules without importing them.
    """

    source: str
    classes: frozenset[str]
    modules: frozenset[str]


@lru_cache(maxsize=8192)
def read_assert(text: str) -> AssertTest:
    """The test in ``text``; a bare expression is asserted. Raises UnusableTestError."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise UnusableTestError(f"is no Python: {fault}") from None
    if not any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(tree)):
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
            raise UnusableTestError("asserts nothing")
        text = f"assert {text}" if "\n" not in text.strip() else f"assert (\n{text}\n)"
    loaded, bound = _names(tree)
    modules = _modules(tree, bound)
    if not loaded - bound - modules - set(dir(builtins)):
        raise UnusableTestError("uses nothing that a program defines")
    return AssertTest(text, _classes(tree), frozenset(modules))


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Names that are read somewhere, and names that the test binds itself."""
    loaded: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return loaded, bound


def _modules(tree: ast.AST, bound: set[str]) -> set[str]:
    called = {name for name, _ in _calls(tree)}
    used = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return (used & sys.stdlib_module_names) - bound - called


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node


def _classes(tree: ast.AST) -> frozenset[str]:
    """Names N for which the test reads ``N(...).attribute``, or ``v.attribute`` after ``v = N(...)``."""
    variables: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            value, targets = node.value, node.targets if isinstance(node, ast.Assign) else [node.target]
        elif isinstance(node, ast.withitem):
            value, targets = node.context_expr, [node.optional_vars]
        else:
            continue
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            variables |= {target.id: value.func.id for target in targets if isinstance(target, ast.Name)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr in _PLAIN_ATTRIBUTES:
            continue
        if isinstance(node.value, ast.Name) and node.value.id in variables:
            found.add(variables[node.value.id])
        elif isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            found.add(node.value.func.id)
    return frozenset(found - set(dir(builtins)))
