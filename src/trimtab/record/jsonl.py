"""JSON Lines that survive a kill at any byte: a line counts once its newline is there."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

LAST_BYTES = 1 << 20
"""Of a file's end that are searched for its last line."""


def plain(value: object) -> Any:
    """A value of settings or facts as JSON can hold it; ``inf`` and ``nan`` become those words."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return [plain(item) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def line(fields: Mapping[str, Any]) -> bytes:
    """One line with its newline. Strict JSON: a NaN raises ValueError instead of being written.

    Half a surrogate pair, which UTF-8 does not know, becomes a question mark.
    """
    text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


class JsonlWriter:
    """Appends whole lines, each handed to the system at once, so that a kill tears at most the last."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._cut_torn_line()

    def write(self, fields: Mapping[str, Any]) -> None:
        rest = memoryview(line(fields))
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def close(self) -> None:
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        """Drop what a killed writer left after the last newline; no reader has counted it."""
        size = os.lseek(self._file, 0, os.SEEK_END)
        end = size
        while end:
            start = max(0, end - 65536)
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            end = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        if end < size:
            os.ftruncate(self._file, end)


class Line(NamedTuple):
    """A complete line, without its newline, and where it starts."""

    offset: int
    text: bytes

    @property
    def lines(self) -> Iterator[Line]:
        """Of a block of lines each one."""
        offset = self.offset
        for text in self.text.split(b"\n")[:-1]:
            yield Line(offset, text)
            offset += len(text) + 1


class JsonlTail:
    """Reads the complete lines that were added since the last time; never past a torn one.

    ``offset`` is where the next read starts; ``torn`` the bytes after the last newline at the last read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.torn = 0

    def read(self) -> Iterator[Line]:
        """New lines, oldest first. A file that is not there yet has none."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            self.torn = 0
            for text in file:
                if not text.endswith(b"\n"):
                    self.torn = len(text)
                    return
                start = self.offset
                self.offset += len(text)
                yield Line(start, text[:-1])

    def waiting(self) -> int:
        """Bytes added since the last read."""
        return self.path.stat().st_size - self.offset if self.path.exists() else 0

    def blocks(self, size: int) -> Iterator[Line]:
        """New lines as ``read`` has them, about ``size`` bytes of them at once, each with its newline."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while True:
                file.seek(self.offset)
                text = file.read(size)
                text += b"" if text.endswith(b"\n") else file.readline()
                whole = text[: text.rfind(b"\n") + 1]
                self.torn = len(text) - len(whole)
                if not whole:
                    return
                start = self.offset
                self.offset += len(whole)
                yield Line(start, whole)

    def spread(self, count: int) -> Iterator[Line]:
        """About ``count`` complete lines, evenly over the file and the last one among them, in order.

        They do not count as read.
        """
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            places = [place * size // count for place in range(count)]
            end = 0
            for place in (*places, _last_line(file, size)):
                file.seek(max(place - 1, 0))
                if place:
                    file.readline()  # to the start of a line, from the byte before in case this is one
                start = file.tell()
                text = file.readline() if start >= end else b""
                if text.endswith(b"\n"):
                    end = start + len(text)
                    yield Line(start, text[:-1])

    def at(self, offset: int) -> bytes:
        """The line that starts at ``offset``."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.readline().rstrip(b"\n")


def _last_line(file: BinaryIO, size: int) -> int:
    """Where the last complete line starts; 0 where it is longer than what is looked at."""
    first = max(0, size - LAST_BYTES)
    file.seek(first)
    text = file.read(size - first)
    start = text.rfind(b"\n", 0, max(text.rfind(b"\n"), 0)) + 1
    return first + start if start else 0
