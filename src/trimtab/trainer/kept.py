"""An update that was not finite, kept whole so that it can be computed again.

nonfinite/update-000012/fault.json           what was seen, where, and the rollouts' keys
nonfinite/update-000012/batch.safetensors    the batch with all its columns
nonfinite/update-000012/policy.safetensors   the policy's weights as they were found
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.errors import RunError
from trimtab.trainer.checkpoint import read_tensors, write_tensors
from trimtab.types import Batch

FORMAT = 1
NAME = re.compile(r"update-(\d+)")
PACKED = tuple(
    field.name for field in dataclasses.fields(Batch) if field.name not in ("prompts_P", "keys_S", "columns")
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """One update that was not finite.

    tensor: what was found first, in words; keys: the rollouts it was seen at; spoilt: whether the update
    changed weights; entropy_coefficient: where it is adapted; checkpoint: the last step saved before.
    ``batch`` lacks ``weights_T`` where its numbers were bad before any update was cut from it.
    """

    step: int
    update: int
    tensor: str
    keys: tuple[str, ...]
    spoilt: bool
    entropy_coefficient: float | None
    checkpoint: int | None
    batch: Batch


def write_kept(folder: Path, kept: Kept, policy: Mapping[str, Tensor]) -> Path:
    """Write it below ``folder``, whole or not at all; what an earlier try left of this update goes."""
    final = folder / f"update-{kept.update:06d}"
    side = folder / f".{final.name}.part"
    shutil.rmtree(side, ignore_errors=True)
    side.mkdir(parents=True)
    write_tensors(side / "batch.safetensors", _tensors(kept.batch))
    write_tensors(side / "policy.safetensors", policy)
    told = {f.name: getattr(kept, f.name) for f in dataclasses.fields(Kept) if f.name != "batch"}
    told |= {"format": FORMAT, "keys_S": kept.batch.keys_S}
    (side / "fault.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    os.replace(side, final)
    return final


def kept_updates(folder: Path) -> list[int]:
    """Numbers of the updates kept below ``folder``, ascending."""
    found = (NAME.fullmatch(path.name) for path in folder.glob("update-*"))
    return sorted(int(match[1]) for match in found if match)


def read_kept(folder: Path, update: int) -> Kept:
    """What ``write_kept`` wrote. Raises RunError where it is missing or damaged."""
    path = folder / f"update-{update:06d}"
    tensors = read_tensors(path / "batch.safetensors")
    try:
        told: dict[str, Any] = json.loads((path / "fault.json").read_text(encoding="utf-8"))
        keys_S = tuple(told.pop("keys_S"))
        if told.pop("format") != FORMAT:
            raise RunError(f"{path} was kept by a newer trimtab; install that one to replay it")
        told["keys"] = tuple(told["keys"])
        return Kept(**told, batch=_batch(tensors, keys_S))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); there is nothing to replay") from None


def read_policy(folder: Path, update: int) -> dict[str, Tensor]:
    """The policy's weights by name, as they were when the fault was found."""
    return read_tensors(folder / f"update-{update:06d}" / "policy.safetensors")


def _tensors(batch: Batch) -> dict[str, Tensor]:
    lengths_P = torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    prompts = torch.cat([torch.empty(0, dtype=torch.int64), *batch.prompts_P])
    packed = {name: getattr(batch, name) for name in PACKED}
    columns = {f"column/{name}": column for name, column in batch.columns.items()}
    return {"prompt_lengths_P": lengths_P, "prompt_ids": prompts, **packed, **columns}


def _batch(tensors: Mapping[str, Tensor], keys_S: tuple[str, ...]) -> Batch:
    prompts = tensors["prompt_ids"].split(tensors["prompt_lengths_P"].tolist())
    columns = {name.removeprefix("column/"): t for name, t in tensors.items() if name.startswith("column/")}
    return Batch(
        prompts_P=tuple(prompts), keys_S=keys_S, columns=columns, **{name: tensors[name] for name in PACKED}
    )
