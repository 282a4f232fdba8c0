"""A trainer's state on disk: weights, optimizer, critic, counters and torch's random generators.

trainer/policy.safetensors       master weights by name, tied ones once
trainer/critic.safetensors       where there is a critic
trainer/optimizer.safetensors    AdamW's moments and step counts: owner/moment/parameter
trainer/random.safetensors       states of torch's generators
trainer/trainer.json             counters and version
model/                           the policy as transformers loads it
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.errors import RunError
from trimtab.models import LoadedModel, export_model
from trimtab.trainer.checkpoint import copy_into, read_tensors, write_tensors
from trimtab.trainer.faults import first_not_finite
from trimtab.trainer.optimizer import Optimizer, Owned

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


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The live parameters of a module by name, tied ones once. Read them before the next update."""

    module: nn.Module

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.module.named_parameters():
            yield name, parameter.detach()


def write_state(
    path: Path,
    model: LoadedModel,
    owners: Sequence[Owned],
    optimizer: Optimizer,
    counts: Counts,
    version: int,
) -> None:
    """Write the files named above below ``path``. Raises RunError when a weight is not finite."""
    folder = path / "trainer"
    folder.mkdir(parents=True, exist_ok=True)
    for owned in owners:
        weights = owned.everything()
        if name := first_not_finite(weights):
            raise RunError(
                f"the {owned.name}'s weight {name} is not finite, so it is not saved; "
                "resume from the last checkpoint, with a lower trainer.learning_rate"
            )
        write_tensors(folder / f"{owned.name}.safetensors", weights)
    write_tensors(folder / "optimizer.safetensors", optimizer.moments())
    write_tensors(folder / "random.safetensors", _random_states(model.device))
    stored = {
        "format": FORMAT,
        "version": version,
        "counts": asdict(counts),
        "owners": [o.name for o in owners],
    }
    (folder / "trainer.json").write_text(json.dumps(stored, indent=1), encoding="utf-8")
    export_model(model.module, model.tokenizer, path / "model")


@torch.no_grad()
def read_state(
    path: Path, model: LoadedModel, owners: Sequence[Owned], optimizer: Optimizer
) -> tuple[Counts, int]:
    """Take back what ``write_state`` wrote, in place. Raises RunError where it does not fit."""
    folder = path / "trainer"
    try:
        stored: dict[str, Any] = json.loads((folder / "trainer.json").read_text(encoding="utf-8"))
        counts, version, names = Counts(**stored["counts"]), int(stored["version"]), stored["owners"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{folder} holds no trainer's state ({error}); resume from another checkpoint"
        ) from None
    if names != [owned.name for owned in owners]:
        raise RunError(
            f"the checkpoint {path} has weights of {' and '.join(names)}, this run of "
            f"{' and '.join(owned.name for owned in owners)}; resume with the algorithm it was written with"
        )
    for owned in owners:
        weights = read_tensors(folder / f"{owned.name}.safetensors")
        copy_into(owned.everything(), weights, f"{owned.name}'s weights")
        owned.spread()
    optimizer.restore(read_tensors(folder / "optimizer.safetensors"))
    _restore_random_states(read_tensors(folder / "random.safetensors"), model.device)
    return counts, version


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
