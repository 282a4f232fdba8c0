"""Sentences, clocks and places of the sandbox."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import threading
import time

import pytest

from trimtab.rewards.sandbox import (
    Budget,
    Limits,
    Place,
    StoppedError,
    Tier,
    UnusableTestError,
    clock,
    open_place,
    read_assert,
    run_asserts,
    run_program,
)
from trimtab.rewards.sandbox.clock import TOGETHER, Allowance, Usage, usage
from trimtab.rewards.sandbox.interpreter import Users, this_interpreter


def test_a_bare_expression_is_asserted():
    assert read_assert("f(2) == 4").source == "assert f(2) == 4"
    assert read_assert("assert f(2) == 4").source == "assert f(2) == 4"


@pytest.mark.parametrize(
    ("test", "classes"),
    [
        ("s = Stack(); s.push(1); assert s.pop() == 1", {"Stack"}),
        ("assert Solution().twoSum([1], 1) == [0]", {"Solution"}),
        ("with Lock() as l:\n    assert l.held", {"Lock"}),
        ("s: Stack = Stack()\nassert s.size() == 0", {"Stack"}),
        ("assert f(2) == 4", set()),
        ("r = f(2); r.sort(); assert r == [1]", set()),
        ("assert f('a').strip() == 'a' and f({}).items()", set()),
        ("v = dict(); v.push(1); assert f(v)", set()),
    ],
)
def test_names_that_the_test_uses_as_classes(test, classes):
    assert read_assert(test).classes == classes


def test_modules_that_the_test_uses_without_importing_them():
    assert read_assert("assert math.isclose(f(2), 1.4)").modules == {"math"}
    assert read_assert("assert copy([1]) == [1]").modules == set()
    assert read_assert("import math\nassert math.floor(f(2)) == 1").modules == set()


@pytest.mark.parametrize(
    "test", ["", "x = f(2)", "assert", "assert True", "assert len([1]) == 1", "import os"]
)
def test_sentences_that_decide_nothing(test):
    with pytest.raises(UnusableTestError):
        read_assert(test)


def test_a_process_knows_how_long_it_ran():
    begun = usage(os.getpid())
    while usage(os.getpid()).ran < begun.ran + 0.05:
        sum(range(1000))
    assert usage(os.getpid()).waited >= begun.waited


class Clocks:
    """Clocks that stand until they are set."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        self.ran = 1.0
        self.waited = 2.0
        monkeypatch.setattr(clock.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(clock, "usage", lambda pid: Usage(self.ran, self.waited))

    def pass_(self, seconds, *, ran=0.0, waited=0.0):
        self.now += seconds
        self.ran += ran
        self.waited += waited


def test_processor_time_decides(monkeypatch):
    clocks = Clocks(monkeypatch)
    allowance = Allowance(1, seconds=0.5, wall=1.5)
    clocks.pass_(0.6, ran=0.4)
    assert allowance.spent() is None
    clocks.pass_(0.2, ran=0.1)
    assert allowance.spent() == "more than 0.5 s of processor time"


def test_sleeping_ends_by_the_wall_clock_but_waiting_for_a_processor_does_not_count(monkeypatch):
    clocks = Clocks(monkeypatch)
    allowance = Allowance(1, seconds=0.5, wall=1.5)
    clocks.pass_(20.0, ran=0.1, waited=19.0)
    assert allowance.spent() is None
    clocks.pass_(0.6)
    assert allowance.spent() == "not done after 1.5 s"


def test_a_budget_adds_up_what_was_neither_start_nor_waiting(monkeypatch):
    clocks = Clocks(monkeypatch)
    budget = Budget(2.0)
    for expected in (None, TOGETHER):
        clocks.pass_(50.0)  # a sandbox starts
        assert budget.spent is None
        with Allowance(1, seconds=5.0, wall=15.0, budget=budget) as allowance:
            clocks.pass_(11.0, ran=0.5, waited=10.0)
            assert allowance.spent() == expected
    assert budget.used == pytest.approx(2.0)
    assert budget.spent == TOGETHER


def test_an_unknown_process_has_no_processor_time():
    assert usage(2**22 + 1) is None


def test_users_are_lent_to_one_program_at_a_time():
    users = Users()
    with users.lend() as one, users.lend() as other:
        assert (one is None) == (os.geteuid() != 0)
        assert one is None or one != other
    with users.lend() as again:
        assert again == one


def test_a_program_can_be_stopped():
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(StoppedError):
        run_program(open_place(), "import time; time.sleep(100)", stop=stop)
    with pytest.raises(StoppedError):
        run_asserts(open_place(), "while True: pass", [read_assert("f(1) == 1")], stop=stop)
    assert time.monotonic() - begun < 60.0  # a busy machine may take its time, but not the program's 100 s


def test_without_a_sandbox_the_limits_still_hold():
    place = Place(Tier.UNSAFE, this_interpreter(), Limits(seconds=0.3, memory_bytes=256 << 20))
    assert run_program(place, "print(input())", b"7").output == b"7\n"
    assert "processor time" in str(run_program(place, "while True: pass"))
    assert str(run_program(place, "x = bytearray(1 << 30)")) == "MemoryError"
