"""The tests' side of assert tests: runs each test here, and asks the program's side for what it calls.

The results go to the trainer over a pipe of this process's own, each line behind the nonce.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import builtins
import os
import sys

from trimtab.rewards.sandbox.inside.remote import Remote
from trimtab.rewards.sandbox.inside.wire import BUILTIN, BUILTINS, OWN, REMOTE, Exchange, Line, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

LIBRARY = {
    *("math", "cmath", "itertools", "functools", "_functools", "collections", "operator", "_operator"),
    *("string", "re", "datetime", "decimal", "fractions", "statistics", "heapq", "_heapq"),
    *("bisect", "_bisect", "copy", "json", "typing"),
}
"""Modules whose functions the tests take from their own library where the program imported them by name."""

OWN_MODULE = "__test__"
"""Where classes come from that a test defines."""


class ProgramGoneError(BaseException):
    """The program has ended, or does not keep to the line. No test may catch this by accident."""


class UnusableError(BaseException):
    """The test asks for something that cannot be done here; the program is not to blame."""


def run(arguments: dict[str, Any]) -> None:
    """``arguments``: tests [(source, classes, modules)], read and write (ends of the line), status, nonce,
    packages, stop_at_first.
    """
    sys.path.extend(arguments["packages"])
    nonce, status = arguments["nonce"], arguments["status"]

    def report(*words: Any) -> None:
        line = " ".join(str(word) for word in words).encode("unicode_escape")[:400]
        os.write(status, b"%s %s\n" % (nonce.encode(), line))

    program = Program(Line(arguments["read"], arguments["write"]))
    try:
        program.hello()
    except BaseException as fault:
        report("broken", told(fault))
        report("end")
        return
    report("loaded")
    for index, (source, classes, modules) in enumerate(arguments["tests"]):
        program.classes = frozenset(classes)
        outcome, detail = _tried(source, Names(program, frozenset(modules)), program)
        report(outcome, index, detail)
        if outcome in ("gone", "unusable") or (outcome == "failed" and arguments["stop_at_first"]):
            break
    report("end")


def _tried(source: str, names: Names, program: Program) -> tuple[str, str]:
    """``passed``, ``failed``, ``gone`` or ``unusable``, and why."""
    try:
        exec(compile(source, "test.py", "exec", dont_inherit=True, optimize=0), names)
        outcome, detail = "passed", ""
    except UnusableError as fault:
        return "unusable", str(fault)
    except SystemExit:
        return "unusable", "the test itself calls exit"
    except AssertionError as fault:
        outcome, detail = "failed", str(fault)
    except MemoryError:
        program.forget()
        outcome, detail = "failed", "what the program returned filled the memory of the tests"
    except BaseException as fault:
        outcome, detail = "failed", told(fault)
    return ("gone", program.gone) if program.gone else (outcome, detail)


def told(fault: BaseException) -> str:
    """A fault in one line."""
    return str(fault) if isinstance(fault, ProgramGoneError) else f"{type(fault).__name__}: {fault}"


class Program:
    """The program's side. ``gone``: why it cannot be asked any more; empty while it can."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._remotes: dict[int, Remote] = {}
        self._functions: list[Any] = []
        self._exceptions: dict[int, type[BaseException]] = {}
        self.classes: frozenset[str] = frozenset()
        self.gone = ""

    def forget(self) -> None:
        """Lets go of the program's objects, to have memory again."""
        self._remotes.clear()

    def hello(self) -> None:
        """Waits until the program has run to its end; raises what it raised."""
        self._outcome(Exchange(self._stand_in, self._resolve))

    def ask(self, operation: str, *operands: Any) -> Any:
        """Raises what the program raises, ProgramGoneError when it does not answer."""
        if self.gone:
            raise ProgramGoneError(self.gone)
        exchange = Exchange(self._stand_in, self._resolve)
        try:
            self._line.send(b"Q", exchange.write((operation, *operands)))
        except WireError as fault:
            raise ValueError(f"an argument for the program: {fault}") from None
        except OSError:
            self._leave("the program ended before the test was over")
        return self._outcome(exchange)

    def _outcome(self, exchange: Exchange) -> Any:
        try:
            while True:
                letter, message = self._line.receive()
                if letter == b"R":
                    break
                self._called(message)
            outcome, *rest, contents = exchange.read(message)
            exchange.refill(contents)
            if outcome == "ok":
                (returned,) = rest
                return returned
            classes, builtin, arguments = rest
            kind = self.exception(classes, builtin)
            fault = kind.__new__(kind)
            fault.args = arguments
        except (EOFError, OSError):
            self._leave("the program ended before the test was over")
        except (WireError, TypeError, ValueError, AttributeError, KeyError) as broken:
            self._leave(f"the program did not keep to the line: {broken}")
        if not isinstance(fault, Exception):
            self._leave(
                "the program called exit" if isinstance(fault, SystemExit) else f"raised {kind.__name__}"
            )
        raise fault

    def _leave(self, why: str) -> NoReturn:
        self.gone = why
        raise ProgramGoneError(why)

    def exception(self, classes: Any, builtin: Any) -> type[BaseException]:
        """Our own class for a class of the program's exceptions, under the same base classes."""
        made = getattr(builtins, builtin)
        if not issubclass(made, BaseException):
            raise WireError("an exception that is none")
        for number, module, name in reversed(classes):
            if number not in self._exceptions:
                own: Any = _library(module, name) if module in sys.stdlib_module_names else None
                if not (isinstance(own, type) and issubclass(own, BaseException)):
                    own = type(str(name), (made,), {})
                self._exceptions[number] = own
            made = self._exceptions[number]
        return made

    def _called(self, message: bytes) -> None:
        """The program calls a function that a test gave to it."""
        exchange = Exchange(self._stand_in, self._resolve)
        number, positional, named = exchange.read(message)
        count = len(exchange.containers)
        try:
            reply = ("ok", self._functions[number](*positional, **named))
        except Exception as fault:
            base = next(kind for kind in type(fault).__mro__ if kind.__module__ == "builtins")
            reply = ("raised", (base.__name__, str(fault)))
        self._line.send(b"R", exchange.write((*reply, exchange.contents(count))))

    def _stand_in(self, value: Any) -> tuple[bytes, int]:
        if isinstance(value, Remote):
            return REMOTE, value._trimtab_number
        name = getattr(value, "__name__", None)
        if name in BUILTINS and getattr(builtins, str(name)) is value:
            return BUILTIN, BUILTINS.index(name)
        if not callable(value):
            kind = type(value)
            if kind.__module__ != OWN_MODULE:
                raise ValueError(f"a {kind.__name__} cannot be given to the program")
            raise UnusableError(f"the test gives the program an object of its own class {kind.__name__}")
        self._functions.append(value)
        return OWN, len(self._functions) - 1

    def _resolve(self, letter: bytes, number: int) -> Any:
        if letter == REMOTE:
            return self._remotes.setdefault(number, Remote(self, number))
        if letter == OWN:
            return self._functions[number]
        raise WireError("the program hands over a built-in")


class Names(dict[str, object]):
    """The global names of a test: its own first, then built-ins and the library, then the program's.

    So no name of the program replaces a built-in or a module in a test.
    """

    def __init__(self, program: Program, modules: frozenset[str]) -> None:
        super().__init__(__name__=OWN_MODULE, __builtins__=builtins)
        self._program = program
        self._modules = modules

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        if name in self._modules:
            return __import__(name)
        kind, value = self._program.ask("name", name)
        if kind == "module" and (module := _imported(value)) is not None:
            return module
        if kind == "exception":
            return self._program.exception(*value)
        if kind == "library":
            module, qualified, value = value
            own = _library(module, name) if module in LIBRARY and qualified == name else None
            if own is not None:
                return own
        if isinstance(value, Remote):
            object.__setattr__(value, "_trimtab_name", name)
        return value


def _library(module: Any, name: Any) -> Any:
    return getattr(_imported(module), str(name), None)


def _imported(module: Any) -> Any:
    """A module of our own library under the name that the program gave; None where there is none."""
    if type(module) is not str or module.startswith("trimtab"):
        return None
    try:
        __import__(module)
        return sys.modules[module]
    except Exception:
        return None
