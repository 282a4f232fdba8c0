"""Pairs of answers of which a human, or a judge, preferred one: a JSON Lines file that several may append to.

Read are the common forms of ``prompt`` / ``chosen`` / ``rejected``:

    {"prompt": "2+3?", "chosen": "5", "rejected": "6"}                     texts
    {"prompt": [messages], "chosen": [message], "rejected": [message]}     messages
    {"chosen": [messages], "rejected": [messages]}                         the prompt is what both share
    {"chosen": "\\n\\nHuman: 2+3?\\n\\nAssistant: 5", "rejected": ...}      the same, as a dialogue text

and beside them, where the pair is of a run, ``run``, ``step``, ``chosen_rollout``, ``rejected_rollout``.
A line counts once its newline is there, so a file may be appended to while it is read.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import DataError, nearest
from trimtab.rewards.shown import Message

TURN = "\n\nAssistant:"
KEYS = ("prompt", "chosen", "rejected")
OPTIONAL = ("run", "step", "chosen_rollout", "rejected_rollout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two responses to one prompt, a text or messages; the first was preferred.

    run, step, chosen_rollout, rejected_rollout: where the pair comes from; rollouts by their keys.
    """

    prompt: str | tuple[Message, ...]
    chosen: str
    rejected: str
    run: str | None = None
    step: int | None = None
    chosen_rollout: str | None = None
    rejected_rollout: str | None = None


class PairsRead(NamedTuple):
    """The pairs of a file, how many rows had two equal responses, and the bytes of a torn last line."""

    pairs: list[Pair]
    identical: int
    torn: int


def append_pair(path: str | Path, pair: Pair) -> None:
    """Add a line, whole or not at all, from any thread or process; a torn line at the end is cut off first.

    Raises OSError when the file cannot be written.
    """
    fields = {key: getattr(pair, key) for key in (*KEYS, *OPTIONAL)}
    told = {key: _plain(value) for key, value in fields.items() if value is not None}
    line = json.dumps(told, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        line = _mended(file) + line
        if os.write(file, line) != len(line):  # a full disk: the next writer cuts what is torn
            raise OSError(f"{path}: the pair could not be written whole")
    finally:
        os.close(file)


def read_pairs(path: str | Path) -> PairsRead:
    """Every pair whose line is complete, in order. Raises DataError, naming the row, for one that is none."""
    try:
        content = Path(path).read_bytes()
    except OSError as fault:
        raise DataError(f"pairs file {path} cannot be read: {fault.strerror or fault}") from None
    lines, torn = content.split(b"\n"), b""
    if lines[-1] and _parsed(lines[-1]) is None:
        torn = lines.pop()
    pairs: list[Pair] = []
    identical = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        pair = read_pair(line, f"{path}, row {number}")
        if pair.chosen == pair.rejected:
            identical += 1
        else:
            pairs.append(pair)
    return PairsRead(pairs, identical, len(torn))


def read_pair(line: bytes, place: str) -> Pair:
    """The pair of one line. Raises DataError, beginning with ``place``."""
    row = _parsed(line)
    if row is None:
        raise DataError(
            f"{place}: not a JSON object; write one object a line with prompt, chosen and rejected"
        )
    for key in ("chosen", "rejected"):
        if key not in row:
            raise DataError(f"{place}: there is no {key!r}{nearest(key, row)}")
    given = row.get("prompt")
    prompt = None if given is None else _content(given, f"{place}, prompt")
    chosen, rejected = (_content(row[key], f"{place}, {key}") for key in ("chosen", "rejected"))
    if prompt is None:
        prompt = _shared(chosen, rejected, place)
    told = {key: row.get(key) for key in OPTIONAL}
    for key, value in told.items():
        kind = int if key == "step" else str
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise DataError(f"{place}: {key} must be {'a number' if kind is int else 'text'}, got {value!r}")
    return Pair(
        prompt=prompt,
        chosen=_response(chosen, prompt, f"{place}, chosen"),
        rejected=_response(rejected, prompt, f"{place}, rejected"),
        **told,
    )


Content = str | tuple[Message, ...]


def _content(value: Any, place: str) -> Content:
    """A text, or messages with role and content."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise DataError(f"{place} must be a text or a list of messages, got {_short(value)}")
    for number, message in enumerate(value, 1):
        spoken = isinstance(message, Mapping) and all(
            isinstance(message.get(key), str) for key in ("role", "content")
        )
        if not spoken:
            raise DataError(
                f"{place}: message {number} needs role and content as text, got {_short(message)}"
            )
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _shared(chosen: Content, rejected: Content, place: str) -> Content:
    """The prompt that two whole conversations have in common."""
    if isinstance(chosen, str) and isinstance(rejected, str):
        differing = (i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b)
        shared = chosen[: next(differing, min(len(chosen), len(rejected)))]
        end = shared.rfind(TURN)
        if end < 0:
            raise DataError(
                f'{place}: there is no "prompt", and chosen and rejected share no beginning that ends with '
                f"{TURN.strip()!r}; give the prompt"
            )
        return shared[: end + len(TURN)]
    if isinstance(chosen, str) or isinstance(rejected, str):
        raise DataError(f"{place}: chosen and rejected must both be texts or both be lists of messages")
    count = 0
    while count < min(len(chosen), len(rejected)) - 1 and chosen[count] == rejected[count]:
        count += 1
    if not count:
        raise DataError(f'{place}: there is no "prompt", and chosen and rejected do not begin alike')
    return chosen[:count]


def _response(content: Content, prompt: Content, place: str) -> str:
    """The words of the answer: the text without the prompt's, or the one assistant message after it."""
    if isinstance(content, str):
        return content[len(prompt) :] if isinstance(prompt, str) and _dialogue(content, prompt) else content
    asked = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    rest = content[len(asked) :] if content[: len(asked)] == asked else content
    if len(rest) != 1 or rest[0]["role"] != "assistant":
        roles = ", ".join(message["role"] for message in rest) or "nothing"
        raise DataError(f"{place} must add one assistant message to the prompt, but adds: {roles}")
    return rest[0]["content"]


def _dialogue(content: str, prompt: str) -> bool:
    return prompt.endswith(TURN) and content.startswith(prompt)


def _mended(file: int) -> bytes:
    """What must stand before the next line: a newline after a whole object without one; torn ends are cut."""
    size = os.lseek(file, 0, os.SEEK_END)
    tail, start = b"", size
    while start and b"\n" not in tail:
        start = max(0, start - 65_536)
        tail = os.pread(file, size - start, start)
    last = tail[tail.rfind(b"\n") + 1 :]
    if last and _parsed(last) is not None:
        return b"\n"
    if last:
        os.ftruncate(file, size - len(last))
    return b""


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [dict(message) for message in value]
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
