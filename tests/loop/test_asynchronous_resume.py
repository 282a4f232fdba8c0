"""Asynchronous runs that end early: kills, faults on either side, interruptions; and how they go on."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.asynchronous import OwnEngine, Plant, assert_same, compared, until
from tests.loop.test_asynchronous import DAPO, run_of, trained_keys
from trimtab.errors import RunError
from trimtab.loop import asynchronous, synchronous
from trimtab.loop.queued import load_queue, save_queue
from trimtab.models import LoadedModel
from trimtab.record.events import Event
from trimtab.record.reader import RunReader, State
from trimtab.trainer.checkpoint import latest_checkpoint

EVERY_STEP = {"checkpoint_every": 1, "tokens": "all"}


class PowerCutError(Exception):
    """Nothing of ours: the loop may not tidy up after it."""


def cut_at(update: int) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == update:
            raise PowerCutError

    return before


@pytest.mark.parametrize("staleness", [1, 2])
def test_killed_at_any_step_and_resumed_it_is_the_same_run(staleness: int, model: Path, tmp_path: Path):
    """Cut before the second update of every step in turn, each time resumed from what is on disk."""
    run = run_of(model, staleness, record=EVERY_STEP)
    Plant(run, tmp_path / "whole").go(asynchronous.train)
    torn = tmp_path / "torn"
    for attempt in range(4):
        plant = Plant(run, torn, before_update=cut_at(3), resume=attempt > 0)
        with pytest.raises(PowerCutError):
            plant.go(asynchronous.train)
        assert RunReader(torn).folder.checkpoint_steps()[-1] == attempt + 1
    plant = Plant(run, torn, resume=True)
    assert len(plant.state.queue) == 1 + (staleness - 1) * (4 % staleness), "a checkpoint holds the queue"
    plant.go(asynchronous.train)
    assert_same(compared(tmp_path / "whole"), compared(torn))
    twice = [key for key, times in Counter(trained_keys(torn)).items() if times > 1]
    assert twice == [], "no answer is trained twice"


class Breaking(OwnEngine):
    """Breaks at the second group of a collection, by this version or a later one, once ``after`` is set."""

    def __init__(self, model: LoadedModel, version: int, after: threading.Event | None = None) -> None:
        super().__init__(model)
        self.breaks_at, self.after = version, after

    async def generate(self, *args: Any, **kwargs: Any):
        place = 0
        async for group in super().generate(*args, **kwargs):
            if place == 1 and self.version >= self.breaks_at and self.groups > 4:
                while self.after is not None and not self.after.is_set():
                    await asyncio.sleep(0.005)
                raise RunError("the sampler's cable was pulled")
            place += 1
            yield group


def test_a_sampler_that_dies_mid_collection_loses_and_doubles_nothing(model: Path, tmp_path: Path):
    """Its unfinished prompts are drawn again, and the run is the one that was never disturbed."""
    run = run_of(model, 1, record=EVERY_STEP)
    Plant(run, tmp_path / "whole").go(asynchronous.train)
    folder = tmp_path / "torn"
    with pytest.raises(RunError, match="cable"):
        Plant(run, folder, engine=lambda model: Breaking(model, 2)).go(asynchronous.train)
    assert RunReader(folder).status().state is State.STOPPED
    assert latest_checkpoint(folder / "checkpoints") is not None
    Plant(run, folder, resume=True).go(asynchronous.train)
    assert_same(compared(tmp_path / "whole"), compared(folder))


def test_a_fault_of_sampling_is_raised_at_once_with_its_own_traceback(model: Path, tmp_path: Path):
    """The update that goes on meanwhile ends only after the run has ended: nobody waited for it."""
    begun, over = threading.Event(), threading.Event()

    def update_for_ever(number: int) -> None:
        begun.set()
        until(over.is_set)

    run = run_of(model, 1, algorithm={"name": "grpo", "kl_coef": 0.0})
    plant = Plant(
        run,
        tmp_path / "run",
        engine=lambda model: Breaking(model, 0, after=begun),
        before_update=update_for_ever,
    )
    try:
        with pytest.raises(RunError, match="cable") as caught:
            plant.go(asynchronous.train)
        assert begun.is_set()
        assert plant.trainer.made == 0, "the first update was still going on"
    finally:
        over.set()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "generate" in frames, "it says where the engine was"


def test_a_fault_of_grading_leaves_its_own_steps_rollouts(model: Path, tmp_path: Path):
    grader = tmp_path / "grader.py"
    grader.write_text(
        "seen = []\n\ndef breaks(prompt, rollout):\n    seen.append(1)\n"
        "    if len(seen) > 20:\n        raise ValueError('out of ink')\n    return float(len(seen) % 2)\n"
    )
    reward = {"graders": [{"name": f"{grader}:breaks", "isolated": False}], "truncated": "grade"}
    run = run_of(model, 1, algorithm={"name": "grpo", "kl_coef": 0.0}, reward=reward)
    with pytest.raises(RunError, match="out of ink"):
        Plant(run, tmp_path / "run").go(asynchronous.train)
    reader = RunReader(tmp_path / "run")
    failed = {event["step"] for event in reader.events if event["event"] == Event.GRADER_FAILED}
    assert failed == {1}
    assert reader.rollouts(1), "the step whose grading broke, not the one that was trained"


def test_a_fault_of_training_ends_the_sampling(model: Path, tmp_path: Path):
    plant = Plant(run_of(model, 2), tmp_path / "run", before_update=cut_at(2))

    async def watched() -> list[str]:
        with pytest.raises(PowerCutError):
            await plant.drive(asynchronous.train)
        return [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}]

    assert asyncio.run(watched()) == [], "no task is left behind"


@pytest.mark.parametrize("mode", ["drain", "update"])
def test_an_interruption_leaves_a_usable_checkpoint(mode: str, model: Path, tmp_path: Path):
    run = run_of(model, 1, mode=mode, record=EVERY_STEP)
    plant = Plant(run, tmp_path / "run")

    async def interrupted() -> None:
        task = asyncio.create_task(plant.drive(asynchronous.train))
        while plant.state.counters.step < 2:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(interrupted())
    plant = Plant(run, tmp_path / "run", resume=True)
    assert plant.state.counters.step >= 1
    plant.go(asynchronous.train)
    assert len(RunReader(tmp_path / "run").history) == 5
    if mode == "drain":
        Plant(run, tmp_path / "whole").go(asynchronous.train)
        assert_same(compared(tmp_path / "whole"), compared(tmp_path / "run"))


def test_a_run_that_is_exhausted_saves_and_says_so(model: Path, tmp_path: Path):
    grader = tmp_path / "grader.py"
    grader.write_text("def never(prompt, rollout):\n    return 0.0\n")
    reward = {"graders": [{"name": f"{grader}:never", "isolated": False}], "truncated": "grade"}
    table = {**DAPO, "selection": {"max_empty_steps": 2, "max_draws": 4}}
    run = run_of(model, 1, algorithm=table, reward=reward)
    with pytest.raises(RunError, match="2 steps in a row"):
        Plant(run, tmp_path / "run").go(asynchronous.train)
    assert RunReader(tmp_path / "run").folder.checkpoint_steps() == [2]


@pytest.mark.parametrize(
    ("before", "after", "loop"), [(3, 1, asynchronous), (2, 0, synchronous), (1, 3, asynchronous)]
)
def test_the_bound_may_change_when_a_run_is_resumed(
    before: int, after: int, loop: Any, model: Path, tmp_path: Path
):
    """What has become too old is collected again; nothing is trained twice or beyond the new bound."""
    folder, table = tmp_path / "run", {"name": "grpo", "kl_coef": 0.0}
    first = run_of(model, before, algorithm=table, record=EVERY_STEP)
    with pytest.raises(PowerCutError):
        Plant(first, folder, before_update=cut_at(5)).go(asynchronous.train)
    second = run_of(model, after, algorithm=table, record=EVERY_STEP)
    plant = Plant(second, folder, resume=True)
    assert plant.state.counters.step == 2
    plant.go(loop.train)
    history = RunReader(folder).history
    assert len(history) == 5
    late = [history.value(step, "staleness/max") or 0.0 for step in range(2, 5)]
    assert max(late) <= after
    keys = Counter(trained_keys(folder))
    assert max(keys.values()) == 1
    assert len(keys) == 5 * 16, "every prompt that was drawn came to its training"


def test_a_queue_is_the_same_after_a_round_trip(model: Path, tmp_path: Path):
    run = run_of(model, 2, record=EVERY_STEP)
    with pytest.raises(PowerCutError):
        Plant(run, tmp_path / "run", before_update=cut_at(3)).go(asynchronous.train)
    plant = Plant(run, tmp_path / "run", resume=True)
    save_queue(tmp_path / "again", plant.state.queue)
    for found, read in zip(plant.state.queue, load_queue(tmp_path / "again"), strict=True):
        for name in ("fresh", "kept", "surplus"):
            one, other = getattr(found, name), getattr(read, name)
            assert [scored.group.key for scored in one] == [scored.group.key for scored in other]
            assert [scored.grades for scored in one] == [scored.grades for scored in other]
            for left, right in zip(one, other, strict=True):
                for a, b in zip(left.group.rollouts, right.group.rollouts, strict=True):
                    assert a.logprobs.tobytes() == b.logprobs.tobytes()
                    assert a.versions == b.versions
        assert [(j.verdict, j.carried_in) for j in found.judged] == [
            (j.verdict, j.carried_in) for j in read.judged
        ]
        assert (found.cursor, found.keep_rate, found.draws) == (read.cursor, read.keep_rate, read.draws)
