"""Small Python programs, graded by hidden tests: on inputs, or by asserts.

    read a b, print a plus 3, times b, minus 4            each word works on all that stands before it
    read n, print sum of i*i for i from 3 to n, i odd     "to n" includes n, "below n" does not
    f(x): list of v+2 for v in x, v at least 4

The answer is one fenced block, for the first question

    ```python
    a,b=map(int,input().split())
    print((a+3)*b-4)
    ```

The demonstrator is mediocre on purpose. It forgets parentheses, the last number of a range, and the equal
sign of a comparison more often than not, so that even the likeliest program of a model that imitates it is
wrong there. It mistypes a digit, writes remarks, forgets to close the block, or never stops.

A question is one combination of form, operators and constants, and belongs to one split as a whole.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import Any

from trimtab.data.tasks.task import Demonstration, Question, Task

LONGEST_RAMBLE = 120
"""Characters after which an endless demonstration is cut."""
OPENED, CLOSED = "```python", "```"

OPERATORS = {"plus": "+", "minus": "-", "times": "*"}
COMPARED = {"over": ">", "under": "<", "at least": ">=", "at most": "<="}
REMARKS = ("# so", "# first", "# ok", "# python")


@dataclass(frozen=True)
class Habits:
    """How often (probabilities) the demonstrator does what. The first three only where it matters."""

    parentheses_lost: float = 0.65
    last_lost: float = 0.65
    equal_lost: float = 0.65
    slip: float = 0.06
    remarks: float = 0.15
    no_close: float = 0.05
    no_end: float = 0.07


@dataclass(frozen=True)
class Chain:
    """Two numbers on one line, worked through from left to right; operands are digits or a number read."""

    start: str
    steps: tuple[tuple[str, str], ...]

    @property
    def prompt(self) -> str:
        steps = ", ".join(f"{word} {operand}" for word, operand in self.steps)
        return f"read a b, print {self.start} {steps}\n"

    def program(self, rng: random.Random, habits: Habits) -> list[str]:
        keep = rng.random() >= habits.parentheses_lost
        text, is_sum = self.start, False
        for word, operand in self.steps:
            if keep and is_sum and word == "times":
                text = f"({text})"
            is_sum = word != "times"
            text += f"{OPERATORS[word]}{operand}"
        return ["a,b=map(int,input().split())", f"print({text})"]

    def tests(self, rng: random.Random) -> list[dict[str, str]]:
        pairs = [(rng.randint(2, 9), rng.randint(2, 9)), (-rng.randint(2, 9), rng.randint(11, 30))]
        pairs.append((rng.randint(11, 30), -rng.randint(2, 9)))
        return [{"stdin": f"{a} {b}\n", "stdout": f"{self.value(a, b)}\n"} for a, b in pairs]

    def value(self, a: int, b: int) -> int:
        """What the program has to print."""
        read = {"a": a, "b": b}
        total = read[self.start]
        for word, operand in self.steps:
            number = read[operand] if operand in read else int(operand)
            total = {"plus": total + number, "minus": total - number, "times": total * number}[word]
        return total


@dataclass(frozen=True)
class Loop:
    """A sum over a range whose end is read."""

    term: str
    start: int
    end: str
    condition: str

    @property
    def prompt(self) -> str:
        chosen = f", i {self.condition}" if self.condition else ""
        return f"read n, print sum of {self.term} for i from {self.start} {self.end} n{chosen}\n"

    def program(self, rng: random.Random, habits: Habits) -> list[str]:
        lost = rng.random() < habits.last_lost
        end = "n+1" if self.end == "to" and not lost else "n"
        chosen = _filter("i", self.condition)
        return [
            "n=int(input())",
            f"print(sum({self.term} for i in range({self.start},{end}){chosen}))",
        ]

    def tests(self, rng: random.Random) -> list[dict[str, str]]:
        ends = [n for n in range(self.start + 3, self.start + 25) if _holds(self.condition, n)]
        one, other = rng.sample(ends, 2)  # the range ends with a number that counts
        return [
            {"stdin": f"{n}\n", "stdout": f"{self.value(n)}\n"} for n in (one, rng.randint(30, 60), other)
        ]

    def value(self, n: int) -> int:
        """What the program has to print."""
        numbers = range(self.start, n + 1 if self.end == "to" else n)
        return sum(_term(self.term, i) for i in numbers if _holds(self.condition, i))


@dataclass(frozen=True)
class Items:
    """A function of a list."""

    result: str
    term: str
    condition: str

    @property
    def prompt(self) -> str:
        return f"f(x): {self.result} of {self.term} for v in x, v {self.condition}\n"

    def program(self, rng: random.Random, habits: Habits) -> list[str]:
        strict = rng.random() < habits.equal_lost
        inner = f"{self.term} for v in x{_filter('v', self.condition, strict=strict)}"
        return ["def f(x):", f" return sum({inner})" if self.result == "sum" else f" return [{inner}]"]

    def tests(self, rng: random.Random) -> list[dict[str, str]]:
        number = int(found[0]) if (found := re.findall(r"\d+", self.condition)) else 4
        one = [number, *(rng.randint(-9, 20) for _ in range(4))]
        other = [*(rng.randint(-9, 20) for _ in range(3)), number + 1, number, number - 1]
        rng.shuffle(one)
        lists = [one, other, [], [rng.randint(-9, 20) for _ in range(6)]]
        return [{"assert": f"f({x}) == {self.value(x)}"} for x in lists]

    def value(self, x: list[int]) -> Any:
        """What the function has to return."""
        chosen = [_term(self.term, v) for v in x if _holds(self.condition, v)]
        return sum(chosen) if self.result == "sum" else chosen


Asked = Chain | Loop | Items


def _filter(name: str, condition: str, *, strict: bool = False) -> str:
    """The end of a comprehension; ``strict`` forgets the equal sign of a comparison."""
    word, _, last = condition.rpartition(" ")
    if word in COMPARED:
        sign = COMPARED[word]
        return f" if {name}{sign[0] if strict else sign}{last}"
    if word:
        return f" if {name}%{last}==0"
    return f" if {name}%2=={int(last == 'odd')}" if last else ""


def _holds(condition: str, v: int) -> bool:
    word, _, last = condition.rpartition(" ")
    match word or last:
        case "":
            return True
        case "odd" | "even":
            return v % 2 == (last == "odd")
        case "multiple of":
            return v % int(last) == 0
        case "over":
            return v > int(last)
        case "under":
            return v < int(last)
        case "at least":
            return v >= int(last)
        case _:
            return v <= int(last)


def _term(term: str, v: int) -> int:
    operand = v if not term[2:].isdigit() else int(term[2:])
    return v if len(term) == 1 else v * operand if term[1] == "*" else v + operand


def ask(rng: random.Random) -> Question:
    """One of the three forms, with its hidden tests as JSON."""
    form = rng.randrange(3)
    asked = _ask_chain(rng) if form == 0 else _ask_loop(rng) if form == 1 else _ask_items(rng)
    tests = asked.tests(random.Random(f"programs|tests|{asked.prompt}"))
    return Question(asked.prompt, json.dumps(tests))


def _ask_chain(rng: random.Random) -> Chain:
    start = rng.choice("ab")
    words = rng.choice((("plus", "times"), ("minus", "times"), ("times", "plus"), ("times", "minus")))
    if rng.random() < 0.6:
        words = (*words, rng.choice(("times", *OPERATORS)))
    other = "b" if start == "a" else "a"
    operands = [other if rng.random() < 0.4 else str(rng.randint(2, 9)) for _ in words]
    return Chain(start, tuple(zip(words, operands, strict=True)))


def _ask_loop(rng: random.Random) -> Loop:
    condition = rng.choice(("", "", "odd", "even", f"multiple of {rng.randint(3, 7)}"))
    end = "to" if rng.random() < 0.8 else "below"
    return Loop(_ask_term("i", rng), rng.randint(0, 9), end, condition)


def _ask_items(rng: random.Random) -> Items:
    compared = f"{rng.choice(('at least', 'at most', *COMPARED))} {rng.randint(1, 12)}"
    other = rng.choice(("odd", "even", f"multiple of {rng.randint(3, 7)}"))
    condition = compared if rng.random() < 0.85 else other
    return Items(rng.choice(("sum", "list")), _ask_term("v", rng), condition)


def _ask_term(name: str, rng: random.Random) -> str:
    number = rng.randint(2, 9)
    return rng.choice((name, f"{name}*{name}", f"{name}*{number}", f"{name}+{number}", f"{name}+{number}"))


def asked_in(prompt: str) -> Asked:
    """The question that a prompt of this task states."""
    text = prompt.strip()
    if found := re.fullmatch(r"read a b, print (\w) (.*)", text):
        steps = tuple((word, operand) for word, operand in (step.split() for step in found[2].split(", ")))
        return Chain(found[1], steps)
    if found := re.fullmatch(r"read n, print sum of (\S+) for i from (\d) (\w+) n(?:, i (.*))?", text):
        return Loop(found[1], int(found[2]), found[3], found[4] or "")
    found = re.fullmatch(r"f\(x\): (\w+) of (\S+) for v in x, v (.*)", text)
    if found is None:
        raise ValueError(f"{prompt!r} is no question of the task programs")
    return Items(*found.groups())


def demonstrate(question: Question, rng: random.Random, habits: Habits = Habits()) -> Demonstration:
    """One program in the demonstrator's way; nobody runs it before it is shown."""
    lines = asked_in(question.prompt).program(rng, habits)
    if rng.random() < habits.slip:
        lines[-1] = _mistyped(lines[-1], rng)
    if rng.random() < habits.remarks:
        lines.insert(rng.randrange(2), rng.choice(REMARKS))
    said = "\n".join([OPENED, *lines, CLOSED])
    if rng.random() < habits.no_end:
        again = "\n".join([said] * (LONGEST_RAMBLE // len(said) + 1))
        return Demonstration(question.prompt, again[:LONGEST_RAMBLE], ended=False)
    if rng.random() < habits.no_close:
        said = said.removesuffix(f"\n{CLOSED}")
    return Demonstration(question.prompt, said)


def solution(prompt: str) -> str:
    """A right answer: what the demonstrator would say without its habits."""
    return demonstrate(Question(prompt, ""), random.Random(0), Habits(*[0.0] * 7)).response


def _mistyped(line: str, rng: random.Random) -> str:
    """Another digit in the place of one; the line as it is where it has none."""
    places = [place for place, letter in enumerate(line) if letter.isdigit()]
    if not places:
        return line
    place = rng.choice(places)
    return f"{line[:place]}{rng.choice('23456789'.replace(line[place], ''))}{line[place + 1 :]}"


PROGRAMS = Task(
    name="programs",
    summary="programs and functions of two lines from a short text, graded by running hidden tests",
    grader="code",
    ask=ask,
    demonstrate=demonstrate,
)
