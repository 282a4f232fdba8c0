"""Code tests: which program, which tests, and what becomes of right, wrong, slow and ungradable ones."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.handmade import group_of, prompt_of, rollout_of
from trimtab.rewards.code import CodeTests, InputTest, last_program, normalised, read_tests
from trimtab.rewards.rubric import Rubric
from trimtab.rewards.sandbox import SandboxError, UnusableTestError, child, open_place, probe
from trimtab.types import GradeState

DOUBLE = "print(int(input()) * 2)"
DOUBLED = [{"stdin": "2\n", "stdout": "4\n"}, {"stdin": "5", "stdout": "10"}, {"stdin": "-3", "stdout": "-6"}]


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```\nDone."


def ask(program, tests, *, text="", **options):
    grader = CodeTests(**options)
    answer = tests if isinstance(tests, str) else json.dumps(tests)
    return asyncio.run(grader(prompt_of(answer=answer, text=text), rollout_of(fenced(program))))


def test_every_test_passed_is_right():
    grade = ask(DOUBLE, DOUBLED)
    assert (grade.state, grade.detail) == (GradeState.RIGHT, "passed all 3 tests")


def test_the_first_failure_ends_it_and_is_told():
    grade = ask("print(int(input()) + 2)", DOUBLED)
    assert (grade.state, grade.value) == (GradeState.WRONG, 0.0)
    assert grade.detail == "test 2 of 3: printed '7\\n' instead of '10'"


def test_partial_credit_is_the_share_of_tests_that_passed():
    grade = ask("n = int(input())\nprint(abs(n * 2))", DOUBLED, partial=True)
    assert grade.state is GradeState.PARTIAL
    assert grade.value == pytest.approx(2 / 3)
    assert ask("print(0)", DOUBLED, partial=True).state is GradeState.WRONG


def test_input_and_assert_tests_may_be_mixed():
    program = "def double(n):\n    return 2 * n\nif __name__ == '__main__':\n    print(double(int(input())))"
    tests = [DOUBLED[0], {"assert": "assert double(4) == 8"}, {"assert": "double('a') == 'aa'"}, DOUBLED[1]]
    assert ask(program, tests).state is GradeState.RIGHT
    tests[2] = {"assert": "double('a') == 'b'"}
    grade = ask(program, tests, partial=True)
    assert grade.value == 0.75
    assert "test 3 of 4: \"assert double('a') == 'b'\": does not hold" in grade.detail


@pytest.mark.parametrize(
    ("printed", "expected", "right"),
    [
        ("1 \\n2\\n\\n", "1\n2", True),
        ("1\\r\\n2", "1\n2\n", True),
        ("1\\n\\n2", "1\n2", False),
        (" 1", "1", False),
        ("1.0", "1", False),
        ("Yes", "yes", False),
        ("é", "é", True),
    ],
)
def test_only_blanks_at_line_ends_and_empty_lines_at_the_end_are_forgiven(printed, expected, right):
    assert (ask(f'print("{printed}", end="")', [{"stdin": "", "stdout": expected}]).value == 1.0) is right


def test_a_program_that_prints_the_right_thing_and_fails_is_wrong():
    grade = ask("print(4)\nraise ValueError('late')", [{"stdin": "", "stdout": "4"}])
    assert (grade.state, grade.detail) == (GradeState.WRONG, "test 1 of 1: ValueError: late")
    assert ask("print(4)\nexit(3)", [{"stdin": "", "stdout": "4"}]).detail == "test 1 of 1: exit code 3"
    assert ask("print(4)\nexit(0)", [{"stdin": "", "stdout": "4"}]).value == 1.0


def test_case_27_exit_before_the_tests_is_not_a_pass():
    for tests in ([{"assert": "f(1) == 2"}], [{"stdin": "1", "stdout": "2"}]):
        grade = ask("exit(0)\ndef f(x): return x + 1", tests)
        assert (grade.state, grade.value) == (GradeState.WRONG, 0.0)


@pytest.mark.parametrize("program", ["while True: pass", "import time; time.sleep(1000)"])
@pytest.mark.parametrize("test", [{"stdin": "", "stdout": "1"}, {"assert": "f(1) == 2"}])
def test_case_25_a_program_that_does_not_end_is_wrong_and_not_a_timeout_of_the_grader(program, test):
    grade = ask(program, [test], seconds_per_test=0.3)
    assert grade.state is GradeState.WRONG
    assert ("processor time" if "while" in program else "not done after 0.9 s") in grade.detail


def test_a_slow_assert_fails_alone_when_all_are_counted():
    program = "def f(x):\n    while x == 2: pass\n    return x"
    tests = [{"assert": f"f({x}) == {x}"} for x in (1, 2, 3)]
    assert ask(program, tests, partial=True, seconds_per_test=0.3).value == pytest.approx(2 / 3)


def test_the_time_for_all_tests_together_is_bounded():
    tests = [{"stdin": "", "stdout": "1"}] * 50
    grade = ask("import time; time.sleep(0.3); print(1)", tests, seconds=1.0, seconds_per_test=1.0)
    assert grade.state is GradeState.WRONG
    assert "the time for all tests together is over" in grade.detail


def test_too_much_memory_is_wrong():
    grade = ask("x = bytearray(1 << 30); print(1)", [{"stdin": "", "stdout": "1"}], megabytes=128)
    assert (grade.state, grade.detail) == (GradeState.WRONG, "test 1 of 1: MemoryError")


def test_a_fault_of_the_sandbox_is_a_failed_grader_and_never_a_grade(monkeypatch):
    monkeypatch.setattr(child, "STARTUP_SECONDS", 5.0)
    monkeypatch.setattr(
        child, "command", lambda *_, **__: ["/bin/sh", "-c", "echo no namespaces >&2; exit 1"]
    )
    probe(open_place().tier)
    with pytest.raises(SandboxError, match="did not come up: no namespaces"):
        ask(DOUBLE, DOUBLED)
    rubric = Rubric([(CodeTests(), 1.0)])
    group = group_of([rollout_of(fenced(DOUBLE))], prompt_of(answer=json.dumps(DOUBLED)))
    (grade,) = asyncio.run(rubric.grade(group)).grades
    assert grade.state is GradeState.GRADER_FAILED
    assert rubric.first_traceback is not None
    assert "SandboxError" in rubric.first_traceback


def test_a_sandbox_that_cannot_be_started_at_all_is_a_failed_grader(monkeypatch):
    open_place()
    monkeypatch.setattr(child, "command", lambda *_, **__: ["/no/such/program"])
    with pytest.raises(SandboxError, match="could not be started"):
        ask(DOUBLE, [{"assert": "f(1) == 2"}])


def test_a_cancelled_grade_stops_its_program():
    async def cancelled() -> float:
        tests = [{"stdin": "", "stdout": "1"}]
        asked = CodeTests(seconds_per_test=5.0)(
            prompt_of(answer=tests), rollout_of(fenced("import time; time.sleep(100)"))
        )
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asked, 0.5)
        begun = time.monotonic()
        after = CodeTests()(prompt_of(answer=tests), rollout_of(fenced("print(1)")))
        assert (await after).value == 1.0
        return time.monotonic() - begun

    assert asyncio.run(cancelled()) < 60.0  # one processor or two: it need not wait for the program's 100 s


# ------------------------------------------------------------------------------------ the program


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```py\na\n```\nthen\n```Python3\nb\n```", "b\n"),
        ("```python\na\n```\n```text\noutput\n```", "a\n"),
        ("```python title=x.py\na\n```", "a\n"),
        ("````python\na = '''\n```\n'''\n````", "a = '''\n```\n'''\n"),
        ("<think>```python\nbad\n```</think>```python\na\n```", "a\n"),
        ("```bash\nls\n```\n```python\na\n```\n```bash\nrun", "a\n"),
    ],
)
def test_the_program_is_the_last_closed_block_after_the_thinking(response, program):
    assert last_program(response)[0] == program


@pytest.mark.parametrize(
    "response",
    [
        "print(1)",
        "```python\nprint(1)",
        "```python\na\n```\n```python\nb",
        "```js\na\n```",
        "<think>```python\na\n```",
        "<think>```python\na\n```</think> as above",
    ],
)
def test_no_block_or_an_open_one_is_no_program(response):
    program, fault = last_program(response)
    assert program is None
    assert "code block" in fault


def test_a_fence_or_thinking_that_the_prompt_opened_is_continued():
    tests = json.dumps([{"stdin": "", "stdout": "1"}])
    grader = CodeTests()
    opened = prompt_of(answer=tests, text="Write a program.\n```python\n")
    assert asyncio.run(grader(opened, rollout_of("print(1)\n```"))).value == 1.0
    thinking = prompt_of(answer=tests, text="Write a program. <think>\n")
    assert asyncio.run(grader(thinking, rollout_of("```python\nprint(1)\n```"))).value == 0.0
    assert asyncio.run(grader(thinking, rollout_of("so</think>```python\nprint(1)\n```"))).value == 1.0


# -------------------------------------------------------------------------------------- the tests


def test_tests_are_a_list_or_json_of_one():
    rows = [{"stdin": "1", "stdout": "2"}]
    assert read_tests(rows) == read_tests(json.dumps(rows)) == (InputTest(b"1", b"2"),)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no list"),
        ("", "no JSON"),
        ("[]", "no list of tests, or an empty one"),
        ('{"stdin": "", "stdout": ""}', "no list"),
        ([{"stdin": "1"}], "test 1 must be"),
        ([{"stdin": "1", "stdout": 2}], "test 1 must be"),
        ([{"stdin": "1", "stdout": "2", "weight": 1}], "test 1 must be"),
        ([{"assert": "f(1) =="}], "test 1 is no Python"),
        ([{"assert": "x = f(1)"}], "asserts nothing"),
        ([{"assert": "assert 1 == 1"}], "uses nothing that a program defines"),
        (
            [{"assert": "import math\nassert math.sqrt(4) == len('ab')"}],
            "uses nothing that a program defines",
        ),
        ([{"stdin": "1", "stdout": "  \n"}], "an empty program would pass"),
    ],
)
def test_tests_that_decide_nothing_are_not_gradable(answer, why):
    with pytest.raises(UnusableTestError, match=why.replace("(", "\\(")):
        read_tests(answer)
    prompt = prompt_of(answer=answer)
    grade = asyncio.run(CodeTests()(prompt, rollout_of(fenced("print(1)"))))
    assert (grade.state, grade.value) == (GradeState.NOT_GRADABLE, None)
    (unverifiable,) = CodeTests().self_check([prompt])
    assert why in unverifiable.reason


def test_usable_tests_pass_the_self_check():
    assert CodeTests().self_check([prompt_of(answer=json.dumps(DOUBLED))]) == []


def test_a_test_that_hands_over_an_object_of_its_own_is_not_gradable():
    test = {"assert": "class Node: pass\nassert f(Node()) == 1"}
    grade = ask("def f(node): return 1", [{"assert": "f(1) == 1"}, test])
    assert grade.state is GradeState.NOT_GRADABLE
    assert "test 2 cannot be run: the test gives the program an object of its own class Node" in grade.detail


def test_normalised_output():
    assert normalised(b"a \t\nb\r\n\n\n") == b"a\nb"
    assert normalised(b"") == normalised(b"\n\n") == b""
