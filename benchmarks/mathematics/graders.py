"""The graders that are compared: ours, math-verify, and the common "last box, then compare strings"."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Callable

import numpy as np

from trimtab.rewards.mathematics import MathematicsMatch
from trimtab.types import Finish, Prompt, Rollout

PATIENCE = 20
"""Seconds that math-verify may take, four times its default: a busy machine shall not count against it."""
Verdict = Callable[[str, str], bool]
"""(gold, response) -> is it graded as right?"""


def ours() -> Verdict:
    """The grader ``mathematics`` with its defaults; what it cannot grade counts as not right."""
    grader = MathematicsMatch()
    nothing = np.zeros(0, dtype=np.int64)

    def verdict(gold: str, response: str) -> bool:
        prompt = Prompt(id="row", token_ids=nothing, text="", task="mathematics", answer=gold)
        rollout = Rollout(
            prompt_id="row",
            draw=0,
            index=0,
            token_ids=nothing,
            logprobs=nothing.astype(np.float32),
            mask=nothing.astype(np.bool_),
            finish=Finish.STOP,
            versions=(),
            seed=0,
            text=response,
        )
        return asyncio.run(grader(prompt, rollout)).value == 1.0

    return verdict


def math_verify() -> Verdict:
    """math-verify with every extractor that its documentation names; gold answers wrapped as it asks for."""
    from math_verify import (  # pyright: ignore[reportMissingImports]  (optional)
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
        parse,
        verify,
    )

    targets = (LatexExtractionConfig(), ExprExtractionConfig(), StringExtractionConfig())

    def verdict(gold: str, response: str) -> bool:
        wrapped = gold if re.fullmatch(r"[A-E]", gold) else f"${gold}$"
        gold_parsed, parsed = (parse(text, targets, parsing_timeout=PATIENCE) for text in (wrapped, response))
        return bool(verify(gold_parsed, parsed, timeout_seconds=PATIENCE, allow_set_relation_comp=True))

    return verdict


def last_box(gold: str, response: str) -> bool:
    """What many training scripts do: the last box, some replacements, equality of strings."""
    start = response.rfind("\\boxed{")
    if start < 0:
        return False
    depth, at = 1, start + len("\\boxed{")
    begin = at
    while at < len(response) and depth:
        depth += {"{": 1, "}": -1}.get(response[at], 0)
        at += 1
    return depth == 0 and _stripped(response[begin : at - 1]) == _stripped(gold)


def _stripped(text: str) -> str:
    for old, new in (
        ("\n", ""),
        ("\\!", ""),
        ("\\\\", "\\"),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\left", ""),
        ("\\right", ""),
        ("^{\\circ}", ""),
        ("^\\circ", ""),
        ("\\$", ""),
        ("\\%", ""),
        ("%", ""),
        (" .", " 0."),
        ("{.", "{0."),
    ):
        text = text.replace(old, new)
    text = text.split("\\text{ ")[0]
    if text.count("=") == 1 and len(text.split("=")[0]) <= 2:
        text = text.split("=")[1]
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text).replace(" ", "")
    text = re.sub(r"\\frac(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = "\\frac{1}{2}" if text == "0.5" else text
    return re.sub(r"^(-?\d+)/(\d+)$", r"\\frac{\1}{\2}", text)


def installed() -> dict[str, Verdict]:
    """Every grader that can run here, by name."""
    found: dict[str, Verdict] = {"trimtab": ours()}
    if importlib.util.find_spec("math_verify") is not None:
        found["math-verify"] = math_verify()
    return {**found, "last box, strings": last_box}
