"""The processes that take turns: trimtab, its plain path, and TRL in a configuration."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.speed.compare import FAST, PEER, PLAIN
from benchmarks.speed.configurations import OURS, PLAIN_PATH, Configuration
from benchmarks.speed.scenes import Scene
from benchmarks.speed.turns import Side


def peer_side(scene: Scene, configuration: Configuration, args: argparse.Namespace, **more: Any) -> Side:
    """TRL in one configuration."""
    return Side(
        PEER,
        "benchmarks.speed.peer",
        scene.to_json(),
        {"threads": args.threads, **configuration.options, **more},
        args.peer_python,
        configuration.environment,
    )


def our_side(name: str, scene: Scene, numerics: str, args: argparse.Namespace, **more: Any) -> Side:
    """Trimtab in one numerics, with ``--set`` and the settings in ``more``."""
    given = dict(pair.split("=", 1) for pair in args.set)
    options = {**OURS[numerics], **{k: json.loads(v) for k, v in given.items()}, **more}
    return Side(name, "benchmarks.speed.ours", scene.to_json(), {"threads": args.threads, **options})


def sides_of(scene: Scene, numerics: str, peer: Configuration, args: argparse.Namespace) -> list[Side]:
    """Trimtab, its plain path, and TRL. Only trimtab's fast path may leave out what has no gradient."""
    skipping = {} if scene.forced else {"trainer.skip_silent": True}
    return [
        our_side(FAST, scene, numerics, args, **skipping),
        our_side(PLAIN, scene, numerics, args, **PLAIN_PATH),
        peer_side(scene, peer, args),
    ]
