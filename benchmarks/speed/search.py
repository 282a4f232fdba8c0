"""The peer's fastest configuration: every dtype and micro-batch, then what else could help."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.speed.configurations import (
    NUMERICS,
    Configuration,
    details,
    extras,
    micro_batches,
    together,
)
from benchmarks.speed.scenes import Scene
from benchmarks.speed.turns import Side, SideFailedError

HELPS = 0.98
"""An extra is taken over where the step needs at most this share of the time without it."""

HOPELESS, FIRST = 2.5, 3.0
"""A first step takes longer than later ones, but at most so many times as long, and so many seconds more."""

Try = Callable[[Configuration], dict[str, Any]]


class Tried:
    """What was tried of a scene, kept in a file, so that a search that was interrupted goes on."""

    def __init__(self, path: Path, run: Try) -> None:
        self.path, self.run = path, run
        self.found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def __call__(self, configuration: Configuration) -> float:
        """Seconds a step; infinite for one that fails."""
        name = configuration.name
        if name not in self.found:
            self.found[name] = self.run(configuration) | {
                "numerics": configuration.numerics,
                "options": dict(configuration.options),
                "environment": dict(configuration.environment),
            }
            self.path.write_text(json.dumps(self.found, indent=1) + "\n")
            print(f"{name}: {told(self.found[name])}", file=sys.stderr)
        return float(self.found[name].get("seconds", inf))

    @property
    def patience(self) -> float:
        """Seconds of a first step beyond which a configuration cannot be the fastest any more."""
        return FIRST + HOPELESS * min((kept.get("seconds", inf) for kept in self.found.values()), default=inf)

    def configuration(self, name: str) -> Configuration:
        """One that was tried, by its name."""
        kept = self.found[name]
        return Configuration(name, kept["numerics"], kept["options"], kept["environment"])

    def best(self, numerics: str | None = None) -> Configuration:
        """The fastest, of all or of one numerics. Raises SystemExit where none ran."""
        ran = [
            name
            for name, kept in self.found.items()
            if "seconds" in kept and numerics in (None, kept["numerics"])
        ]
        if not ran:
            raise SystemExit(
                f"no configuration of the peer ran ({numerics or 'any numerics'}); see {self.path}"
            )
        return self.configuration(min(ran, key=lambda name: self.found[name]["seconds"]))


def search(scene: Scene, tried: Tried, wanted: Sequence[str] = NUMERICS) -> Configuration:
    """Try everything in the ``wanted`` numerics, a stage upon the winners of the one before; the fastest."""
    for numerics in wanted:
        bases = micro_batches(scene, numerics)
        base = min(bases, key=tried)
        _best_with(base, extras(base, scene), tried)
    winner = tried.best()
    _best_with(winner, details(winner), tried)
    return tried.best()


def _best_with(base: Configuration, more: list[Configuration], tried: Tried) -> None:
    """Try each addition alone, then those that help at once."""
    seconds = tried(base)
    helping = [one for one in more if tried(one) <= HELPS * seconds]
    if len(helping) > 1:
        tried(together(base, [one.name.removeprefix(f"{base.name}, ") for one in helping]))


def told(kept: dict[str, Any]) -> str:
    """One try in words."""
    return f"{kept['seconds']:.2f} s" if "seconds" in kept else kept["fault"]


def attempt(side: Side, folder: Path, steps: int, patience: float) -> dict[str, Any]:
    """The fastest of ``steps`` steps after one that does not count, or why there is none.

    patience: seconds of the first step after which a configuration is given up.
    """
    try:
        side.start(folder)
        first = side.turn(keep=False)["seconds"]
        if first > patience:
            return {"fault": f"given up, its first step took {first:.1f} s"}
        for _ in range(steps):
            side.turn(keep=True)
    except SideFailedError as fault:
        return {"fault": str(fault).strip().splitlines()[-1][:160]}
    finally:
        side.stop()
    fastest = min(side.steps, key=lambda step: step["seconds"])
    return {key: fastest[key] for key in ("seconds", "tokens", "stages", "peak_bytes", "processor_seconds")}


def table(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What was tried, fastest first; the winner of each numerics in bold."""
    ran = sorted((k for k in found if "seconds" in found[k]), key=lambda k: found[k]["seconds"])
    firsts = {found[name]["numerics"]: name for name in reversed(ran)}
    yield "| TRL's configuration | seconds a step | sampling | the rest | peak memory |"
    yield "|---|---|---|---|---|"
    for name in ran:
        kept = found[name]
        shown = f"**{name}**" if firsts[kept["numerics"]] == name else name
        sampling = kept["stages"]["sample"]
        peak = kept["peak_bytes"] / (1 << 30)
        yield (
            f"| {shown} | {kept['seconds']:.2f} | {sampling:.2f} | {kept['seconds'] - sampling:.2f} "
            f"| {peak:.2f} GiB |"
        )
    for name in (k for k in found if "fault" in found[k]):
        yield f"| {name} | {found[name]['fault']} | | | |"
