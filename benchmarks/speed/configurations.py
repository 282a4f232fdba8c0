"""How each side can be set up: numerics, micro-batches, and what else may be tried."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.speed.scenes import Scene

NUMERICS = ("float32", "autocast", "bfloat16")
"""All float32; bfloat16 products on float32 weights; bfloat16 weights. In the last trimtab keeps float32
master weights, TRL does not."""

OURS: dict[str, dict[str, Any]] = {
    "float32": {},
    "autocast": {"trainer.autocast": True},
    "bfloat16": {"model.dtype": "bfloat16"},
}
PEERS: dict[str, dict[str, Any]] = {
    "float32": {},
    "autocast": {"autocast": True},
    "bfloat16": {"dtype": "bfloat16"},
}
PLAIN_PATH: dict[str, Any] = {
    "sampling.fast": "never",
    "trainer.share_prompts": "never",
    "trainer.fast": "never",
    "trainer.old_logprobs": "recompute",
}
"""Settings that switch off what makes a step fast: the profile "before"."""

KEPT_BYTES = str(1 << 30)
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": KEPT_BYTES,
    "MALLOC_TRIM_THRESHOLD_": KEPT_BYTES,
    "MALLOC_TOP_PAD_": "0",
}
"""Freed memory stays with the process, so that the system need not hand it out page by page again."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run the peer: its options and environment, and the name it is told by."""

    name: str
    numerics: str
    options: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)

    def also(self, name: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Configuration:
        """The same with one thing more."""
        return replace(
            self,
            name=f"{self.name}, {name}",
            options={**self.options, **options},
            environment={**self.environment, **environment},
        )


EXTRAS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "static cache": ({"cache_implementation": "static"}, {}),
    "continuous batching": (
        {
            "use_transformers_continuous_batching": True,
            "transformers_continuous_batching_config": {
                "page_size": 64,
                "num_blocks": 1024,
                "max_batch_tokens": 512,
                "use_async_batching": False,
            },
        },
        {},
    ),
    "answers in two batches": ({"halves": True}, {}),
    "eager attention": ({"attention": "eager"}, {}),
    "allocator keeps memory": ({}, ALLOCATOR),
}
"""Tried in every numerics, on its fastest micro-batch. Continuous batching has a bounded cache: left
to itself it sizes the cache by the machine's free memory."""

DETAILS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dropout disabled": ({"disable_dropout": True}, {}),
    "two data loader workers": ({"dataloader_num_workers": 2}, {}),
    "unfused optimizer": ({"optim": "adamw_torch"}, {}),
    "gradient checkpointing": ({"gradient_checkpointing": True}, {}),
    "no cache in generation": ({"generation_kwargs": {"use_cache": False}}, {}),
    "one thread": ({"threads": 1}, {}),
}
"""Tried on the fastest of all only: they are not expected to help."""


def micro_batches(scene: Scene, numerics: str) -> list[Configuration]:
    """One configuration a micro-batch: all answers of a step at once, half, a quarter, an eighth."""
    sizes = sorted({max(1, scene.rollouts >> halvings) for halvings in range(4)}, reverse=True)
    return [
        Configuration(
            f"{numerics}, micro-batches of {size}",
            numerics,
            {**PEERS[numerics], "per_device_train_batch_size": size},
        )
        for size in sizes
    ]


def extras(base: Configuration, scene: Scene) -> list[Configuration]:
    """``base`` with each of ``EXTRAS`` that it can have."""
    whole = base.options["per_device_train_batch_size"] == scene.rollouts
    return [base.also(name, *more) for name, more in EXTRAS.items() if not (whole and more[0].get("halves"))]


def details(base: Configuration) -> list[Configuration]:
    """``base`` with each of ``DETAILS``."""
    return [base.also(name, *more) for name, more in DETAILS.items()]


def together(base: Configuration, names: list[str]) -> Configuration:
    """``base`` with several extras or details at once."""
    for name in names:
        base = base.also(name, *(EXTRAS | DETAILS)[name])
    return base
