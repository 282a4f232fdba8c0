"""The mathematics grader: spellings of one thing are equal, near misses are not, nothing raises."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from benchmarks.mathematics import spelling
from benchmarks.mathematics.generator import DRAWS, is_ambiguous
from benchmarks.mathematics.proof import same
from benchmarks.mathematics.rows import handmade
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.rewards.mathematics.judging import canonical, gold_fault, judge
from trimtab.rewards.mathematics.placement import find_answer

OURS = settings(deadline=None, max_examples=40, derandomize=True)
PLAIN = [kind for kind in DRAWS if kind not in ("unicode", "broken")]
GOLDS = sorted({row.gold for row in handmade() if gold_fault(row.gold) is None})

HARMLESS: tuple[Callable[[str], str], ...] = (
    lambda text: f"  {text} ",
    lambda text: f"${text}$",
    lambda text: rf"\({text}\)",
    lambda text: rf"\displaystyle {text}",
    lambda text: rf"\,{text}\;",
    lambda text: f"**{text}**",
    lambda text: text.replace(r"\frac", r"\dfrac"),
    lambda text: text.replace("(", r"\left(").replace(")", r"\right)") if r"\left" not in text else text,
    lambda text: text.replace(", ", ",").replace(",", " , ") if r"\text" not in text else text,
    lambda text: text.replace("-", "\u2212"),
    lambda text: text.replace(r"\pi", "\u03c0").replace(r"\le ", "\u2264"),
    lambda text: rf"\mathbf{{{text}}}",
    lambda text: f"{text} \\\\",
)


@pytest.mark.parametrize("kind", PLAIN)
@OURS
@given(seed=st.integers(0, 10**9))
def test_two_spellings_of_one_thing_are_equal(kind: str, seed: int):
    rng = Random(seed)
    thing = DRAWS[kind](rng)
    one, other = thing.spell(rng), thing.spell(rng)
    other = other if other.endswith(".") else spelling.dressed(rng, other)
    assert judge(other, one).verdict is True, (one, other)
    assert judge(spelling.unicode_of(other), one).verdict is True, (one, other)


@pytest.mark.parametrize("kind", PLAIN)
@OURS
@given(seed=st.integers(0, 10**9))
def test_a_near_miss_is_not_equal(kind: str, seed: int):
    rng = Random(seed)
    thing = DRAWS[kind](rng)
    other = thing.perturb(rng)
    if same(thing.meaning(), other.meaning()) or is_ambiguous(kind, thing, other):
        return
    one, miss = thing.spell(rng), other.spell(rng)
    assert judge(miss, one).verdict is False, (one, miss)
    assert judge(one, miss).verdict is False, (one, miss)


@settings(deadline=None, max_examples=300, derandomize=True)
@given(gold=st.sampled_from(GOLDS), changes=st.lists(st.sampled_from(HARMLESS), max_size=3))
def test_an_answer_equals_itself_after_harmless_rewriting(gold: str, changes: list[Callable[[str], str]]):
    text = gold
    for change in changes:
        text = change(text)
    assert judge(text, gold).verdict is True, (gold, text)


def test_the_verdict_does_not_depend_on_the_direction():
    """Except for choices, where the gold says that it is one."""
    for row in handmade():
        answer = find_answer(row.response).answer
        if (
            row.kind in ("choice", "placement")
            or answer is None
            or gold_fault(answer)
            or gold_fault(row.gold)
        ):
            continue
        assert judge(answer, row.gold).verdict is judge(row.gold, answer).verdict, row


_PIECES = r"""
    \frac \sqrt { } ( ) [ ] \{ \} , ; : = < > \le \ne \approx \in \cup \setminus \pm + - * / ^ _ ! | 0 1 23
    1,000 0.5 1e3 x y n e i \pi \infty \text{ or and not cm apples % \% \$ $ ^\circ \sin \ln \log_ \binom
    \lfloor \begin{pmatrix} \end{pmatrix} & \\ \mathbb{R} \emptyset \overline{ A (B) \left \right \over '
    \ldots \vec{ #
"""
PIECES = _PIECES.split()


@settings(deadline=None, max_examples=400, derandomize=True)
@given(st.lists(st.sampled_from([*PIECES, " ", "\n", "½", "\u221a"]), max_size=40), st.sampled_from(GOLDS))
def test_nothing_raises_and_garbage_equals_at_most_itself(pieces: list[str], gold: str):
    text = "".join(pieces)
    find_answer(text)
    canonical(text)
    judge(text, gold)
    if gold_fault(text) is None:
        assert judge(text, text).verdict is True


@settings(deadline=None, max_examples=300, derandomize=True)
@given(st.text(max_size=60))
def test_no_text_is_a_problem(text: str):
    find_answer(text)
    canonical(text)
    assert judge(text, "5").verdict in (True, False)
