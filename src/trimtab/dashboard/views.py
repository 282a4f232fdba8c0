"""Every page's values by name: the one table that the server answers from and the report is written from."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from trimtab.algorithms import ALGORITHMS
from trimtab.dashboard import overview
from trimtab.dashboard.curves import curves
from trimtab.dashboard.findings import findings
from trimtab.dashboard.heat import heat
from trimtab.dashboard.prompts import prompts
from trimtab.dashboard.rollouts import groups, tokens
from trimtab.dashboard.store import OpenRun, RunStore
from trimtab.errors import SettingError, nearest

Query = Mapping[str, str]
DEFAULT_POINTS = 1000
DEFAULT_COLUMNS = 120


def view(store: RunStore, name: str, query: Query) -> dict[str, Any]:
    """The values of the view ``name`` for these parameters; plain, ready for JSON.

    Raises SettingError for an unknown view or a parameter that is missing or no number, DataError for what
    is not in the record.
    """
    if name == "runs":
        return overview.runs(store)
    if name == "algorithms":
        return {"algorithms": sorted(ALGORITHMS)}
    if name == "differences":
        return overview.differences([store.open(run) for run in _names(_given(query, "runs"))])
    if name not in OF_A_RUN:
        known = [*OF_A_RUN, "runs", "algorithms", "differences"]
        raise SettingError(f"there is no view {name!r}{nearest(name, known)}")
    run = store.open(_given(query, "run"), whole=name not in FROM_A_GLIMPSE)
    with run.still if name in LOOKS_LONG else run.lock:
        return OF_A_RUN[name](run, query)


def _curves(run: OpenRun, query: Query) -> dict[str, Any]:
    keys = _given(query, "keys").split(",")
    points, after = _number(query, "points", DEFAULT_POINTS), _number(query, "after", None)
    history = run.reader.history
    found = curves(history, keys, points or DEFAULT_POINTS, after)
    found |= curves(run.reader.evaluations, keys, points or DEFAULT_POINTS, after)
    return {"last": history.last_step, "curves": found}


def _heat(run: OpenRun, query: Query) -> dict[str, Any]:
    return heat(run.reader, _given(query, "key"), _number(query, "columns", None) or DEFAULT_COLUMNS)


def _tokens(run: OpenRun, query: Query) -> dict[str, Any]:
    return tokens(run, _required(query, "step"), _given(query, "rollout"), query.get("as") or None)


def _events(run: OpenRun, query: Query) -> dict[str, Any]:
    return overview.events(run, _number(query, "after", -1) or 0, _number(query, "limit", None) or 200)


OF_A_RUN: dict[str, Callable[[OpenRun, Query], dict[str, Any]]] = {
    "run": lambda run, query: overview.description(run),
    "catalogue": lambda run, query: overview.catalogue(
        [*run.reader.history.keys, *run.reader.evaluations.keys, *overview.distribution_keys(run.reader)]
    ),
    "curves": _curves,
    "heat": _heat,
    "rollouts": lambda run, query: groups(run, _required(query, "step")),
    "tokens": _tokens,
    "prompts": lambda run, query: prompts(run),
    "events": _events,
    "findings": lambda run, query: findings(run),
}
"""The views of one run, which all take the parameter ``run``."""

LOOKS_LONG = ("findings",)

FROM_A_GLIMPSE = ("run", "catalogue", "curves")
"""Those that are worth showing before the whole of a long record has been read."""


def _names(text: str) -> list[str]:
    """Names of runs: a JSON list, for a name may hold anything, or joined by commas."""
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    return names if isinstance(names, list) and all(isinstance(n, str) for n in names) else text.split(",")


def _given(query: Query, name: str) -> str:
    if not query.get(name):
        raise SettingError(f"the parameter {name!r} is missing")
    return query[name]


def _number(query: Query, name: str, otherwise: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"the parameter {name!r} must be a whole number, got {text!r}") from None


def _required(query: Query, name: str) -> int:
    number = _number(query, name, None)
    if number is None:
        raise SettingError(f"the parameter {name!r} is missing")
    return number
