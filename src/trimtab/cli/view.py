"""Two views of a running run: a live one for terminals, and one line a step for everything else.

Both satisfy ``trimtab.loop.view.View``: the loop calls a view, never the other way round. Whatever
text reaches the screen passes ``safe`` first and is never read as markup: answers may hold anything.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from trimtab.cli.lines import COURSE, SHOWN, Pace, closing_lines, duration, evaluation_line, sparkline
from trimtab.cli.words import safe, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from trimtab.record.findings import Finding

Clock = Callable[[], float]
FINDINGS = 4
STYLES = {"critical": "bold red", "warning": "yellow", "note": "cyan"}


def choose_view(*, plain: bool, out: TextIO, dumb: bool = False) -> PlainView | TerminalView:
    """The live view on a terminal, the plain one for files, pipes and on demand."""
    if plain or dumb or not out.isatty():
        return PlainView(out)
    from rich.console import Console

    return TerminalView(Console(file=out, highlight=False))


class PlainView:
    """One line a step, nothing is ever rewritten: for log files."""

    def __init__(self, out: TextIO, clock: Clock = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._steps = 0
        self._pace = Pace(clock())

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None:
        self._steps = steps
        self._say(f"{run_name}, {steps} steps" if steps else run_name)
        for line in lines:
            self._say(f"  {line}")
        self._pace.pause(self._clock())

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None:
        self._say(evaluation_line(label, result))
        self._pace.pause(self._clock())

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._pace.step(self._clock())
        parts = [f"{shown.label} {text}" for shown in SHOWN if (text := shown.text(values))]
        left = self._pace.left(self._steps - step)
        if left is not None:
            parts.append(f"left {duration(left)}")
        self._say(f"step {step:>{len(str(self._steps))}}/{self._steps}  " + "  ".join(parts))

    def message(self, text: str) -> None:
        self._say(text)

    def verdict(self, text: str, found: Sequence[Finding]) -> None:
        """What is new in it has come as a message; a log file needs no more."""

    def finish(self, summary: Mapping[str, Any]) -> None:
        for line in closing_lines(summary):
            self._say(line)

    def close(self) -> None:
        """Nothing to put back."""

    def _say(self, line: str) -> None:
        say(line, self._out)


class TerminalView:
    """A bar, the time left and the numbers of the last step with their recent course, redrawn in place."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = console
        self._clock = clock
        self._steps = 0
        self._pace = Pace(clock())
        self._values: Mapping[str, float] = {}
        self._history: dict[str, deque[float]] = {}
        self._verdict = ""
        self._found: Sequence[Finding] = ()
        columns = (
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = Progress(*columns, console=console)
        self._task = self._bar.add_task("", total=1, left="")
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._render)

    def start(self, run_name: str, steps: int, lines: Sequence[str]) -> None:
        self._steps = steps
        self._say(run_name, "bold")
        for line in lines:
            self._say(f"  {line}")
        self._bar.update(self._task, total=steps, completed=0)
        if steps:
            self._live.start()
        self._pace.pause(self._clock())

    def evaluation(self, label: str, result: Mapping[str, Any]) -> None:
        self._say(evaluation_line(label, result), "bold")
        self._pace.pause(self._clock())

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._pace.step(self._clock())
        self._values = values
        for shown in SHOWN:
            if shown.key in values:
                self._history.setdefault(shown.key, deque(maxlen=COURSE)).append(values[shown.key])
        left = self._pace.left(self._steps - step)
        self._bar.update(self._task, completed=step, left="" if left is None else f"{duration(left)} left")
        self._live.refresh()

    def verdict(self, text: str, found: Sequence[Finding]) -> None:
        """Stays below the numbers until the doctor looks again."""
        self._verdict, self._found = text, found
        self._live.refresh()

    def message(self, text: str) -> None:
        for line in text.splitlines():
            self._say(line)

    def finish(self, summary: Mapping[str, Any]) -> None:
        self._bar.update(self._task, left="")
        self.close()
        for line in closing_lines(summary):
            self._say(line)

    def close(self) -> None:
        """Leave the terminal as it was; the last state stays on the screen."""
        self._live.stop()

    def _render(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for shown in SHOWN:
            text = shown.text(self._values)
            if text:
                course = sparkline(tuple(self._history[shown.key]))
                grid.add_row(Text(shown.label), Text(text, style="bold"), Text(course, style="cyan"))
        return Group(self._bar.get_renderable(), grid, *self._doctor())

    def _doctor(self) -> Iterator[Text]:
        """The gravest findings, one line each; the verdict where nothing was found."""
        from rich.text import Text

        if self._verdict and not self._found:
            yield Text(f"doctor  {safe(self._verdict)}", style="green")
        for finding in self._found[:FINDINGS]:
            severity = str(finding.severity)
            yield Text.assemble(
                (f"{severity:<9}", STYLES[severity]), safe(finding.title), overflow="ellipsis"
            )
        if len(self._found) > FINDINGS:
            yield Text(f"and {len(self._found) - FINDINGS} more: trimtab doctor", style="dim")

    def _say(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(safe(line), style=style), soft_wrap=True)
