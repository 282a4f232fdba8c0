"""The list of runs, and one run's description: everything that is small and wanted on every page."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trimtab.catalog import SECTIONS, find
from trimtab.dashboard.region import region
from trimtab.dashboard.store import Glance, OpenRun, RunStore
from trimtab.errors import SettingError
from trimtab.record.reader import RunReader

SHOWN_OF_LIST = ("reward/outcome", "reward/mean", "policy/entropy", "length/mean")
MOST_EVENTS = 500
TOLD = ("unit", "formula", "mask", "reduction", "meaning", "healthy", "source")


def runs(store: RunStore) -> dict[str, Any]:
    """``runs``: id, name, algorithm, state, step, steps, created, and a few last metrics of each."""
    return {"root": store.root.name, "runs": [_listed(glance) for glance in store.glances()]}


def _listed(glance: Glance) -> dict[str, Any]:
    return {
        "id": glance.id,
        "name": glance.run.get("name", glance.id),
        "algorithm": _at(glance.run, "run", "algorithm", "name"),
        "model": _at(glance.run, "run", "model", "path"),
        "created": glance.run.get("created"),
        "state": glance.status.state.value,
        "detail": glance.status.detail,
        "step": glance.last_step,
        "steps": _at(glance.run, "run", "run", "steps"),
        "last": {key: glance.last_metrics[key] for key in SHOWN_OF_LIST if key in glance.last_metrics},
    }


def _at(values: Any, *path: str) -> Any:
    """What stands at this place; None where there is no such place."""
    for name in path:
        values = values.get(name) if isinstance(values, Mapping) else None
    return values


def description(run: OpenRun) -> dict[str, Any]:
    """What a run is and how it stands: settings, machine, status, evaluations, keys, recorded steps."""
    reader = run.reader
    status = reader.status()
    stored = reader.run
    return {
        "id": run.id,
        "whole": run.whole,
        "name": stored.get("name", run.id),
        "created": stored.get("created"),
        "state": status.state.value,
        "detail": status.detail,
        "quiet_seconds": status.quiet_seconds,
        "settings": dict(flat(stored.get("run") or {})),
        "seeds": stored.get("seeds") or {},
        "versions": stored.get("versions") or {},
        "commits": stored.get("commits") or {},
        "hardware": stored.get("hardware") or {},
        "opening": (stored.get("facts") or {}).get("opening") or [],
        "imported": (stored.get("facts") or {}).get("imported"),
        "step": reader.history.last_step,
        "steps": ((stored.get("run") or {}).get("run") or {}).get("steps"),
        "keys": reader.history.keys,
        "evaluation_keys": reader.evaluations.keys,
        "distributions": distribution_keys(reader),
        "rollout_steps": reader.rollout_steps(),
        "evaluations": [event for event in reader.events if event["event"] == "evaluated"],
        "summary": reader.summary(),
        "region": region(reader),
        "damage": [damage._asdict() for damage in reader.damage],
        "torn": reader.torn,
        "events": len(reader.events),
    }


def distribution_keys(reader: RunReader) -> list[str]:
    """Keys of the newest histograms; none where their line cannot be read."""
    steps = reader.distribution_steps()
    try:
        return sorted(reader.distributions(steps[-1])) if steps else []
    except (KeyError, TypeError, ValueError):
        return []


def events(run: OpenRun, after: int, limit: int) -> dict[str, Any]:
    """Events from number ``after`` on, oldest first; ``total`` says how many there are."""
    found = run.reader.events
    first = max(0, len(found) - limit) if after < 0 else after
    return {"first": first, "total": len(found), "events": found[first : first + min(limit, MOST_EVENTS)]}


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """``("trainer.learning_rate", 0.0003)`` for every leaf of nested settings."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(runs: Sequence[OpenRun]) -> dict[str, Any]:
    """Settings in which the runs differ: name -> one value for each run, None where it has none."""
    settings = [dict(flat(run.reader.run.get("run") or {})) for run in runs]
    names = list(dict.fromkeys(name for own in settings for name in own))
    told = {name: [own.get(name) for own in settings] for name in names}
    return {
        "runs": [run.id for run in runs],
        "differences": {name: values for name, values in told.items() if any(v != values[0] for v in values)},
    }


def catalogue(keys: Sequence[str]) -> dict[str, Any]:
    """What the catalogue says of these keys, families resolved, with the title of their section."""
    sections = {spec.key: section.title for section in SECTIONS for spec in section.specs}
    found: dict[str, Any] = {}
    for key in keys:
        try:
            spec = find(key)
        except SettingError:  # written by a newer version, or imported
            continue
        told = {name: getattr(spec, name) for name in TOLD}
        found[key] = {"section": sections[spec.key], **told, "read_with": list(spec.read_with)}
    return found
