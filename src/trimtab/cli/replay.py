"""Compute an update that was not finite again, and show where it begins.

trimtab replay runs/mine                the last update that was kept
trimtab replay runs/mine --update 12    another one

A run that meets a NaN or an infinity stops and keeps the batch and the policy's weights of that update.
Here the batch goes through the model twice: with the weights as they were found, and with those of the
last checkpoint. Nothing of the run is changed; go on with: trimtab train --resume runs/mine
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.cli.words import say
from trimtab.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor

    from trimtab.trainer.kept import Kept
    from trimtab.trainer.local import LocalTrainer
    from trimtab.trainer.replay import Place, Replay

SHOWN_ROLLOUTS = 4


def add(parser: argparse.ArgumentParser) -> None:
    """RUN, --update, --json."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--update", type=int, metavar="N", help="number of the update (default: the last kept)"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON and nothing else")


def main(args: argparse.Namespace) -> int:
    """Print what was kept, both replays, and what they say together."""
    kept, replays = replayed(args.run, args.update)
    if args.json:
        found = {
            "step": kept.step,
            "update": kept.update,
            "tensor": kept.tensor,
            "rollouts": kept.keys,
            "replays": {weights: dataclasses.asdict(replay) for weights, replay in replays.items()},
        }
        print(json.dumps(found, indent=1))
        return 0
    say(f"step {kept.step}, update {kept.update}: {kept.tensor} was not finite, at {_some(kept.keys)}")
    for weights, replay in replays.items():
        say(f"\nwith {weights}:\n" + "\n".join(_lines(replay)))
    say("\n" + verdict(kept, *replays.values()))
    return 0


def replayed(folder: Path, update: int | None = None) -> tuple[Kept, dict[str, Replay]]:
    """The kept update, and its replay by which weights it was computed with, in words.

    Raises RunError where no update was kept.
    """
    from trimtab.cli.train import stored_run
    from trimtab.launch import trainer_of
    from trimtab.loop.stages import objective_of
    from trimtab.models import load_model
    from trimtab.record.layout import RunFolder
    from trimtab.trainer.checkpoint import latest_checkpoint
    from trimtab.trainer.kept import kept_updates, read_kept, read_policy
    from trimtab.trainer.replay import replay_update

    run, there = stored_run(folder), RunFolder(folder)
    known = kept_updates(there.nonfinite)
    if not known or (update is not None and update not in known):
        wanted = "no update" if update is None else f"update {update} not"
        raise RunError(
            f"{folder} has kept {wanted} (kept: {', '.join(map(str, known)) or 'none'}); an update is kept "
            "when a number of it is not finite"
        )
    number = known[-1] if update is None else update
    kept = read_kept(there.nonfinite, number)
    objective = objective_of(run.build_algorithm(), kept.entropy_coefficient)
    checkpoint = latest_checkpoint(there.checkpoints)
    replays: dict[str, Replay] = {}
    for found in (True, False):
        trainer = trainer_of(run, load_model(run.model.path, device=run.model.device, dtype=run.model.dtype))
        if checkpoint is not None:
            asyncio.run(trainer.load(checkpoint.path))
        if found:
            _put(trainer, read_policy(there.nonfinite, number))
            words = "the policy as it was found"
        else:
            words = f"checkpoint {checkpoint.path.name}" if checkpoint else "the model the run began with"
        replays[words] = asyncio.run(replay_update(trainer, kept.batch, objective))
    return kept, replays


def verdict(kept: Kept, found: Replay, saved: Replay) -> str:
    """What the two replays say together, in one sentence."""
    places = {place.stage for place in found.places}
    if "batch" in places:
        return "The batch itself holds the number: look at how these rewards and advantages are made."
    if kept.spoilt:
        if saved.finite:
            return (
                "From the checkpoint the same batch leaves finite weights: they went bad on the way from it."
            )
        return "From the checkpoint it happens again: the update itself is too large, see the learning rate."
    if found.finite and saved.finite:
        return "Both times everything was finite: this did not come from weights and batch alone."
    if saved.finite:
        return "From the checkpoint the same batch is finite: the weights went bad after it, not this batch."
    return "From the checkpoint it happens again: this batch and this objective bring it about."


def _put(trainer: LocalTrainer, weights: Mapping[str, Tensor]) -> None:
    import torch

    from trimtab.models.lora import put_merged
    from trimtab.trainer.checkpoint import copy_into

    policy = trainer.owners[0]
    if trainer.adapters is not None:
        put_merged(trainer.model.module, weights)
        return
    with torch.no_grad():
        copy_into(policy.everything(), weights, "policy's weights")
        policy.spread()


def _lines(replay: Replay) -> list[str]:
    if replay.finite:
        loss, norm = replay.loss, replay.grad_norm
        return [f"  all finite: loss {loss:.6g}, gradient norm {0.0 if norm is None else norm:.6g}"]
    lines: list[str] = []
    groups: dict[tuple[str, str], list[Place]] = {}
    for place in replay.places:
        groups.setdefault((place.stage, place.where), []).append(place)
    for (stage, where), places in groups.items():
        values = " or ".join(sorted({place.value for place in places}))
        lines.append(f"  {stage:<9} {where}: {values}")
        shown = [f"{place.rollout}{_token(place.token)}" for place in places if place.rollout]
        if shown:
            lines.append(f"            first at {_some(shown)}")
    return lines


def _token(token: int | None) -> str:
    if token is None:
        return ""
    return f" token {token}" if token >= 0 else f" in the prompt, {-token} before the answer"


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - SHOWN_ROLLOUTS} more rollouts" if len(keys) > SHOWN_ROLLOUTS else ""
    return ", ".join(keys[:SHOWN_ROLLOUTS]) + more
