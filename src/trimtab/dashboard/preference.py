"""A person's mark that one answer of a group is better than another: the only thing the dashboard writes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.dashboard.store import RunStore
from trimtab.errors import DataError, SettingError
from trimtab.rewards.pairs import Pair, append_pair

FIELDS = {"run": str, "step": int, "better": str, "worse": str}


def prefer(store: RunStore, pairs: Path, marked: Any) -> dict[str, Any]:
    """Append the pair that ``marked`` names by run, step and two rollouts' keys. Texts come from the record.

    Raises SettingError for a field that is missing or of another type, DataError for rollouts that are not
    recorded or answer different prompts.
    """
    if not isinstance(marked, Mapping):
        raise SettingError("a preference is an object with run, step, better and worse")
    for name, kind in FIELDS.items():
        if not isinstance(marked.get(name), kind) or isinstance(marked.get(name), bool):
            raise SettingError(f"a preference needs {name} as {kind.__name__}, got {marked.get(name)!r}")
    run = store.open(marked["run"])
    with run.lock:
        rows = {row.key: row for row in run.rollouts(marked["step"])}
    for name in ("better", "worse"):
        if marked[name] not in rows:
            raise DataError(f"step {marked['step']} has no recorded rollout {marked[name]!r}")
    better, worse = rows[marked["better"]], rows[marked["worse"]]
    if better.prompt_id != worse.prompt_id or better.key == worse.key:
        raise DataError("a preference is between two different answers to one prompt")
    if better.text == worse.text:
        raise DataError("these two answers are the same text, so that neither is better")
    append_pair(
        pairs,
        Pair(
            prompt=better.prompt,
            chosen=better.text,
            rejected=worse.text,
            run=run.id,
            step=better.step,
            chosen_rollout=better.key,
            rejected_rollout=worse.key,
        ),
    )
    return {"written": pairs.name, "better": better.key, "worse": worse.key}
