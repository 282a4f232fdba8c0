"""The doctor's findings as values, and as lines of findings.jsonl. What makes them is in ``doctor/``."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from trimtab.record.jsonl import JsonlWriter


class Outcome(StrEnum):
    """What became of a rule. ``SKIPPED`` says that it could not look, never that all is well."""

    FOUND = "found"
    CLEAR = "clear"
    SKIPPED = "skipped"


class Severity(StrEnum):
    """CRITICAL: it learns nothing, or the wrong thing; WARNING: it wastes or risks; NOTE: good to know."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured fact: a metric now, the same metric at the run's own start, and the steps it is of.

    text: the fact as one plain clause with its numbers. key: of the catalogue. steps: first and last.
    """

    text: str
    key: str
    value: float | None = None
    baseline: float | None = None
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A rollout that shows the symptom, and which of its response tokens: from, to (exclusive)."""

    step: int
    rollout: str
    why: str
    tokens: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A likely cause, the test that separates it from the others, and what to change.

    name: a short constant word, such as ``learning-rate-too-high``; the fault benchmark scores it.
    change: setting and value, such as ``trainer.learning_rate = 1e-5``, or an action where no setting helps.
    """

    name: str
    what: str
    test: str
    change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says of one run.

    rule: its name, such as ``entropy-collapse``. title: one plain sentence.
    causes: the likeliest first. confidence: in (0, 1]; None unless found. source: where the rule comes from.
    missing: keys without which a skipped rule could not look. step: the last step it had seen.
    """

    rule: str
    outcome: Outcome
    title: str
    step: int
    severity: Severity | None = None
    evidence: tuple[Evidence, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    causes: tuple[Cause, ...] = ()
    confidence: float | None = None
    source: str = ""
    missing: tuple[str, ...] = ()


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Its fields as JSON can hold them; absent ones are left out, inside its parts too."""
    return {key: _plain(value) for key, value in dataclasses.asdict(finding).items() if _is_there(value)}


def finding_to_json(finding: Finding) -> str:
    """One line, without its newline; absent fields are left out."""
    return json.dumps(finding_to_dict(finding))


def append_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Add lines to a findings.jsonl that nobody else is writing."""
    writer = JsonlWriter(path)
    for finding in findings:
        writer.write({"time": round(time.time(), 3), **finding_to_dict(finding)})
    writer.close()


def finding_from_json(fields: Mapping[str, Any]) -> Finding:
    """The finding of a line's object; keys of a later version are ignored. Raises KeyError, ValueError."""
    given = {field.name: fields[field.name] for field in dataclasses.fields(Finding) if field.name in fields}
    given["outcome"] = Outcome(given["outcome"])
    if "severity" in given:
        given["severity"] = Severity(given["severity"])
    given["evidence"] = tuple(Evidence(**_pairs(item, "steps")) for item in given.get("evidence", ()))
    given["exhibits"] = tuple(Exhibit(**_pairs(item, "tokens")) for item in given.get("exhibits", ()))
    given["causes"] = tuple(Cause(**item) for item in given.get("causes", ()))
    given["missing"] = tuple(given.get("missing", ()))
    return Finding(**given)


def _is_there(value: object) -> bool:
    return value not in (None, (), "")


def _plain(value: Any) -> Any:
    """Evidence whose number is not finite keeps its text; JSON has no word for the number."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if _is_there(inner) and _finite(inner)}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


def _finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _pairs(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = dict(item)
    if found.get(name) is not None:
        found[name] = tuple(found[name])
    return found
