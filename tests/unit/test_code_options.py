"""The options of the code grader, and its refusal where programs cannot be confined."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from tests.unit.test_code_grader import ask
from trimtab.errors import SettingError
from trimtab.rewards.build import build_grader
from trimtab.rewards.code import CodeTests
from trimtab.rewards.rubric import GraderConfig
from trimtab.rewards.sandbox import Tier, probe
from trimtab.types import GradeState


def test_the_grader_is_built_by_name_with_checked_options():
    built = build_grader(GraderConfig(name="code", options={"partial": True, "seconds_per_test": 2}))
    assert built == CodeTests(partial=True, seconds_per_test=2)
    with pytest.raises(SettingError, match="did you mean 'partial'"):
        build_grader(GraderConfig(name="code", options={"partail": True}))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"seconds_per_test": 0.0}, "seconds_per_test must be > 0"),
        ({"seconds_per_test": 30.0}, "at most seconds = 20"),
        ({"megabytes": 8}, "at least 64"),
        ({"packages": ("/no/such/folder",)}, "which is no folder"),
    ],
)
def test_impossible_options_are_refused(options, why):
    with pytest.raises(SettingError, match=why):
        CodeTests(**options)


def test_without_a_sandbox_it_refuses_with_a_hint_unless_told_otherwise(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    probe_of = probe.__globals__["_probed"]
    probe_of.cache_clear()
    try:
        with pytest.raises(SettingError, match="apt-get install bubblewrap.*unsafe = true"):
            CodeTests(sandbox="bubblewrap").self_check([])
        loose = CodeTests(sandbox="bubblewrap", unsafe=True)
        assert loose.place().tier is Tier.UNSAFE
        assert "UNSAFELY" in loose.describe()
    finally:
        probe_of.cache_clear()


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_packages_of_the_user_can_be_imported(tmp_path, sandbox):
    (tmp_path / "mine.py").write_text("def seven(): return 7\n")
    program = "import mine\ndef f(): return mine.seven()\nif __name__ == '__main__': print(f())"
    tests = [{"stdin": "", "stdout": "7"}, {"assert": "f() == 7"}]
    assert ask(program, tests, sandbox=sandbox, packages=(str(tmp_path),)).state is GradeState.RIGHT
    assert ask(program, tests, sandbox=sandbox).state is GradeState.WRONG
