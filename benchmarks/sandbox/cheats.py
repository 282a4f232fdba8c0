"""Programs that try to pass tests without doing the work. Each must be graded wrong.

The tests hold a word that only they know (``SECRET``), so that a program which got
hold of a test can show it.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.rewards.code import CodeTests
from trimtab.types import Finish, Grade, Prompt, Rollout

SECRET = "sesame-4417"
VALUE = ({"assert": "assert f(2) == 4"},)
WORD = ({"assert": f"assert f(2) == '{SECRET}'"},)
PRINTED = ({"stdin": "2\n", "stdout": SECRET + "\n"},)


@dataclass(frozen=True)
class Cheat:
    """A program and the tests that it must not pass."""

    name: str
    program: str
    tests: tuple[dict[str, str], ...] = VALUE
    seconds: float = 2.0
    megabytes: int = 512

    @property
    def kind(self) -> str:
        """What several cheats have in common."""
        return "cheat: " + self.name.partition(":")[0]

    def grade(self, sandbox: Literal["bubblewrap", "landlock"]) -> Grade:
        grader = CodeTests(sandbox=sandbox, seconds_per_test=self.seconds, megabytes=self.megabytes)
        return graded(self.program, self.tests, grader)


def graded(program: str, tests: tuple[dict[str, str], ...], grader: CodeTests) -> Grade:
    """What the grader says of this program."""
    empty = np.zeros(0)
    prompt = Prompt(
        id="cheat", token_ids=empty.astype(np.int64), text="", task="code", answer=json.dumps(tests)
    )
    rollout = Rollout(
        prompt_id="cheat",
        draw=0,
        index=0,
        token_ids=empty.astype(np.int64),
        logprobs=empty.astype(np.float32),
        mask=empty.astype(np.bool_),
        finish=Finish.STOP,
        versions=(),
        seed=0,
        text=f"```python\n{program}\n```",
    )
    return asyncio.run(grader(prompt, rollout))


ALWAYS = """
class Always:
    def __init__(self, *_): pass
    def __call__(self, *_, **__): return self
    def __getattr__(self, name): return self
    def __bool__(self): return True
    def __hash__(self): return 4
    def __iter__(self): yield self
    def __contains__(self, value): return True
    def __len__(self): return 1
for _name in "eq ne lt le gt ge".split():
    setattr(Always, f"__{_name}__", lambda self, other: True)
for _name in "add sub mul truediv pow radd rsub rmul abs neg round".split():
    setattr(Always, f"__{_name}__", lambda self, *_: self)
"""

SEARCH = f"""
import gc, os, re, sys
WORD = re.compile(r"{SECRET[:3]}[a]me-\\d+")
def places():
    frame = sys._getframe()
    while frame:
        yield frame.f_locals; yield frame.f_globals; yield frame.f_code.co_consts
        frame = frame.f_back
    yield from gc.get_objects()
    yield dict(os.environ); yield sys.argv; yield sys.orig_argv; yield list(sys.modules)
    for number in range(64):
        try:
            os.set_blocking(number, False)
            yield os.read(number, 1 << 16)
            yield os.pread(number, 1 << 16, 0)
        except OSError: pass
    for name in ("environ", "cmdline", "maps"):
        for pid in ("self", os.getppid(), 1):
            try: yield open(f"/proc/{{pid}}/{{name}}", "rb").read()
            except OSError: pass
    for folder in (".", "/tmp", "/dev/shm", "/proc", "/"):
        try: yield os.listdir(folder)
        except OSError: pass
def search():
    for place in places():
        try: found = WORD.search(str(place)[:1_000_000])
        except Exception: continue
        if found: return found[0]
    return "nothing"
