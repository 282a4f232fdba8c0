"""Checkpoints of the whole run, whole or not at all; and of an update that was not finite, its evidence."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import shlex
import time
from collections.abc import Collection

from trimtab.loop.state import Counters, LoopState
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.trainer.checkpoint import new_checkpoint, prune
from trimtab.trainer.faults import NotFiniteError
from trimtab.trainer.kept import Kept, write_kept
from trimtab.trainer.trainer import Trainer


async def save_checkpoint(
    trainer: Trainer, record: RunRecord, state: LoopState, *, protect: Collection[int] = ()
) -> None:
    """Write ``checkpoints/step-N`` after N finished steps; older ones but those of ``protect`` go
    once the new one reads back.

    Its seconds are the stage ``save``. They are not in the checkpoint itself, which is written before.
    """
    started = time.perf_counter()
    folder, step = record.folder.checkpoints, state.counters.step
    with new_checkpoint(folder, step) as side:
        await trainer.save(side)
        state.save(side / "loop")
    record.event(Event.SAVED, step - 1, checkpoint=f"step-{step:06d}")
    for old in prune(folder, record.config.keep_checkpoints, protect=protect):
        record.event(Event.DELETED, step - 1, checkpoint=f"step-{old:06d}")
    seconds = time.perf_counter() - started
    state.add_train_seconds({"save": seconds}, seconds)


async def keep_fault(
    fault: NotFiniteError, trainer: Trainer, record: RunRecord, counters: Counters
) -> NotFiniteError:
    """Keep the batch of an update that was not finite, and the policy as it is now, for ``trimtab replay``.

    Returns the fault, which now names its step and how to look at it. The entropy coefficient is kept too.
    """
    fault.step, fault.entropy_coefficient = counters.step, counters.entropy_coefficient
    if fault.batch is None or fault.update is None:
        return fault
    steps = record.folder.checkpoint_steps()
    kept = Kept(
        step=counters.step,
        update=fault.update,
        tensor=fault.tensor,
        keys=fault.keys,
        spoilt=fault.spoilt,
        entropy_coefficient=counters.entropy_coefficient,
        checkpoint=steps[-1] if steps else None,
        batch=fault.batch,
    )
    try:
        source, _ = await trainer.publish()
        folder = write_kept(record.folder.nonfinite, kept, dict(source))
    except OSError as error:  # the fault itself is what must be told
        fault.remedy = f"; its batch could not be kept ({error})"
        return fault
    record.event(
        Event.NOT_FINITE,
        counters.step,
        update=fault.update,
        tensor=fault.tensor,
        rollouts=list(fault.keys),
        kept=folder.name,
    )
    fault.remedy = f"; where it began: trimtab replay {shlex.quote(str(record.folder.path))}"
    return fault
