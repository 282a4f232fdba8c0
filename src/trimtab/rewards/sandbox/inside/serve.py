"""The program's side of assert tests: runs the program, then does what the tests ask, one thing at a time.

Nothing of the tests is here: it gets the arguments of calls, and sends back what the calls return. The
program can do as it likes in this process, and all it gains is to send other values.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import builtins
import operator
import sys

from trimtab.rewards.sandbox.inside.program import prepare
from trimtab.rewards.sandbox.inside.wire import (
    BUILTIN,
    BUILTINS,
    OWN,
    REMOTE,
    Exchange,
    Line,
    WireError,
    plain_content,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPERATIONS: dict[str, Any] = {
    "len": len, "iter": iter, "next": next, "str": str, "repr": repr, "bool": bool, "int": int,
    "float": float, "index": operator.index, "hash": hash, "abs": abs, "round": round, "format": format,
    "reversed": reversed, "isinstance": isinstance, "issubclass": issubclass, "neg": operator.neg,
    "pos": operator.pos, "invert": operator.invert, "getitem": operator.getitem,
    "setitem": operator.setitem, "delitem": operator.delitem, "contains": operator.contains,
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow, "matmul": operator.matmul,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift,
    "rshift": operator.rshift, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "getattr": getattr, "setattr": setattr,
    "delattr": delattr, "plain": plain_content, "dir": dir,
    "call": lambda function, positional, named: function(*positional, **named),
    "enter": lambda context: type(context).__enter__(context),
    "exit": lambda context: type(context).__exit__(context, None, None, None),
}  # fmt: skip
"""Everything that tests can ask for, by name."""


def run(arguments: dict[str, Any]) -> None:
    """``arguments``: the program's source, folders of packages, and the two ends of the line."""
    line = Line(arguments["read"], arguments["write"])
    module = prepare("solution", arguments["packages"])
    server = Server(line, module.__dict__)
    try:
        exec(compile(arguments["program"], "program.py", "exec"), module.__dict__)
    except BaseException as fault:
        server.say(Exchange(server.stand_in, server.resolve), server.raised(fault, []))
        return
    server.say(Exchange(server.stand_in, server.resolve), ("ok", None, []))
    server.serve(until_reply=False)


class Server:
    """``objects``: what the tests hold numbers of."""

    def __init__(self, line: Line, namespace: dict[str, Any]) -> None:
        self._line = line
        self._namespace = namespace
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}

    def stand_in(self, value: Any) -> tuple[bytes, int]:
        if isinstance(value, TestFunction):
            return OWN, value.number
        number = self._numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return REMOTE, number

    def resolve(self, letter: bytes, number: int) -> Any:
        if letter == BUILTIN:
            return getattr(builtins, BUILTINS[number])
        return self.objects[number] if letter == REMOTE else TestFunction(self, number)

    def serve(self, *, until_reply: bool) -> bytes:
        """Does what is asked, for ever, or until the reply to a question of our own comes."""
        while True:
            try:
                letter, message = self._line.receive()
            except EOFError:
                sys.exit(0)
            if letter == b"R" and until_reply:
                return message
            self._answer(message)

    def _answer(self, message: bytes) -> None:
        exchange = Exchange(self.stand_in, self.resolve)
        operation, *operands = exchange.read(message)
        count = len(exchange.containers)
        try:
            done = self._name(*operands) if operation == "name" else OPERATIONS[operation](*operands)
            reply = ("ok", done, exchange.contents(count))
        except BaseException as fault:
            reply = self.raised(fault, exchange.contents(count))
        self.say(exchange, reply)

    def say(self, exchange: Exchange, reply: tuple[Any, ...]) -> None:
        try:
            message = exchange.write(reply)
            self._line.send(b"R", message)
        except (WireError, RecursionError) as fault:
            fresh = Exchange(self.stand_in, self.resolve)
            self._line.send(b"R", fresh.write(("raised", [], "ValueError", (str(fault),), [])))

    def ask(self, number: int, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Calls a function of the tests that was handed to the program."""
        exchange = Exchange(self.stand_in, self.resolve)
        self._line.send(b"C", exchange.write((number, positional, named)))
        outcome, returned, contents = exchange.read(self.serve(until_reply=True))
        exchange.refill(contents)
        if outcome == "ok":
            return returned
        name, told = returned
        raise getattr(builtins, name, RuntimeError)(told)

    def raised(self, fault: BaseException, contents: list[Any]) -> tuple[Any, ...]:
        """("raised", classes from the most derived on, built-in class, arguments, contents)."""
        own = [kind for kind in type(fault).__mro__ if kind.__module__ != "builtins"]
        builtin = next(kind for kind in type(fault).__mro__ if kind.__module__ == "builtins")
        classes = [self._described(kind) for kind in own if issubclass(kind, BaseException)]
        try:
            told = str(fault)[:1000]
            plain = all(type(part) in (str, int, float, bool, type(None)) for part in fault.args)
            unchanged = told == str(builtin(*fault.args))
        except Exception:
            told, plain, unchanged = "", False, False
        return ("raised", classes, builtin.__name__, fault.args if plain and unchanged else (told,), contents)

    def _described(self, kind: type) -> tuple[Any, ...]:
        return (self.stand_in(kind)[1], kind.__module__, kind.__qualname__)

    def _name(self, name: str) -> tuple[str, Any]:
        """What a name of the program stands for, as (kind, what); KeyError where there is no such name."""
        value = self._namespace[name]
        if isinstance(value, type(sys)):
            return "module", value.__name__
        if isinstance(value, type) and issubclass(value, BaseException):
            chain = [kind for kind in value.__mro__ if issubclass(kind, BaseException)]
            own = [self._described(kind) for kind in chain if kind.__module__ != "builtins"]
            builtin = next(kind.__name__ for kind in chain if kind.__module__ == "builtins")
            return "exception", (own, builtin)
        module = getattr(value, "__module__", None)
        if type(module) is str and module in sys.stdlib_module_names and callable(value):
            return "library", (module, getattr(value, "__qualname__", ""), value)
        return "value", value


class TestFunction:
    """A function that lives on the tests' side and was given to the program as an argument."""

    __test__ = False

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self.number = number

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._server.ask(self.number, positional, named)
