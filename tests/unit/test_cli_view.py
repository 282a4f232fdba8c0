"""What people see while a run runs: numbers, time left, and no text that could steer the terminal."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trimtab.catalog import CATALOG
from trimtab.cli.lines import SHOWN, Pace, closing_lines, duration, evaluation_line, sparkline
from trimtab.cli.view import PlainView, TerminalView, choose_view
from trimtab.record.findings import Finding, Outcome, Severity

VALUES = {
    "reward/outcome": 0.625,
    "reward/mean": 0.25,
    "policy/entropy": 0.4321,
    "length/mean": 31.46,
    "flow/groups_kept": 24.0,
    "flow/draws": 40.0,
    "optimizer/updates": 4.0,
    "loss/total": -0.001,
}
START = {"pass@1": 0.412, "pass@1_interval": [0.38, 0.444], "pass@8": 0.8, "pass@8_interval": [0.77, 0.83]}
SUMMARY = {
    "algorithm": "dapo",
    "evaluation": {"start": START, "final": {**START, "pass@1": 0.873, "pass@1_interval": [0.85, 0.89]}},
    "steps": 100,
    "tokens": 1,
    "seconds": {
        "train": 120.0,
        "evaluation": 12.0,
        "total": 135.0,
        "stages": {"sample": 80.0, "update": 30.0},
    },
    "peak_memory_bytes": 1,
}
HOSTILE = "answer \x1b]0;title\x07 [bold red]x[/] \u202e"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_every_number_shown_is_in_the_catalogue():
    assert [shown.key for shown in SHOWN if shown.key not in CATALOG] == []
    assert [shown.out_of for shown in SHOWN if shown.out_of and shown.out_of not in CATALOG] == []


def test_plain_is_one_line_a_step_with_the_time_left():
    out, clock = io.StringIO(), Clock()
    view = PlainView(out, clock)
    view.start("sums", 10, ["32 prompts a step"])
    clock.now += 60.0
    view.evaluation("start", START)
    for step in (1, 2):
        clock.now += 2.0
        view.step(step, VALUES)
    assert out.getvalue().splitlines() == [
        "sums, 10 steps",
        "  32 prompts a step",
        "start   pass@1 0.412 [0.380, 0.444]   pass@8 0.800 [0.770, 0.830]",
        "step  1/10  pass rate 0.625  reward 0.250  entropy 0.432  length 31.5  kept groups 24/40  updates 4"
        "  left 0:18",
        "step  2/10  pass rate 0.625  reward 0.250  entropy 0.432  length 31.5  kept groups 24/40  updates 4"
        "  left 0:16",
    ]


def test_what_a_step_does_not_have_is_not_shown():
    out = io.StringIO()
    view = PlainView(out, Clock())
    view.step(1, {"reward/outcome": 0.0, "flow/groups_kept": 3.0})
    line = out.getvalue()
    assert "pass rate 0.000" in line
    assert "kept groups 3 " in line
    assert "entropy" not in line


def test_the_summary_tells_before_and_after_and_where_the_time_went():
    lines = list(closing_lines(SUMMARY))
    assert lines[0] == "pass@1  0.412 [0.380, 0.444]  ->  0.873 [0.850, 0.890]  (95% intervals)"
    assert lines[1] == "pass@8  0.800 [0.770, 0.830]  ->  0.800 [0.770, 0.830]  (95% intervals)"
    assert lines[2] == "100 steps in 2:00, evaluations 0:12, all in all 2:15"
    assert lines[3].startswith("sample ")
    assert "66.7%" in lines[3]
    assert list(closing_lines({})) == []


@pytest.mark.parametrize("live", [False, True])
def test_hostile_text_is_shown_and_never_obeyed(live: bool):
    out = io.StringIO()
    view = TerminalView(Console(file=out, width=100), Clock()) if live else PlainView(out, Clock())
    view.start(HOSTILE, 1, [HOSTILE])
    view.message(HOSTILE)
    view.evaluation(HOSTILE, {})
    view.finish({})
    assert out.getvalue().count("\\x1b]0;title\\x07 [bold red]x[/] \\u202e") == 4
    assert "\x1b]0;" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


def test_the_live_view_draws_bar_numbers_and_course():
    out, clock = io.StringIO(), Clock()
    view = TerminalView(Console(file=out, force_terminal=True, width=100, color_system=None), clock)
    view.start("sums", 3, [])
    for step in (1, 2):
        clock.now += 2.0
        view.step(step, {**VALUES, "reward/outcome": 0.1 * step})
    view.finish(SUMMARY)
    text = out.getvalue()
    assert "step 2/3" in text
    assert "2.0 s left" in text
    assert "▁█" in text
    assert "24/40" in text
    assert "->  0.873" in text
    view.close()


def test_the_live_view_keeps_the_doctors_verdict_in_sight():
    out = io.StringIO()
    view = TerminalView(Console(file=out, force_terminal=True, width=100, color_system=None), Clock())
    view.start("sums", 3, [])
    view.verdict("Nothing wrong was found: 34 rules looked.", ())
    assert "doctor  Nothing wrong was found" in out.getvalue()
    titles = [f"finding {HOSTILE} {number}" for number in range(6)]
    found = [
        Finding(rule="r", outcome=Outcome.FOUND, title=title, step=1, severity=Severity.CRITICAL)
        for title in titles
    ]
    out.truncate(0)
    view.verdict("This run is sick.", found)
    view.close()
    text = out.getvalue()
    assert "critical finding answer" in text
    assert "and 2 more" in text
    assert "\x07" not in text
    assert "\u202e" not in text


def test_the_plain_view_leaves_verdicts_to_messages():
    out = io.StringIO()
    PlainView(out, Clock()).verdict("This run is sick.", ())
    assert out.getvalue() == ""


def test_the_view_fits_the_output(tmp_path):
    with (tmp_path / "log").open("w") as file:
        assert isinstance(choose_view(plain=False, out=file), PlainView)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign] a terminal for one test
    assert isinstance(choose_view(plain=False, out=terminal), TerminalView)
    assert isinstance(choose_view(plain=True, out=terminal), PlainView)
    assert isinstance(choose_view(plain=False, out=terminal, dumb=True), PlainView)


def test_time_left_follows_the_last_steps_only():
    pace = Pace(0.0)
    assert pace.left(5) is None
    now = 0.0
    for seconds in [100.0] * 3 + [1.0] * 20:
        now += seconds
        pace.step(now)
    assert pace.left(5) == 5.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "0:10"), (59.6, "1:00"), (125, "2:05"), (3723, "1:02:03")],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


def test_sparklines_hold_the_last_values_and_skip_what_is_no_number():
    assert sparkline([]) == ""
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([0.0, float("nan"), 0.5, 1.0]) == "▁▅█"
    assert len(sparkline(list(range(100)))) == 40


def test_an_evaluation_tells_its_change_against_the_start_with_its_interval():
    change = {"difference": 0.461, "interval": [0.43, 0.49], "verdict": "better"}
    line = evaluation_line("final", {**START, "against_start": change})
    assert line.endswith("against start +0.461 [+0.430, +0.490]: better")


def test_an_evaluation_shows_truncation_only_where_there_was_some():
    assert "truncated" not in evaluation_line("start", {**START, "truncated": 0.0})
    assert "truncated 12.5%" in evaluation_line("start", {**START, "truncated": 0.125, "mean_length": 3.0})
