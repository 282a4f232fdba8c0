"""What can happen to a run: the words of events.jsonl."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from enum import StrEnum


class Event(StrEnum):
    """Kinds of events. Each line also has ``time`` and ``step`` (the step it happened in, or null)."""

    STARTED = "started"
    RESUMED = "resumed"
    CHECKED = "checked"
    EVALUATED = "evaluated"
    UPDATE_SKIPPED = "update_skipped"
    STEP_EMPTY = "step_empty"
    GROUP_DROPPED = "group_dropped"
    GRADER_FAILED = "grader_failed"
    SYNCED = "synced"
    SAVED = "saved"
    DELETED = "deleted"
    WARNED = "warned"
    FINISHED = "finished"
    STOPPED = "stopped"


FIELDS: dict[Event, str] = {
    Event.STARTED: "process",
    Event.RESUMED: "process, changed: setting -> [before, now]",
    Event.CHECKED: "check, passed, and what was measured",
    Event.EVALUATED: "the evaluation's numbers, as in summary.json",
    Event.UPDATE_SKIPPED: "update, reason",
    Event.STEP_EMPTY: "reason",
    Event.GROUP_DROPPED: "group, reason",
    Event.GRADER_FAILED: "rollout, grader, detail",
    Event.SYNCED: "version",
    Event.SAVED: "checkpoint",
    Event.DELETED: "checkpoint",
    Event.WARNED: "message",
    Event.FINISHED: "nothing more: summary.json is there",
    Event.STOPPED: "reason",
}
"""The fields that each kind carries beside time and step."""

ENDS = frozenset({Event.FINISHED, Event.STOPPED})
BEGINS = frozenset({Event.STARTED, Event.RESUMED})
