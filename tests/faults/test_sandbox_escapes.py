"""Programs that try to leave the sandbox, or to pass tests without the work, in each tier of this machine."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from benchmarks.sandbox.cheats import CHEATS, PRINTED, SEARCH, SECRET, graded
from benchmarks.sandbox.programs import ESCAPES

import trimtab
from trimtab.rewards.code import CodeTests
from trimtab.rewards.sandbox import Limits, Place, Tier, open_place, probe, run_program
from trimtab.rewards.sandbox.child import Child
from trimtab.rewards.sandbox.duty import Duty
from trimtab.rewards.sandbox.interpreter import this_interpreter

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["bubblewrap", "landlock"])
def tier(request):
    report = probe(Tier(request.param))
    if not report.usable:
        pytest.skip(str(report))
    return request.param


@pytest.mark.parametrize("escape", ESCAPES, ids=lambda escape: escape.name)
def test_an_escape_is_contained(tier, escape):
    held, told = escape.contained(open_place(tier=tier))
    assert held, told


@pytest.mark.parametrize("escape", [e for e in ESCAPES if e.harmless], ids=lambda escape: escape.name)
def test_the_same_escape_gets_out_when_nothing_holds_it(escape):
    held, told = escape.contained(Place(Tier.UNSAFE, this_interpreter(), Limits()))
    assert not held
    assert told.startswith("ESCAPED")


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_a_cheat_is_graded_wrong(tier, cheat):
    grade = cheat.grade(tier)
    assert grade.state == "wrong", grade.detail


def test_the_search_for_answers_finds_what_is_in_reach(tier):
    given = ({"stdin": SECRET, "stdout": SECRET},)
    grader = CodeTests(sandbox=tier)
    assert graded(SEARCH + "print(search())\n", given, grader).value == 1.0
    assert graded(SEARCH + "print(search())\n", PRINTED, grader).value == 0.0


def test_the_probe_says_what_it_tried(tier):
    report = probe(Tier(tier))
    assert len(report.attempts) >= 9
    assert all(attempt.refused for attempt in report.attempts)
    assert "9 of 9 escape attempts were refused" in str(report)
    assert any("network" in line for line in report.contains)
    assert any("kernel" in line for line in report.leaves_open)


def test_a_killed_program_leaves_no_process(tier):
    duty = Duty(
        module="program",
        function="run",
        arguments={"program": "import time; time.sleep(600)", "packages": []},
    )
    with Child(duty, open_place(tier=tier)) as child:
        child.await_ready()
        family = descendants(child.process.pid)
    assert gone(family), family


def test_programs_die_with_the_trainer(tier):
    source = Path(trimtab.__path__[0]).parent
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, tier],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"},
    )
    try:
        assert trainer.stdout is not None
        family = {int(word) for word in trainer.stdout.readline().split()}
        assert len(family) >= 1
        assert not gone(family, seconds=0.3)
    finally:
        trainer.send_signal(signal.SIGKILL)
        trainer.wait()
    left = not gone(family)
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left


TRAINER = """
import sys, time
from tests.faults.test_sandbox_escapes import Child, Duty, descendants, open_place
program = "import time; time.sleep(600)"
duty = Duty(module="program", function="run", arguments={"program": program, "packages": []})
with Child(duty, open_place(tier=sys.argv[1])) as child:
    child.await_ready()
    print(*descendants(child.process.pid), flush=True)
    time.sleep(600)
"""


def test_programs_run_one_after_the_other_see_nothing_of_each_other(tier):
    place = open_place(tier=tier)
    leave = "try: open('/tmp/left', 'w').write('x')\nexcept OSError: pass\nprint('done')"
    assert run_program(place, leave).output == b"done\n"
    assert run_program(place, "import os; print(os.path.exists('/tmp/left'))").output == b"False\n"


def test_a_set_of_strings_has_one_order_in_every_run(tier):
    program = "print(list({'alpha', 'beta', 'gamma', 'delta'}))"
    assert len({run_program(open_place(tier=tier), program).output for _ in range(3)}) == 1


def descendants(pid: int) -> set[int]:
    """This process and all below it."""
    found = {pid}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return found.union(*(descendants(int(child)) for child in children))


def gone(pids: set[int], seconds: float = 30.0) -> bool:
    """Whether all of these end within this time; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
