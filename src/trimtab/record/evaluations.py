"""What each held-out prompt received in an evaluation: ``evaluations/LABEL.json``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import DataError
from trimtab.record.layout import RunFolder, write_aside


def save_evaluation(folder: RunFolder, label: str, evaluation: Mapping[str, Any]) -> None:
    """Write one evaluation, whole or not at all; the same label again replaces it."""
    text = json.dumps(evaluation, ensure_ascii=False, allow_nan=False)
    write_aside(_path(folder, label), lambda aside: aside.write_text(text, encoding="utf-8"))


def load_evaluation(folder: RunFolder, label: str) -> dict[str, Any]:
    """Read it back. Raises DataError when it is not there."""
    path = _path(folder, label)
    if not path.exists():
        raise DataError(
            f"{folder.path} has no evaluation {label!r}: {path.name} is not in its evaluations folder"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def _path(folder: RunFolder, label: str) -> Path:
    return folder.path / "evaluations" / f"{label.replace(' ', '-')}.json"
