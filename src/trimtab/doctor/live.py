"""The doctor beside a training run: looks at the record as it grows and tells what is new.

Everything it knows comes from the record, so a resumed run goes on where the first process stopped: what has
been told stands in findings.jsonl, the last healthy checkpoint in events.jsonl. It changes nothing of
the run but may ask the loop to stop.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trimtab.doctor.case import Case, Rollouts, case_of
from trimtab.doctor.config import DoctorConfig
from trimtab.doctor.diagnose import Diagnosis, diagnose
from trimtab.record.events import Event
from trimtab.record.findings import Finding, Outcome
from trimtab.record.reader import RunReader

if TYPE_CHECKING:
    from trimtab.record.rows import RolloutRow
    from trimtab.record.writer import RunRecord

FIRST, LAST = 2, 2
"""Steps whose rollouts a look reads: the run's first ones, once, and its last ones."""


class LiveDoctor:
    """Looks every ``config.every`` steps and before each checkpoint.

    say: told one plain line for whatever is new. done: finished steps of the run when this process began.
    ``healthy``: the finished steps of the last healthy checkpoint, None before there is one; ``diagnosis``:
    what the last look saw; ``seconds``: time that it took, 0 where it was not time to look.
    """

    def __init__(
        self, config: DoctorConfig, record: RunRecord, say: Callable[[str], None], done: int = 0
    ) -> None:
        self.config = config
        self.seconds = 0.0
        self.healthy: int | None = None
        self.diagnosis: Diagnosis | None = None
        self._record = record
        self._say = say
        self._told: dict[str, Finding] = {}
        self._rows: dict[int, Sequence[RolloutRow]] = {}
        self._reader: RunReader | None = None
        self._sick = False
        if config.every and done:
            self._remember(done)

    @property
    def protected(self) -> frozenset[int]:
        """Checkpoints that no newer one may push out."""
        return frozenset() if self.healthy is None else frozenset({self.healthy})

    def look(self, done: int, *, saving: bool) -> str | None:
        """Look, where it is time to, after ``done`` finished steps; why the run should stop, else None."""
        self.seconds = 0.0
        if not self.config.every or (done % self.config.every and not saving):
            return None
        began = time.perf_counter()
        diagnosis = self.diagnosis = diagnose(self._case())
        self._sick = diagnosis.at_least(self.config.sick_from)
        self._tell(diagnosis, done)
        self.seconds = time.perf_counter() - began
        if self.config.stop_on == "never" or not self._sick:
            return None
        return self._why(diagnosis)

    def saved(self, done: int) -> None:
        """A checkpoint of ``done`` finished steps was written after the last look."""
        if self.config.every and not self._sick:
            self.healthy = done
            self._record.event(Event.HEALTHY, done - 1, checkpoint=f"step-{done:06d}")

    def _case(self) -> Case:
        if self._reader is None:
            self._reader = RunReader(self._record.folder.path)
        else:
            self._reader.refresh()
        case = case_of(self._reader)
        steps = self._reader.rollout_steps()
        steps = [step for step in steps if step <= case.step]
        chosen = tuple(dict.fromkeys([*steps[:FIRST], *steps[-LAST:]]))
        self._rows = {step: rows for step, rows in self._rows.items() if step in chosen}
        return Case(
            history=case.history,
            evaluations=case.evaluations,
            events=case.events,
            setup=case.setup,
            facts=case.facts,
            rollouts=Rollouts(chosen, lambda step: self._read(case.rollouts, step)),
        )

    def _read(self, rollouts: Rollouts, step: int) -> Sequence[RolloutRow]:
        if step not in self._rows:
            self._rows[step] = rollouts.of(step)
        return self._rows[step]

    def _tell(self, diagnosis: Diagnosis, done: int) -> None:
        """What differs from what was said before: to findings.jsonl, to the events, and in one line each."""
        for finding in diagnosis.findings:
            before = self._told.get(finding.rule)
            if not is_news(finding, before):
                continue
            self._write(finding)
            over = f"no longer: {finding.rule} ({finding.title})"
            self._say(f"step {done}: {sentence(finding) if finding.outcome is Outcome.FOUND else over}")

    def _write(self, finding: Finding) -> None:
        self._told[finding.rule] = finding
        self._record.finding(finding)
        if finding.outcome is Outcome.FOUND:
            self._record.event(
                Event.FOUND,
                finding.step,
                rule=finding.rule,
                severity=str(finding.severity),
                title=finding.title,
            )

    def _why(self, diagnosis: Diagnosis) -> str:
        kept = (
            "no checkpoint was healthy"
            if self.healthy is None
            else f"the last healthy checkpoint is step-{self.healthy:06d}, and it is kept"
        )
        return (
            f"the doctor stopped the run (doctor.stop_on = {self.config.stop_on!r}): "
            f"{sentence(diagnosis.found[0])}; {kept}; trimtab doctor {self._record.folder.path} says more"
        )

    def _remember(self, done: int) -> None:
        """What earlier processes of the run have told and kept, of the steps that count."""
        self._reader = RunReader(self._record.folder.path)
        for finding in self._reader.findings():
            if finding.step < done:
                self._told[finding.rule] = finding
        there = set(self._record.folder.checkpoint_steps())
        for event in self._reader.events:
            if event["event"] == Event.HEALTHY and event["step"] is not None and event["step"] < done:
                kept = event["step"] + 1
                self.healthy = kept if kept in there else self.healthy


def sentence(finding: Finding) -> str:
    """``CRITICAL truncation: 97% of the answers are cut off; likely max-length-too-short: set ...``."""
    text = f"{str(finding.severity).upper()} {finding.rule}: {finding.title}"
    if finding.causes:
        first = finding.causes[0]
        text += f"; likely {first.name}: {first.change}"
    return text


def is_news(finding: Finding, before: Finding | None) -> bool:
    """Whether a finding says something else than the line before of its rule: it came, went, or changed."""
    if finding.outcome is not Outcome.FOUND:
        return finding.outcome is Outcome.CLEAR and before is not None and before.outcome is Outcome.FOUND
    if before is None or before.outcome is not Outcome.FOUND or before.severity is not finding.severity:
        return True
    first = [one.causes[0].name if one.causes else "" for one in (finding, before)]
    return first[0] != first[1]
