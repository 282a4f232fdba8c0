"""The two scenes: the same model, prompts, group sizes and limits for everybody."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from trimtab.loop.fresh import TinyModel, fresh_model
from trimtab.models import export_model

SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One workload.

    model: folder of the weights. prompts, samples: groups a step and answers a group. limit: response tokens.
    """

    name: str
    model: str
    prompts: int
    samples: int
    limit: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def scenes(work: Path, smollm2: Path, limit: int | None = None) -> dict[str, Scene]:
    """Both scenes; the tiny model is made where it is not there yet."""
    tiny = work / "tiny-model"
    if not (tiny / "config.json").exists():
        shape = TinyModel(layers=4, width=192, heads=6, kv_heads=6, inner=512, context=256)
        made = fresh_model(shape, SEED)
        export_model(made.module, made.tokenizer, tiny)
    return {
        "tiny": Scene(name="tiny", model=str(tiny), prompts=32, samples=8, limit=limit or 96),
        "smollm2": Scene(name="smollm2", model=str(smollm2), prompts=4, samples=8, limit=limit or 64),
    }


def questions(count: int) -> list[str]:
    """Sums in plain text, different ones, the same for everybody."""
    rng = random.Random(SEED)
    found: dict[str, None] = {}
    while len(found) < count:
        a, b, c = (rng.randint(10, 99) for _ in range(3))
        found[f"Work out {a} + {b} - {c} step by step, then give the result.\n"] = None
    return list(found)
