"""Objects of the program as the tests hold them: a number, and questions to the program's side.

What a test compares is compared here, on plain values. An operator between an object of the program and
plain data is not handed to the program: it would learn what is expected, and could answer as it likes.
Instead the object's plain content (of a list, say, that a class of the program is derived from) is fetched
and Python's own operator decides; an object without one equals no plain value. Only objects that the tests
themselves use as objects (``sentences.py``) may answer by their own operators.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import operator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Protocol

    class Asking(Protocol):
        """The other end of the line. ``classes``: names that the tests at hand use as classes."""

        classes: frozenset[str]

        def ask(self, operation: str, *operands: Any) -> Any: ...


class Remote:
    """``declared``: the tests treat this object as one of the program's classes, operators included."""

    __slots__ = ("_trimtab_declared", "_trimtab_name", "_trimtab_number", "_trimtab_program")

    def __init__(self, program: Asking, number: int) -> None:
        object.__setattr__(self, "_trimtab_program", program)
        object.__setattr__(self, "_trimtab_number", number)
        object.__setattr__(self, "_trimtab_declared", False)
        object.__setattr__(self, "_trimtab_name", None)

    def __getattr__(self, name: str) -> Any:
        return self._trimtab_program.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._trimtab_program.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._trimtab_program.ask("delattr", self, name)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        made = self._trimtab_program.ask("call", self, positional, named)
        if isinstance(made, Remote) and self._trimtab_name in self._trimtab_program.classes:
            declare(made)
        return made

    def __dir__(self) -> list[str]:
        return self._trimtab_program.ask("dir", self)

    def __iter__(self) -> Iterator[Any]:
        iterator = self._trimtab_program.ask("iter", self)
        while True:
            try:
                yield self._trimtab_program.ask("next", iterator)
            except StopIteration:
                return

    def __contains__(self, value: Any) -> bool:
        if self._trimtab_declared or isinstance(value, Remote):
            return bool(self._trimtab_program.ask("contains", self, value))
        return any(value is part or value == part for part in self)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, Remote) and bool(self._trimtab_program.ask("isinstance", instance, self))

    def __subclasscheck__(self, kind: Any) -> bool:
        return isinstance(kind, Remote) and bool(self._trimtab_program.ask("issubclass", kind, self))

    def __eq__(self, other: object) -> bool:
        return _judged("eq", self, other, unlike=False)

    def __ne__(self, other: object) -> bool:
        return _judged("ne", self, other, unlike=True)

    def __hash__(self) -> int:
        return _checked(self._trimtab_program.ask("hash", self), int)

    def __bool__(self) -> bool:
        return _checked(self._trimtab_program.ask("bool", self), bool)

    def __enter__(self) -> Any:
        entered = self._trimtab_program.ask("enter", self)
        return entered

    def __exit__(self, *_: object) -> None:
        self._trimtab_program.ask("exit", self)


def declare(value: Remote) -> None:
    """Lets this object answer by its own operators."""
    object.__setattr__(value, "_trimtab_declared", True)


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"the program answered {type(value).__name__} where {kind.__name__} is due")
    return value


def _judged(name: str, left: Any, right: Any, *, unlike: bool | None = None) -> Any:
    """The outcome of an operator of which at least one operand is the program's.

    ``unlike``: the outcome where plain data meets an object without plain content; None raises TypeError.
    """
    objects = [side for side in (left, right) if isinstance(side, Remote)]
    program = objects[0]._trimtab_program
    declared = any(side._trimtab_declared for side in objects)
    if declared or len(objects) == 2:
        outcome = program.ask(name, left, right)
        if isinstance(outcome, Remote) and declared:
            declare(outcome)
        return outcome
    try:
        content = program.ask("plain", objects[0])
    except TypeError:
        if unlike is None:
            raise TypeError(f"{name} of plain data and an object of the program without any") from None
        return unlike
    if isinstance(content, Remote):
        raise TypeError("the program answered an object where plain content is due")
    function = _OPERATORS[name]
    return function(content, right) if isinstance(left, Remote) else function(left, content)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, f"__{name}__")
    for name in (
        *("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
        *("matmul", "and", "or", "xor", "lshift", "rshift"),
    )
}
_WITHOUT_REFLECTION = ("eq", "ne", "lt", "le", "gt", "ge")
_ASKED = {
    "str": str, "repr": str, "len": int, "int": int, "float": float, "index": int, "format": str,
    "next": None, "abs": None, "round": None, "reversed": None, "neg": None, "pos": None, "invert": None,
    "getitem": None, "setitem": None, "delitem": None,
}  # fmt: skip
"""Questions with no plain data to compare with, and the type that Python expects as answer."""


def _install() -> None:
    """Gives ``Remote`` the special methods that are alike but for their name."""
    for name in (name for name in _OPERATORS if name not in ("eq", "ne")):
        setattr(Remote, f"__{name}__", lambda self, other, name=name: _judged(name, self, other))
        if name not in _WITHOUT_REFLECTION:
            setattr(Remote, f"__r{name}__", lambda self, other, name=name: _judged(name, other, self))
    for name, kind in _ASKED.items():

        def method(self: Remote, *operands: Any, name: str = name, kind: type | None = kind) -> Any:
            answer = self._trimtab_program.ask(name, self, *operands)
            return answer if kind is None else _checked(answer, kind)

        setattr(Remote, f"__{name}__", method)


_install()
