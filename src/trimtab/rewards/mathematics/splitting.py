"""Cuts a list of tokens at joins, relations and brackets of the outermost level."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trimtab.rewards.mathematics.tokens import Token, Unreadable

_OPENING, _CLOSING = ("(", "[", "{", "\\{"), (")", "]", "}", "\\}")


def depths(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Each token with its depth; brackets count as outside what they enclose. Raises Unreadable below 0."""
    depth = 0
    for token in tokens:
        if token.is_sign(*_CLOSING) or token.kind == "end" or token.is_name("rangle"):
            depth -= 1
            if depth < 0:
                raise Unreadable(f"{token.text} that was never opened")
        yield depth, token
        if token.is_sign(*_OPENING) or token.kind == "begin" or token.is_name("langle"):
            depth += 1
    if depth:
        raise Unreadable("a bracket that is never closed")


def split(
    tokens: Sequence[Token], is_cut: Callable[[Token], bool]
) -> tuple[list[Sequence[Token]], list[Token]]:
    """The parts between the outermost tokens that are cuts, and those tokens."""
    parts: list[Sequence[Token]] = []
    cuts: list[Token] = []
    start = 0
    for at, (depth, token) in enumerate(depths(tokens)):
        if depth == 0 and is_cut(token):
            parts.append(tokens[start:at])
            cuts.append(token)
            start = at + 1
    return [*parts, tokens[start:]], cuts


def is_enclosed(tokens: Sequence[Token]) -> bool:
    """One pair of brackets goes round everything."""
    if len(tokens) < 2 or not (tokens[0].is_sign(*_OPENING) or tokens[0].is_name("langle")):
        return False
    levels = [depth for depth, _ in depths(tokens)]
    return levels[-1] == 0 and all(levels[1:-1])


def is_comma(token: Token) -> bool:
    """A comma or a semicolon."""
    return token.is_sign(",", ";")


def is_joint(token: Token) -> bool:
    """A comma, a semicolon, "and" or "or"."""
    return is_comma(token) or token.kind == "join"
