"""Answers made to hang or crash a grader: each ends at once or at its limit, and the next is graded."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.handmade import prompt_of, rollout_of
from trimtab.rewards.mathematics import MathematicsMatch, symbolic

MATHS = MathematicsMatch()
LIMIT = 2.0
HOSTILE = [
    *("9^{9^{9^9}}", "10^{10^{10}}", "(10^9)!", "2^{2^{2^{2^{2^2}}}}", r"\binom{10^9}{5\cdot 10^8}"),
    *("1.2^{3.4^{5.6^{7.8}}}", r"\sum_{k=1}^{10^9} k", r"e^{e^{e^{e^e}}}", r"\sin(10^{800})", "3000!/2999!"),
    *("x^{3000}", "(x+y+z)^{900}", r"\ln(2)^{1000}", r"\left(\frac{2}{3}\right)^{40000}", "2999!^{5}"),
    *("{" * 5000 + "5" + "}" * 5000, "(" * 900 + "5" + ")" * 900, r"\sqrt{" * 300 + "2" + "}" * 300),
    *(r"\sqrt" * 380 + "2", "5" + "!" * 1500, "2^" * 900 + "2", "-" * 1900 + "5", "|" * 1500 + "x"),
    *(r"\frac{1}{" * 200 + "2" + "}" * 200, r"\text{" * 300 + "a", "9" * 1900, "1 " * 900, "\\" * 1999),
    *(",".join(map(str, range(600))), "+".join(rf"\sqrt{{{k}}}" for k in range(2, 200))),
    *(r"\{" + ",".join(rf"\sqrt{{{k}}}" for k in range(2, 66)) + r"\}", r"\cdot".join([r"\sin(3)"] * 180)),
    *(r"\pi^{\pi^{\pi^{\pi}}}", r"\arctan(" * 40 + "1" + ")" * 40),
]
GOLDS = ("5", r"\sqrt{2}", "x^2+1", r"\{1,\sqrt2\}", "[0,1]", r"\sin x")


def grade(gold, response, grader=MATHS):
    """The state, and the seconds of this thread: a busy machine shall not count."""
    began = time.thread_time()
    found = asyncio.run(grader(prompt_of(answer=gold), rollout_of(response)))
    return found.state.value, time.thread_time() - began


@pytest.mark.parametrize("gold", GOLDS)
def test_each_ends_in_time_and_is_not_right(gold):
    for answer in HOSTILE:
        for response in (answer, rf"\boxed{{{answer}}}"):
            state, seconds = grade(gold, response)
            assert state in ("wrong", "timeout"), (answer[:40], state)
            assert seconds < LIMIT, (answer[:40], seconds)
    assert grade(gold, rf"\boxed{{{gold}}}")[0] == "right"


def test_case_30_thirty_two_at_once_from_threads():
    grades = []
    answers = (HOSTILE[:2] * 16)[:32]
    threads = [
        threading.Thread(target=lambda answer=answer: grades.append(grade("5", rf"\boxed{{{answer}}}")))
        for answer in answers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(grades) == 32
    assert {state for state, _ in grades} <= {"wrong", "timeout"}
    assert max(seconds for _, seconds in grades) < LIMIT
    assert grade("5", r"\boxed{5}")[0] == "right"


@pytest.mark.parametrize("sign", ["9", " ", "\n", "$", "x", "{", "\\", "Answer:", r"\boxed{"])
def test_ten_million_signs(sign):
    text = sign * (10_000_000 // len(sign))
    state, seconds = grade("5", text)
    assert state == "wrong"
    assert seconds < LIMIT
    assert grade("5", r"\boxed{" + text)[1] < LIMIT


def test_a_gold_beyond_our_rules_needs_the_symbolic_checker(monkeypatch):
    monkeypatch.setattr(symbolic, "is_installed", lambda: False)
    found = MATHS.self_check([prompt_of("a", answer=r"\sum_{k=1}^n k"), prompt_of("b", answer="7")])
    assert [bad.prompt_id for bad in found] == ["a"]
    assert "trimtab[math]" in found[0].reason
    assert grade(r"\sum_{k=1}^n k", r"\boxed{5}")[0] == "not_gradable"


def test_what_is_not_even_tried():
    assert symbolic.refusal(r"\int_0^1 x^2 dx") is None
    for text in ("9^{9^{9^9}}", "2^{100000}", "12345!", "9" * 40, "x" * 400, "not 5", r"\text{maybe } 5"):
        assert symbolic.refusal(text) is not None


@pytest.mark.skipif(not symbolic.is_installed(), reason="the extra trimtab[math] is not installed")
@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}", "right"),
        (r"\sum_{k=1}^{n} k", r"\frac{n(n-1)}{2}", "wrong"),
        (r"\int_0^1 2x\,dx", r"\int_{0}^{1} 2x \, dx", "right"),
        (r"\int_0^1 2x\,dx", r"\int_0^2 2x\,dx", "wrong"),
        (r"\lim_{x\to 0}\frac{\sin x}{x}", "1", "right"),
        (r"\sum_{k=1}^{n} k", r"not \frac{n(n+1)}{2}", "wrong"),
    ],
)
def test_the_symbolic_checker(gold, answer, expected):
    patient = MathematicsMatch(timeout=60.0)
    assert patient.self_check([prompt_of(answer=gold)]) == []
    assert grade(gold, rf"\boxed{{{answer}}}", patient)[0] == expected


def test_a_verdict_that_takes_too_long_is_a_timeout(monkeypatch, tmp_path):
    file = tmp_path / "endless.py"
    file.write_text("def reads(payload): return True\ndef check(payload):\n    while True: pass\n")
    monkeypatch.setattr(symbolic, "is_installed", lambda: True)
    monkeypatch.setattr(symbolic, "_CHECK", str(file))
    monkeypatch.setattr(symbolic, "_read", {})
    quick = MathematicsMatch(timeout=0.5)
    found = asyncio.run(quick(prompt_of(answer=r"\sum_{k=1}^n k"), rollout_of(r"\boxed{7}")))
    assert (found.state.value, found.value) == ("timeout", None)
    assert "0.5 s" in found.detail
