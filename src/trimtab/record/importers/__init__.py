"""Runs of other trainers, made into run directories: TRL, verl, TensorBoard event files, CSV.

source     what a reader returns       trl, verl, tensorboard, csv   the readers
keys       names and steps made ours   answers                       groups, grades, rows
writing    the run directory

Nothing is unpickled, nothing of the source is changed, nothing that exists is overwritten. What is whole in a
damaged file is imported, the rest is listed.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from trimtab.errors import DataError, SettingError, nearest
from trimtab.record.importers import csv, tensorboard, trl, verl
from trimtab.record.importers.source import Wishes
from trimtab.record.importers.writing import Imported, write

__all__ = ["READERS", "Imported", "Wishes", "import_run"]

READERS: dict[str, ModuleType] = {"trl": trl, "verl": verl, "tensorboard": tensorboard, "csv": csv}
"""In the order in which a folder is asked what it is."""


def import_run(
    path: Path,
    to: Path,
    *,
    kind: str | None = None,
    wishes: Wishes | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Imported:
    """Make the run directory ``to`` from what lies at ``path``.

    kind: a key of ``READERS``; None looks for itself. tables: what is known of the run, as a recipe's tables.

    Raises: SettingError for an unknown kind; DataError where there is nothing to import; RunError where
    ``to`` is there already.
    """
    if not path.exists():
        raise DataError(f"there is no {path}")
    if kind is not None and kind not in READERS:
        raise SettingError(f"nothing imports {kind!r}{nearest(kind, READERS)}")
    found = kind or next((name for name, reader in READERS.items() if reader.recognises(path)), None)
    if found is None:
        raise DataError(
            f"{path} looks like none of {', '.join(READERS)}: no trainer_state.json, no completions, no "
            "JSON Lines of verl, no event files, no CSV"
        )
    return write(READERS[found].read(path), to, wishes or Wishes(), tables or {})
