"""TensorBoard's event files, read without TensorBoard: scalars only, damage told.

A file is a row of records: length (8 bytes), its masked CRC-32C (4), data (length), the data's masked CRC-32C
(4), little-endian. The data is a protobuf message ``Event``, of which these fields are read:

    Event    1 wall_time double   2 step int64   5 summary Summary
    Summary  1 value, repeated:   1 tag string   2 simple_value float   8 tensor TensorProto
    Tensor   1 dtype   4 content bytes   5 float_val   6 double_val      of one element

Source: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto,
lib/io/record_writer.cc.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LARGEST_CHECKED = 1 << 16
"""Bytes of a record up to which it is checked and read; scalars are far smaller, larger ones are pictures."""

LARGEST = 1 << 31
POLYNOMIAL = 0x82F63B78
DT_FLOAT, DT_DOUBLE = 1, 2


class Scalar(NamedTuple):
    """One number of an event file; ``time`` in seconds since 1970."""

    tag: str
    step: int
    time: float
    value: float


class DamagedError(ValueError):
    """The file is no event file from here on."""


def scalars(path: Path) -> Iterator[Scalar]:
    """All scalars in order. Raises DamagedError after the last whole record, where more should have come."""
    with path.open("rb") as file:
        while head := file.read(12):
            if len(head) < 12:
                raise DamagedError("it is cut off inside a record")
            (length,) = struct.unpack_from("<Q", head)
            if length > LARGEST or struct.unpack_from("<I", head, 8)[0] != masked_crc(head[:8]):
                raise DamagedError("a record has a wrong length")
            data, check = file.read(length), file.read(4)
            if len(data) < length or len(check) < 4:
                raise DamagedError("it is cut off inside a record")
            if length <= LARGEST_CHECKED:
                if struct.unpack("<I", check)[0] != masked_crc(data):
                    raise DamagedError("a record's checksum is wrong")
                try:
                    yield from _event(data)
                except (IndexError, struct.error, UnicodeDecodeError) as problem:
                    raise DamagedError("a record is no event") from problem


def masked_crc(data: bytes) -> int:
    """The checksum of these files: CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _row(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_row(byte) for byte in range(256))


def _event(data: bytes) -> Iterator[Scalar]:
    time, step, summaries = 0.0, 0, list[bytes]()
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            time = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes) and (found := _value(value)) is not None:
                yield Scalar(found[0], step, time, found[1])


def _value(data: bytes) -> tuple[str, float] | None:
    tag, scalar = "", None
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            tag = value.decode()
        elif number == 2 and len(value) == 4:
            scalar = struct.unpack("<f", value)[0]
        elif number == 8:
            scalar = _tensor(value)
    return None if scalar is None or not tag else (tag, scalar)


def _tensor(data: bytes) -> float | None:
    """The number of a tensor with one element of float or double; None for any other."""
    kind, packed = 0, b""
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            packed = value
    sizes = {DT_FLOAT: (4, "<f"), DT_DOUBLE: (8, "<d")}
    size, form = sizes.get(kind, (0, ""))
    return struct.unpack(form, packed)[0] if size and len(packed) == size else None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field: varints as int, everything else as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        if kind == 2:
            size, place = _varint(data, place)
        else:
            size = {1: 8, 5: 4}[kind] if kind in (1, 5) else len(data) + 1
        if place + size > len(data):
            raise IndexError("a field is longer than its message")
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
        if shift > 63:
            raise IndexError("a number of more than 64 bits")
