"""Short ways of spelling faults, and which of their runs tune rules and which are only scored."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from benchmarks.doctor.scene import Injection, Variant

FAST = {"learning_rate": 4e-4}
GRADERS = "benchmarks/doctor/graders.py"


def ways(*variants: Variant) -> tuple[Variant, ...]:
    """Seed 1 of the first is for tuning and seed 2 scored; of every other one a seed of its own is scored."""
    first, *others = variants
    return (
        Variant(
            name=first.name, settings=first.settings, injection=first.injection, tuning=(1,), scored=(2,)
        ),
        *(
            Variant(name=v.name, settings=v.settings, injection=v.injection, scored=(3 + number,))
            for number, v in enumerate(others)
        ),
    )


def hidden(*variants: Variant) -> tuple[Variant, ...]:
    """Scored only: two seeds of the first, one of every other."""
    return tuple(
        Variant(
            name=v.name,
            settings=v.settings,
            injection=v.injection,
            scored=(2, 7) if number == 0 else (2 + number,),
        )
        for number, v in enumerate(variants)
    )


def way(name: str, algorithm: Any, injection: Injection | None = None, **settings: Any) -> Variant:
    """A variant without its seeds; ``settings`` are tables of a recipe."""
    return Variant(
        name=name, settings={"algorithm": algorithm, **settings}, injection=injection or Injection()
    )


def graders(*names: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    """A ``[reward]`` table of functions of ``graders.py``, or of graders spelled out."""
    table = [{"name": f"{GRADERS}:{name}"} if isinstance(name, str) else name for name in names]
    return {"graders": table, **more}


ANSWER: dict[str, Any] = {"name": "answer", "options": {"marker": "#"}}
WATCH: dict[str, Any] = {**ANSWER, "weight": 0.0}
SLOW: dict[str, Any] = {"name": f"{GRADERS}:slow_on_long", "isolated": False}
"""Inside the training process, where a time-out costs only itself and no worker process."""
RECOMPUTE = {"old_logprobs": "recompute"}
