"""Unicode signs and LaTeX commands that say the same, as tables."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma "
    "tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar".split()
)
"""Commands that are letters. ``pi`` is a number and not among them."""

_GREEK_LETTERS = "αβγδεζηθικλμνξρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi "
    "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
).split()
_VULGAR = {
    **{"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5)},
    **{"⅗": (3, 5), "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8)},
}
_COMMANDS = {
    **{"×": "times", "✕": "times", "·": "cdot", "⋅": "cdot", "∙": "cdot", "∗": "cdot", "√": "sqrt"},
    **{"π": "pi", "∞": "infty", "≤": "le", "⩽": "le", "≥": "ge", "⩾": "ge", "≠": "ne", "≈": "approx"},
    **{"∪": "cup", "∩": "cap", "∖": "setminus", "∅": "emptyset", "∈": "in", "±": "pm", "∓": "mp", "°": "degree"},
    **{"ℝ": "mathbb{R}", "ℤ": "mathbb{Z}", "ℕ": "mathbb{N}", "ℚ": "mathbb{Q}", "ℂ": "mathbb{C}"},
    **{"…": "ldots", "∠": "angle", "⟨": "langle", "⟩": "rangle", "⌊": "lfloor", "⌋": "rfloor"},
    **{"∫": "int", "∑": "sum", "∏": "prod", "∂": "partial", "≡": "equiv", "→": "to"},
    **dict(zip(_GREEK_LETTERS, _GREEK_NAMES, strict=True)),
}
SIGNS = str.maketrans(
    {
        **{sign: f"\\{name} " for sign, name in _COMMANDS.items()},
        **{sign: rf"\frac{{{top}}}{{{low}}}" for sign, (top, low) in _VULGAR.items()},
        **dict.fromkeys("−–‒﹣", "-"),
        **dict.fromkeys("÷⁄∕", "/"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2008\u2009\u200a\u202f\u3000\t\r\n", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\u2061\u2062\u2063\ufeff", ""),
        **dict.fromkeys("‘’′", "'"),
        "″": "''",
        "“": '"',
        "”": '"',
        "∣": "|",
        "∛": r"\sqrt[3] ",
        "∜": r"\sqrt[4] ",
        "、": ",",
        "。": ".",
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    }
)
"""Never the Unicode compatibility forms: those would read 10² as 102. Circled digits stay what they are."""

RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿˣ", "0123456789+-nx", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙₖ", "0123456789nk", strict=True))

SAME_COMMAND = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), "frac"),
    **dict.fromkeys(("dbinom", "tbinom"), "binom"),
    **dict.fromkeys(("leq", "leqslant", "le"), "le"),
    **dict.fromkeys(("geq", "geqslant", "ge"), "ge"),
    **dict.fromkeys(("neq", "ne"), "ne"),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("cdot", "times", "ast", "cdotp"), "*"),
    **dict.fromkeys(("div",), "/"),
    **dict.fromkeys(("colon",), ":"),
    **dict.fromkeys(("approx", "simeq", "thickapprox"), "approx"),
    **dict.fromkeys(("varnothing", "emptyset", "oslash"), "emptyset"),
    **dict.fromkeys(("lbrace",), "{"),
    **dict.fromkeys(("rbrace",), "}"),
    **dict.fromkeys(("lbrack",), "["),
    **dict.fromkeys(("rbrack",), "]"),
    **dict.fromkeys(("vert", "lvert", "rvert"), "|"),
    **dict.fromkeys(("mid",), "mid"),
    **dict.fromkeys(("smallsetminus", "backslash", "setminus"), "setminus"),
    **dict.fromkeys(("lor", "vee"), "or"),
    **dict.fromkeys(("land", "wedge"), "and"),
    **dict.fromkeys(("arcctg", "arccot"), "arccot"),
    **dict.fromkeys(("tg",), "tan"),
    **dict.fromkeys(("ctg",), "cot"),
    **dict.fromkeys(("cosec",), "csc"),
    **dict.fromkeys(("degree",), "degree"),
}
"""LaTeX commands by the name under which the reader knows them."""
