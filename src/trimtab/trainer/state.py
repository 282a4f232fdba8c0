"""A trainer's state on disk: weights, optimizer, critic, counters and torch's random generators.

trainer/policy.safetensors       master weights by name, tied ones once
trainer/critic.safetensors       where there is a critic
trainer/optimizer.safetensors    AdamW's moments and step counts: owner/moment/parameter
trainer/random.safetensors       states of torch's generators
trainer/trainer.json             counters and version, how many ranks wrote, adapters and their base
model/                           the policy as transformers loads it; of a policy with adapters instead:
adapter/                         the adapters as peft loads them, since the base has not changed

Ranks write a file each, ``policy-00002-of-00003.safetensors``: the same names, of each tensor their rows.
Any number of ranks reads what any other number has written, and of each file only the rows that it needs.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import RunError
from trimtab.models.lora import Adapters
from trimtab.trainer.checkpoint import copy_into, read_tensors, write_tensors
from trimtab.trainer.faults import first_not_finite
from trimtab.trainer.optimizer import Optimizer, Owned
from trimtab.trainer.rows import read_rows
from trimtab.trainer.together import Alone, Together

FORMAT = 1


@dataclass(slots=True)
class Counts:
    """What a trainer counts.

    updates: optimizer steps made, of which ``warmups`` trained the critic alone. nonfinite: updates
    skipped in a row for a number that was not finite. changed: weights differ from those published.
    """

    updates: int = 0
    warmups: int = 0
    nonfinite: int = 0
    changed: bool = False


def write_state(
    path: Path,
    owners: Sequence[Owned],
    optimizer: Optimizer,
    counts: Counts,
    version: int,
    device: torch.device,
    together: Together = Alone(),
    *,
    adapters: Adapters | None = None,
) -> None:
    """Write the files below ``trainer/``. Raises RunError when a weight is not finite."""
    folder = path / "trainer"
    weights = {owned.name: owned.everything() for owned in owners}
    for owner, tensors in weights.items():
        if name := together.first(first_not_finite(tensors.items()), list(tensors)):
            raise RunError(
                f"the {owner}'s weight {name} is not finite, so it is not saved; "
                "resume from the last checkpoint, with a lower trainer.learning_rate"
            )
    with together.as_one():
        folder.mkdir(parents=True, exist_ok=True)
        written = {**weights, "optimizer": optimizer.moments(), "random": _random_states(device)}
        for name, tensors in written.items():
            write_tensors(file_of(folder, name, together.rank, together.size), tensors)
        if together.rank == 0:
            stored = {
                "format": FORMAT,
                "version": version,
                "counts": asdict(counts),
                "owners": list(weights),
                "ranks": together.size,
            }
            if adapters is not None:
                stored["adapters"] = asdict(adapters)
            (folder / "trainer.json").write_text(json.dumps(stored, indent=1), encoding="utf-8")


def file_of(folder: Path, name: str, rank: int, ranks: int) -> Path:
    """Where a rank of so many keeps what is called ``name``."""
    return folder / (
        f"{name}.safetensors" if ranks == 1 else f"{name}-{rank + 1:05d}-of-{ranks:05d}.safetensors"
    )


@torch.no_grad()
def read_state(
    path: Path,
    owners: Sequence[Owned],
    optimizer: Optimizer,
    device: torch.device,
    together: Together = Alone(),
    *,
    adapters: Adapters | None = None,
) -> tuple[Counts, int]:
    """Take back what ``write_state`` wrote, in place, in any number of ranks.

    Raises: RunError where it does not fit.
    """
    folder = path / "trainer"
    with together.as_one():
        try:
            stored: dict[str, Any] = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
            counts, version, names = Counts(**stored["counts"]), int(stored["version"]), stored["owners"]
            ranks = int(stored.get("ranks", 1))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{folder} holds no trainer's state ({error}); resume from another checkpoint"
            ) from None
        if names != [owned.name for owned in owners]:
            raise RunError(
                f"the checkpoint {path} has weights of {' and '.join(names)}, this run of "
                f"{' and '.join(owned.name for owned in owners)}; resume with the algorithm it was written "
                "with"
            )

        _refuse_other_base(path, stored.get("adapters"), adapters)

        def files(name: str) -> list[Path]:
            return [file_of(folder, name, rank, ranks) for rank in range(ranks)]

        for owned in owners:
            copy_into(
                owned.everything(), read_rows(files(owned.name), together.rows), f"{owned.name}'s weights"
            )
            owned.spread()
        optimizer.restore(read_rows(files("optimizer"), together.rows))
        _restore_random_states(read_tensors(files("random")[together.rank % ranks]), device)
    return counts, version


def _refuse_other_base(path: Path, stored: dict[str, Any] | None, adapters: Adapters | None) -> None:
    """Raises RunError where adapters would come to lie on another base than they were trained on, or mean
    something else there.
    """
    if (stored is None) != (adapters is None):
        there, here = ("all weights", "adapters") if stored is None else ("adapters", "all weights")
        raise RunError(
            f"the checkpoint {path} was written by a run that trains {there}, this one trains {here}; "
            "resume with the model.lora it was written with"
        )
    if stored is None or adapters is None:
        return
    if stored["base"] != adapters.base:
        raise RunError(
            f"the frozen weights are not those that the checkpoint {path} was trained on: model.path holds "
            f"other weights now ({adapters.dtype} here, {stored['dtype']} there); put the old ones back, "
            "adapters alone mean nothing"
        )
    own = json.loads(json.dumps(asdict(adapters.config)))
    for name, value in own.items():
        if stored["config"].get(name) != value:
            raise RunError(
                f"the checkpoint {path} was written with model.lora.{name} = {stored['config'].get(name)!r}, "
                f"this run has {value!r}; resume with the settings it was written with"
            )


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
