"""A short recipe on disk, for tests of configuration."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

BASE = """
[model]
path = "some/model"
[data]
task = "sums"
[algorithm]
name = "dapo"
clip_high = 0.3
[sampling]
max_new_tokens = 100
"""


def recipe_in(folder: Path) -> Path:
    """``base.toml`` in this folder."""
    path = folder / "base.toml"
    path.write_text(BASE)
    return path