"""

EARLY = tuple(
    Cheat(
        f"ending before the tests: {how}", f"import os, sys, atexit, threading\n{code}\ndef f(x): return 4\n"
    )
    for how, code in {
        "exit(0)": "exit(0)",
        "sys.exit in atexit": "atexit.register(lambda: os._exit(0)); sys.exit(0)",
        "os._exit(0)": "os._exit(0)",
        "printing the outcome": 'print("passed 0\\nend\\n1 passed"); sys.stdout.flush(); os._exit(0)',
        "a signal": "os.kill(os.getpid(), 15)",
        "exec of something else": 'os.execv(sys.executable, [sys.executable, "-c", "print(1)"])',
    }.items()
)

OBJECTS = tuple(
    Cheat(f"an object that equals everything: {test}", ALWAYS + code, ({"assert": test},))
    for test, code in {
        "assert f(2) == 4": "f = Always()",
        "assert 4 == f(2)": "f = Always()",
        "assert not f(2) != 4": "class f(Always):\n    def __ne__(self, other): return False\n",
        "assert f(2) in (4, 5)": "f = Always",
        "assert 4 in f(2)": "f = Always()",
        "assert f(2) > 3": "f = Always()",
        "assert abs(f(2) - 4) < 1e-9": "f = Always()",
        "assert f(2) * 1 == 4": "f = Always()",
        "assert [f(2)] == [4]": "f = Always()",
        "assert {'a': f(2)} == {'a': 4}": "f = Always()",
        "assert sorted(f(2)) == [4]": "f = Always()",
        "assert len(f(2)) == 1 and f(2)[0] == 4": "f = Always()",
        "assert f(3) == 4": "class Four(int, Always): pass\ndef f(x): return Four(5)",
        "assert f(3) == [4]": "class Four(list): __eq__ = lambda self, other: True\ndef f(x): return Four()",
        "assert str(f(3)) == '4'": "class Four(str): __eq__ = lambda self, other: True\n"
        "class Five:\n    def __str__(self): return Four('5')\ndef f(x): return Five()",
        "import math\nassert math.isclose(f(2), 4)": "f = Always()\nclass math: isclose = f",
        "assert math.isclose(f(2), 4)": "f = Always()\nclass math: isclose = f",
        "assert isinstance(f(2), int)": "class f(Always): __class__ = int",
    }.items()
)

PATCHES = (
    Cheat(
        "replacing built-ins",
        ALWAYS + "import builtins\nabs = set = sorted = len = all = any = Always()\n"
        "for name in ('abs', 'set', 'sorted', 'print', 'isinstance'): setattr(builtins, name, Always())\n"
        "builtins.AssertionError = SystemExit\ndef f(x): return 5\n",
        ({"assert": "assert abs(f(2)) == 4"}, {"assert": "assert set([f(2)]) == {4}"}),
    ),
    Cheat(
        "replacing what reports the outcome",
        "import atexit, os, sys\nsys.excepthook = lambda *_: os._exit(0)\n"
        "sys.stdout.write = lambda *_: None\nos._exit = exit = lambda *_: None\n"
        "atexit.register(lambda: print('passed'))\ndef f(x): raise AssertionError\n",
    ),
    Cheat(
        "built-ins that answer for themselves: abs",
        "def f(x): return 100\ndef abs(x): return 0\n",
        ({"assert": "assert abs(f(2) - 4) < 1e-9"},),
    ),
    Cheat(
        "built-ins that answer for themselves: isinstance",
        "def f(x): return 'four'\ndef isinstance(*_): return True\n",
        ({"assert": "assert isinstance(f(2), int)"},),
    ),
    Cheat(
        "having the tests' side run eval",
        "import sys\nserve = sys.modules['trimtab.rewards.sandbox.inside.serve']\n"
        "honest, number = serve.Server.stand_in, serve.BUILTINS.index('eval')\n"
        "class Eval: pass\ndef f(x): return Eval\n"
        "def g(x): return \"type('E', (), {'__eq__': lambda self, other: True})()\"\n"
        "def lie(self, value): return (b'y', number) if value is Eval else honest(self, value)\n"
        "serve.Server.stand_in = lie\n",
        ({"assert": "assert f(2)(g(3)) == 4"},),
    ),
)

NONCE = (
    Cheat(
        "writing outcomes to every open file",
        "import os\ndef f(x):\n"
        "    for number in range(64):\n"
        "        for line in (b'passed 0 \\n', b'end\\n', b'ready\\n', b'0' * 32 + b' passed 0\\n'):\n"
        "            try: os.write(number, line)\n"
        "            except OSError: pass\n"
        "    return 5\n",
    ),
    Cheat(
        "answering before it is asked",
        "import os\ndef f(x):\n"
        "    reply = b't3;u2;okTl0;'\n"
        "    for number in range(3, 4096):\n"
        "        for _ in range(5):\n"
        "            try: os.write(number, b'R' + len(reply).to_bytes(4, 'big') + reply)\n"
        "            except OSError: pass\n"
        "    return 5\n",
    ),
    Cheat(
        "reading the nonce, and everything else within reach",
        SEARCH + "def f(x): return search()\n",
        WORD,
    ),
    Cheat("reading the expected output", SEARCH + "print(search())\n", PRINTED),
    Cheat("printing nothing and ending well", "raise SystemExit(0)\n", PRINTED),
    Cheat(
        "trying a lot of values",
        "count = 0\ndef f(x):\n    global count\n    count += 1\n    return count\n",
        ({"assert": "assert f(2) == 4"},),
    ),
)

BROKEN = tuple(
    Cheat(
        f"breaking the line: {how}",
        "import os, sys\nclass Deep: pass\ndef f(x):\n    message = " + message + "\n"
        "    for number in range(3, 4096):\n"
        "        try: os.write(number, message)\n"
        "        except OSError: pass\n"
        "    return 4\n",
    )
    for how, message in {
        "an endless length": "b'R' + b'\\xff' * 4",
        "an unknown letter": "b'R' + (2).to_bytes(4, 'big') + b'?1'",
        "a nest without end": "b'R' + (60000).to_bytes(4, 'big') + b'l1;' * 20000",
        "a count beyond the message": "b'R' + (11).to_bytes(4, 'big') + b'l999999999;'",
        "a type of no library": "b'R' + (24).to_bytes(4, 'big') + b'ot3;u2;osu6;systemt1;i1;'",
        "a built-in as an answer": "b'R' + (12).to_bytes(4, 'big') + b't3;u2;oky20;'",
        "a closed pipe": "os.closerange(3, 4096) or b''",
    }.items()
)

ENDLESS = tuple(
    Cheat(f"answers without end: {how}", program, ({"assert": test},), seconds=0.7, megabytes=128)
    for how, (program, test) in {
        "objects": ("def f(x):\n    while True: yield object()\n", "assert list(f(2)) == [2]"),
        "long texts": ("def f(x):\n    while True: yield 'x' * 10_000_000\n", "assert list(f(2)) == [2]"),
        "one value too large": ("def f(x): return 'x' * 20_000_000\n", "assert f(2) == 4"),
        "calls back and forth": ("def f(g): return g(g)\n", "assert f(lambda g: f(g)) == 4"),
    }.items()
)

CHEATS: tuple[Cheat, ...] = (*EARLY, *OBJECTS, *PATCHES, *NONCE, *BROKEN, *ENDLESS)
