"""Checkpoints of the whole run: trainer, loop state and a loadable model, whole or not at all."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time

from trimtab.loop.state import LoopState
from trimtab.record.events import Event
from trimtab.record.writer import RunRecord
from trimtab.trainer.checkpoint import new_checkpoint, prune
from trimtab.trainer.trainer import Trainer


async def save_checkpoint(trainer: Trainer, record: RunRecord, state: LoopState) -> None:
    """Write ``checkpoints/step-N`` after N finished steps; older ones go once the new one reads back.

    Its seconds are the stage ``save``. They are not in the checkpoint itself, which is written before.
    """
    started = time.perf_counter()
    folder, step = record.folder.checkpoints, state.counters.step
    with new_checkpoint(folder, step) as side:
        await trainer.save(side)
        state.save(side / "loop")
    record.event(Event.SAVED, step - 1, checkpoint=f"step-{step:06d}")
    for old in prune(folder, record.config.keep_checkpoints):
        record.event(Event.DELETED, step - 1, checkpoint=f"step-{old:06d}")
    seconds = time.perf_counter() - started
    state.add_train_seconds({"save": seconds}, seconds)
