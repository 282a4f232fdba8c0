"""The line between the program and its tests: plain values cross it, nothing else.

The two sides are different processes in different sandboxes. Values are written with a letter for their
type; whatever is not plain crosses as a number that only its own side can resolve. So a reader can trust
the type of what it read: ``==`` on it is Python's own, whoever sent it.

Mutable containers are numbered within one exchange (a request and its reply), so that two mentions of one
list are one list on the other side, and what a call did to its arguments can be carried back.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    StandIn = Callable[[Any], tuple[bytes, int]]
    Resolve = Callable[[bytes, int], Any]

MAX_BYTES = 1 << 24
MAX_DEPTH = 150

REMOTE, OWN, BUILTIN = b"r", b"c", b"y"
"""Letters: what lives on the program's side, functions on the tests' side, built-ins by their number.

Built-ins cross towards the program only. The tests never take a function from it that runs on their side.
"""

BUILTINS = sorted(vars(builtins))

_CONSTANTS = {b"N": None, b"T": True, b"F": False, b"E": Ellipsis, b"I": NotImplemented}
_SEQUENCES: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"s", frozenset: b"z"}
_FIELDS: dict[tuple[str, str], Callable[[Any], tuple[Any, ...]]] = {
    ("builtins", "complex"): lambda v: (v.real, v.imag),
    ("builtins", "range"): lambda v: (v.start, v.stop, v.step),
    ("builtins", "slice"): lambda v: (v.start, v.stop, v.step),
    ("fractions", "Fraction"): lambda v: (v.numerator, v.denominator),
    ("decimal", "Decimal"): lambda v: (str(v),),
    ("datetime", "date"): lambda v: (v.year, v.month, v.day),
    ("datetime", "timedelta"): lambda v: (v.days, v.seconds, v.microseconds),
    ("datetime", "datetime"): lambda v: (*v.timetuple()[:6], v.microsecond),
    ("datetime", "time"): lambda v: (v.hour, v.minute, v.second, v.microsecond),
}
_MAPPINGS = {("collections", "OrderedDict"), ("collections", "Counter"), ("collections", "defaultdict")}


class WireError(Exception):
    """What was read is not what this file writes, or too large."""


class Exchange:
    """The numbered containers of one request and its reply. ``stand_in`` and ``resolve`` know the sides."""

    def __init__(self, stand_in: StandIn, resolve: Resolve) -> None:
        self._stand_in = stand_in
        self._resolve = resolve
        self.containers: list[Any] = []
        self._numbers: dict[int, int] = {}

    def write(self, value: Any) -> bytes:
        parts: list[bytes] = []
        self._write(value, parts, 0)
        return b"".join(parts)

    def read(self, message: bytes) -> Any:
        """Raises WireError for anything that ``write`` does not write."""
        try:
            value, position = self._read(message, 0, 0)
        except WireError:
            raise
        except Exception as fault:  # lengths, digits, keys: nothing that came in is trusted
            raise WireError(f"{type(fault).__name__}: {fault}") from None
        if position != len(message):
            raise WireError("bytes after the value")
        return value

    def contents(self, count: int) -> list[Any]:
        """What stands now in each of the first ``count`` containers, as fresh plain containers."""
        return [
            list(part.items()) if isinstance(part, dict) else list(part) for part in self.containers[:count]
        ]

    def refill(self, contents: list[Any]) -> None:
        """Puts contents that the other side reported back into our own containers, in place."""
        for own, content in zip(self.containers, contents, strict=False):
            if isinstance(own, dict):
                if list(own.items()) != content:
                    own.clear()
                    own.update(content)
            elif isinstance(own, set):
                own.intersection_update(content)
                own.update(content)
            elif list(own) != content:
                own[:] = content

    def _number(self, container: Any) -> None:
        self._numbers[id(container)] = len(self.containers)
        self.containers.append(container)

    def _write(self, value: Any, parts: list[bytes], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise WireError(f"a value nested more than {MAX_DEPTH} deep")
        kind = type(value)
        if id(value) in self._numbers and kind in (list, dict, set, bytearray):
            parts.append(b"k%d;" % self._numbers[id(value)])
        elif kind in (bool, type(None), type(Ellipsis), type(NotImplemented)):
            parts.extend(letter for letter, constant in _CONSTANTS.items() if constant is value)
        elif kind is int:
            parts.append(b"i%x;" % value if value >= 0 else b"i-%x;" % -value)
        elif kind is float:
            parts.append(b"f%s;" % value.hex().encode())
        elif kind is str:
            encoded = value.encode("utf-8", "surrogatepass")
            parts.append(b"u%d;%s" % (len(encoded), encoded))
        elif kind in (bytes, bytearray):
            if kind is bytearray:
                self._number(value)
            parts.append(b"%s%d;%s" % (b"b" if kind is bytes else b"a", len(value), bytes(value)))
        elif kind in _SEQUENCES:
            if kind in (list, set):
                self._number(value)
            parts.append(b"%s%d;" % (_SEQUENCES[kind], len(value)))
            for part in value:
                self._write(part, parts, depth + 1)
        elif kind is dict:
            self._number(value)
            parts.append(b"d%d;" % len(value))
            for key, part in value.items():
                self._write(key, parts, depth + 1)
                self._write(part, parts, depth + 1)
        else:
            self._write_other(value, parts, depth)

    def _write_other(self, value: Any, parts: list[bytes], depth: int) -> None:
        """Values of the standard library by their fields; all else by a number."""
        kind = type(value)
        name = (kind.__module__, kind.__qualname__)
        known = sys.modules.get(name[0])
        if known is None or getattr(known, name[1], None) is not kind:
            name = ("", "")  # some other type that only calls itself so
        if name in _FIELDS and getattr(value, "tzinfo", None) is None:
            parts.append(b"o")
            self._write((*name, _FIELDS[name](value)), parts, depth + 1)
        elif name in _MAPPINGS:
            parts.append(b"o")
            self._write((*name, (list(value.items()),)), parts, depth + 1)
        elif name == ("collections", "deque"):
            parts.append(b"o")
            self._write((*name, (list(value), value.maxlen)), parts, depth + 1)
        elif isinstance(value, tuple) and _is_namedtuple(kind):
            parts.append(b"n")
            self._write((kind.__name__, kind._fields, tuple(tuple.__iter__(value))), parts, depth + 1)
        else:
            letter, number = self._stand_in(value)
            parts.append(b"%s%d;" % (letter, number))

    def _read(self, message: bytes, at: int, depth: int) -> tuple[Any, int]:
        if depth > MAX_DEPTH + 3:
            raise WireError("a value nested too deep")
        letter = message[at : at + 1]
        if letter in _CONSTANTS:
            return _CONSTANTS[letter], at + 1
        if letter in (b"o", b"n"):
            fields, at = self._read(message, at + 1, depth + 1)
            return (_rebuilt(*fields) if letter == b"o" else _named(*fields)), at
        end = message.find(b";", at)
        if not letter or end < 0:
            raise WireError("the message ends within a value")
        word, at = message[at + 1 : end], end + 1
        if letter == b"i":
            return int(word, 16), at
        if letter == b"f":
            return float.fromhex(word.decode("ascii")), at
        number = int(word)
        if letter == b"k":
            return self.containers[number], at
        if letter in (REMOTE, OWN, BUILTIN):
            return self._resolve(letter, number), at
        if number < 0 or number > len(message) - at:
            raise WireError("a length beyond the message")
        if letter in (b"u", b"b", b"a"):
            content = message[at : at + number]
            at += number
            if letter == b"u":
                return content.decode("utf-8", "surrogatepass"), at
            return (content if letter == b"b" else self._kept(bytearray(content))), at
        return self._read_container(letter, number, message, at, depth)

    def _read_container(
        self, letter: bytes, count: int, message: bytes, at: int, depth: int
    ) -> tuple[Any, int]:
        parts: list[Any] = self._kept([]) if letter == b"l" else []
        keyed: Any = self._kept({} if letter == b"d" else set()) if letter in (b"d", b"s") else None
        for _ in range(2 * count if letter == b"d" else count):
            part, at = self._read(message, at, depth + 1)
            parts.append(part)
        if letter == b"d":
            keyed.update(zip(parts[::2], parts[1::2], strict=True))
        elif letter == b"s":
            keyed.update(parts)
        elif letter in (b"t", b"z"):
            return (tuple(parts) if letter == b"t" else frozenset(parts)), at
        elif letter != b"l":
            raise WireError(f"no value begins with {letter!r}")
        return (parts if keyed is None else keyed), at

    def _kept(self, container: Any) -> Any:
        self._number(container)
        return container


def _is_namedtuple(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return (
        kind.__bases__ == (tuple,)
        and type(fields) is tuple
        and all(type(name) is str for name in fields)
        and "__eq__" not in vars(kind)
    )


def _named(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    from collections import namedtuple

    return namedtuple(name, fields)(*values)


def _rebuilt(module: str, name: str, fields: tuple[Any, ...]) -> Any:
    """A value of the standard library from its fields; only types that this file writes."""
    if (module, name) not in _FIELDS.keys() | _MAPPINGS | {("collections", "deque")}:
        raise WireError(f"no values of type {module}.{name} cross the line")
    __import__(module)
    kind = getattr(sys.modules[module], name)
    if name == "defaultdict":
        return kind(None, *fields)
    if name == "Counter":
        return kind(dict(*fields))
    return kind(*fields)


def plain_content(value: Any) -> Any:
    """The plain value in an object of a class derived from a plain type; TypeError where there is none."""
    if isinstance(value, dict):
        return dict(dict.items(value))
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(kind.__iter__(value))  # pyright: ignore[reportArgumentType]  (the kind it is)
    copies: list[tuple[type, Any]] = [
        (int, int.__int__),
        (float, float.__float__),
        (str, str.__str__),
        (bytes, bytes),
    ]
    for kind, copy in copies:
        if isinstance(value, kind):
            return copy(value)
    raise TypeError("no plain content")


class Line:
    """Messages of at most ``MAX_BYTES`` over a pair of pipes, each with a letter for what it is."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._reader = open(read_fd, "rb", closefd=False)  # noqa: SIM115  (as long as the process)
        self._write_fd = write_fd

    def send(self, letter: bytes, message: bytes) -> None:
        if len(message) > MAX_BYTES:
            raise WireError(f"a value of {len(message)} bytes, more than {MAX_BYTES}")
        packet = memoryview(letter + len(message).to_bytes(4, "big") + message)
        while packet:
            packet = packet[os.write(self._write_fd, packet) :]

    def receive(self) -> tuple[bytes, bytes]:
        """Raises EOFError when the other side is gone."""
        head = self._reader.read(5)
        length = int.from_bytes(head[1:], "big")
        if len(head) < 5:
            raise EOFError
        if length > MAX_BYTES:
            raise WireError(f"a message of {length} bytes, more than {MAX_BYTES}")
        message = self._reader.read(length)
        if len(message) < length:
            raise EOFError
        return head[:1], message
