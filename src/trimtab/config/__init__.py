"""Configuration: a recipe (TOML), laid over others and overridden key by key, becomes one frozen ``Run``.

    run = resolve("quickstart", ["trainer.learning_rate=2e-4"])

Values are checked against the dataclasses of the machines they configure; nothing is declared twice.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.config.report import (
    Difference,
    diff_from_defaults,
    opening_lines,
    resolved_lines,
    run_from_dict,
    run_to_dict,
    three_numbers,
    unused,
    with_infinities,
)
from trimtab.config.run import Run, RunSection, SamplingSection
from trimtab.config.sources import Layers, Shadowed, parse_override, read_recipe, recipe_names
from trimtab.config.validation import validated

__all__ = [
    "Difference",
    "Resolution",
    "Run",
    "RunSection",
    "SamplingSection",
    "Shadowed",
    "diff_from_defaults",
    "opening_lines",
    "overridden",
    "recipe_names",
    "resolution",
    "resolve",
    "resolved_lines",
    "run_from_dict",
    "run_to_dict",
    "tables_of",
    "three_numbers",
    "unused",
]

Recipe = str | Path


@dataclass(frozen=True, slots=True)
class Resolution:
    """A run, and the settings of its sources that had no effect."""

    run: Run
    shadowed: tuple[Shadowed, ...]


def resolve(recipes: Recipe | Sequence[Recipe], overrides: Sequence[str] = ()) -> Run:
    """The run of one or several recipes (names or paths; later ones count) and overrides ``a.b=c``.

    Raises SettingError with the dotted path of what is unknown, missing, mistyped or contradictory.
    """
    return resolution(recipes, overrides).run


def resolution(recipes: Recipe | Sequence[Recipe], overrides: Sequence[str] = ()) -> Resolution:
    """Like ``resolve``, with the report of shadowed settings. A run without a name takes its recipe's."""
    chosen = [recipes] if isinstance(recipes, str | Path) else list(recipes)
    layers = Layers()
    for recipe in chosen:
        layers.lay(*read_recipe(recipe))
    layers.apply([parse_override(token) for token in overrides])
    section = layers.tree.setdefault("run", {})
    if isinstance(section, dict) and chosen:
        section.setdefault("name", re.sub(r"[^\w.-]+|^[.-]+", "-", Path(chosen[0]).stem).strip("-") or "run")
    return Resolution(validated(Run, layers.tree, layers.origins), tuple(layers.shadowed))


def tables_of(overrides: Sequence[str]) -> dict[str, Any]:
    """The tables that overrides ``a.b=c`` make out of nothing."""
    layers = Layers()
    layers.apply([parse_override(token) for token in overrides])
    return layers.tree


def overridden(run: Run, overrides: Sequence[str]) -> Run:
    """The run with some settings changed by ``a.b=c``."""
    layers = Layers()
    layers.lay("the run", run_to_dict(run))
    layers.apply([parse_override(token) for token in overrides])
    return validated(Run, with_infinities(Run, layers.tree), layers.origins)
