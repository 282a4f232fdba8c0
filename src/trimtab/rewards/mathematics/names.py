"""What may stand before ``=`` as the name of an answer."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from trimtab.rewards.mathematics.tokens import Token
from trimtab.rewards.mathematics.words import NEVER_A_UNIT

MAX_NAME_WORDS = 4
MAX_NAME_TOKENS = 9


def name_of(tokens: Sequence[Token]) -> str | None:
    """The name that these tokens are, else None.

    ``x``, ``f(x)``, ``(x, y)``, ``AB``, ``|AB|``, ``\\angle ABC``, ``A:B``, ``\\frac{AB}{CD}``, ``Area``.
    """
    rest = [token for token in tokens if not token.is_sign("{", "}")]
    if len(rest) > 2 and rest[0].is_sign("|") and rest[-1].is_sign("|") and all(map(_is_capital, rest[1:-1])):
        rest = rest[1:-1]
    if rest and rest[0].is_name("angle", "triangle", "frac"):
        if rest[0].text == "frac" and not (len(rest) > 4 and all(map(_is_capital, rest[1:]))):
            return None
        rest = rest[1:]
    if not rest or len(rest) > MAX_NAME_TOKENS:
        return None
    if all(token.kind == "word" for token in rest):
        known = any(token.text.lower() in NEVER_A_UNIT for token in rest)
        return None if known or len(rest) > MAX_NAME_WORDS else " ".join(token.text.lower() for token in rest)
    name = "".join(token.text for token in rest)
    if len(rest) > 2 and rest[0].kind == "letter" and rest[1].is_sign("^"):  # B^{-1}, f^{-1}(x)
        rest = [rest[0], *rest[4 if rest[2].is_sign("-") else 2 :]] if rest[2].is_sign("-") else []
    if (
        rest
        and rest[0].is_sign("(")
        and rest[-1].is_sign(")")
        and len(rest) > 3
        and _separated(rest[1:-1], ",")
    ):
        return name
    if _separated(rest, ":") or (0 < len(rest) <= 4 and all(map(_is_capital, rest))):
        return None if rest[0].text in ("e", "i") and len(rest) == 1 else name
    if not rest or rest[0].kind != "letter" or not rest[1].is_sign("(") or not rest[-1].is_sign(")"):
        return None
    inside = rest[2:-1]
    return name if _separated(inside, ",") or [token.kind for token in inside] == ["number"] else None


def _is_capital(token: Token) -> bool:
    return token.kind == "letter" and token.text.isupper()


def _separated(tokens: Sequence[Token], sign: str) -> bool:
    """Letters with this sign between them; one letter is enough."""
    return bool(len(tokens) % 2) and all(
        token.is_sign(sign) if at % 2 else token.kind == "letter" for at, token in enumerate(tokens)
    )
