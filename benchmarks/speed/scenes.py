"""The scenes: the same model, prompts, group sizes, limits and rewards for everybody."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.data.tasks.sums import SUMS
from trimtab.loop.fresh import TinyModel, fresh_model
from trimtab.models import export_model, resolve_path

SEED = 11
SCENES = ("tiny", "smollm2", "sums", "memory")
TINY = TinyModel(layers=4, width=192, heads=6, kv_heads=6, inner=512, context=256)
"""1.8 M weights."""


class Asked(NamedTuple):
    """A prompt and its gold answer."""

    prompt: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One workload.

    model: folder of the weights. prompts, samples: groups a step and answers a group. limit: response tokens.
    questions: "sums" asks the built-in task's short questions, "words" one in plain text.
    forced: rewards alternate within a group, so that every group is useful; else the answers are graded.
    """

    name: str
    model: str
    prompts: int
    samples: int
    limit: int
    questions: str
    forced: bool = True

    @property
    def rollouts(self) -> int:
        return self.prompts * self.samples

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def size(self) -> str:
        return f"{self.prompts} prompts x {self.samples} answers of at most {self.limit} tokens"


def scene_of(name: str, work: Path, smollm2: Path, **changed: Any) -> Scene:
    """The scene of that name; ``changed`` replaces its fields where not None. Makes the tiny model."""
    known: dict[str, dict[str, Any]] = {
        "tiny": {"model": "", "prompts": 32, "samples": 8, "limit": 96, "questions": "sums"},
        "smollm2": {"model": str(smollm2), "prompts": 4, "samples": 8, "limit": 64, "questions": "words"},
        "sums": {
            "model": resolve_path("embedded/sums"),
            "prompts": 32,
            "samples": 8,
            "limit": 56,
            "questions": "sums",
            "forced": False,
        },
        "memory": {"model": str(smollm2), "prompts": 2, "samples": 8, "limit": 512, "questions": "words"},
    }
    fields = known[name] | {key: value for key, value in changed.items() if value is not None}
    if name == "tiny":
        fields["model"] = str(_tiny_model(work))
    return Scene(name=name, **fields)


def _tiny_model(work: Path) -> Path:
    folder = work / "tiny-model"
    if not (folder / "config.json").exists():
        made = fresh_model(TINY, SEED)
        export_model(made.module, made.tokenizer, folder)
    return folder


def questions(scene: Scene, count: int) -> list[Asked]:
    """Different questions, the same for everybody."""
    if scene.questions == "sums":
        return [Asked(q.prompt, q.answer) for q in SUMS.questions("train", count, SEED)]
    rng = random.Random(SEED)
    found: dict[str, str] = {}
    while len(found) < count:
        a, b, c = (rng.randint(10, 99) for _ in range(3))
        found[f"Work out {a} + {b} - {c} step by step, then give the result.\n"] = str(a + b - c)
    return [Asked(*pair) for pair in found.items()]
