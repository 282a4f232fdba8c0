"""What comes after a step: an evaluation, a look of the doctor, a checkpoint, the end of the run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from trimtab.algorithms.algorithm import Algorithm
from trimtab.config import Run
from trimtab.doctor.diagnose import verdict
from trimtab.doctor.live import LiveDoctor
from trimtab.errors import RunError
from trimtab.loop.evaluating import evaluate_policy
from trimtab.loop.learning import exhausted
from trimtab.loop.machines import Machines
from trimtab.loop.observe import Step
from trimtab.loop.saving import save_checkpoint
from trimtab.loop.state import LoopState
from trimtab.record.events import Event


@dataclass(frozen=True, slots=True)
class Due:
    """What is due after ``done`` finished steps. ``exhausted``: why the run can go no further."""

    done: int
    last: bool
    exhausted: str | None
    evaluation: bool
    saving: bool

    @classmethod
    def after(cls, step: Step, run: Run, algorithm: Algorithm, machines: Machines, state: LoopState) -> Self:
        done = state.counters.step
        last, ended = done == run.run.steps, exhausted(step, algorithm, state)
        every = run.evaluation.every
        return cls(
            done=done,
            last=last,
            exhausted=ended,
            evaluation=bool(machines.held_out and not last and every and done % every == 0),
            saving=bool(last or ended or done % run.record.checkpoint_every == 0),
        )

    def stop(self, sick: str | None) -> None:
        """Raises RunError where the run is exhausted, or sick and told to stop, before its last step."""
        if (self.exhausted or sick) and not self.last:
            raise RunError(self.exhausted or sick)


def doctor_of(run: Run, machines: Machines, state: LoopState) -> LiveDoctor:
    """The doctor that looks at this run from now on."""
    return LiveDoctor(run.doctor, machines.record, machines.view.message, state.counters.step)


def look(doctor: LiveDoctor, machines: Machines, state: LoopState, *, saving: bool) -> str | None:
    """Let the doctor look where it is time to; why the run should stop, else None."""
    sick = doctor.look(state.counters.step, saving=saving)
    if doctor.seconds and doctor.diagnosis is not None:
        machines.view.verdict(verdict(doctor.diagnosis), doctor.diagnosis.found)
    state.add_train_seconds({"doctor": doctor.seconds} if doctor.seconds else {}, doctor.seconds)
    return sick


async def save(doctor: LiveDoctor, machines: Machines, state: LoopState) -> None:
    """A checkpoint, of which the doctor knows."""
    await save_checkpoint(machines.trainer, machines.record, state, protect=doctor.protected)
    doctor.saved(state.counters.step)


async def close(run: Run, machines: Machines, state: LoopState) -> None:
    """After the last step: name the groups that still wait, and evaluate."""
    if state.carried:
        waiting = [scored.group.key for scored in state.carried]
        machines.record.event(Event.GROUPS_WAITING, state.counters.step - 1, groups=waiting)
    if machines.held_out:
        await evaluate_policy(run, machines, state, "final")
