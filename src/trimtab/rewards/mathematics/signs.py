"""Unicode signs and LaTeX commands that say the same, as tables."""
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: RUF001  (signs that look alike are what this file is about)

from __future__ import annotations

_GREEK = """
    α alpha β beta γ gamma δ delta ε epsilon ζ zeta η eta θ theta ι iota κ kappa λ lambda μ mu ν nu ξ xi ρ rho
    σ sigma τ tau υ upsilon φ phi χ chi ψ psi ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Φ Phi
    Ψ Psi Ω Omega ℓ ell ℏ hbar ϵ varepsilon ϑ vartheta ϕ varphi
"""
_SAME_AS_COMMAND = """
    × times ✕ times · cdot ⋅ cdot ∙ cdot ∗ cdot √ sqrt π pi ∞ infty ≤ le ⩽ le ≥ ge ⩾ ge ≠ ne ≈ approx
    ∪ cup ∩ cap ∖ setminus ∅ emptyset ∈ in ± pm ∓ mp ° degree … ldots ∠ angle ⟨ langle ⟩ rangle
    ⌊ lfloor ⌋ rfloor ℝ mathbb{R} ℤ mathbb{Z} ℕ mathbb{N} ℚ mathbb{Q} ℂ mathbb{C}
    ∫ int ∑ sum ∏ prod ∂ partial ≡ equiv → to ∛ sqrt[3] ∜ sqrt[4]
"""
_VULGAR = "½ 1 2 ⅓ 1 3 ⅔ 2 3 ¼ 1 4 ¾ 3 4 ⅕ 1 5 ⅖ 2 5 ⅗ 3 5 ⅘ 4 5 ⅙ 1 6 ⅚ 5 6 ⅛ 1 8 ⅜ 3 8 ⅝ 5 8 ⅞ 7 8"


def _pairs(table: str) -> dict[str, str]:
    words = table.split()
    return dict(zip(words[::2], words[1::2], strict=True))


GREEK = frozenset(_pairs(_GREEK).values())
"""Commands that are letters. ``pi`` is a number and not among them."""

_PARTS = _VULGAR.split()
SIGNS = str.maketrans(
    {
        **{sign: f"\\{name} " for sign, name in _pairs(_GREEK + _SAME_AS_COMMAND).items()},
        **{_PARTS[at]: rf"\frac{{{_PARTS[at + 1]}}}{{{_PARTS[at + 2]}}}" for at in range(0, len(_PARTS), 3)},
        **dict.fromkeys("−–‒﹣", "-"),
        **dict.fromkeys("÷⁄∕", "/"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000\t\r\n", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\u2061\u2062\u2063\ufeff", ""),
        **dict.fromkeys("‘’′", "'"),
        **_pairs("″ '' “ \" ” \" ∣ | 、 , 。 ."),
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    }
)
"""Never the Unicode compatibility forms: those would read 10² as 102. Circled digits stay what they are."""

RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣ", "0123456789+-nx", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙₖ", "0123456789nk", strict=True))

_COMMANDS = """
    dfrac frac tfrac frac cfrac frac dbinom binom tbinom binom leq le leqslant le geq ge geqslant ge neq ne
    lt < gt > cdot * times * ast * cdotp * div / colon : simeq approx thickapprox approx varnothing emptyset
    oslash emptyset lbrace { rbrace } lbrack [ rbrack ] vert | lvert | rvert | smallsetminus setminus
    backslash setminus lor or vee or land and wedge and tg tan ctg cot arcctg arccot cosec csc
"""
SAME_COMMAND = _pairs(_COMMANDS)
"""LaTeX commands by the name under which the reader knows them; others keep their own."""
