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
    NOT_FINITE = "not_finite"
    STEP_EMPTY = "step_empty"
    GROUP_DROPPED = "group_dropped"
    GROUPS_WAITING = "groups_waiting"
    GRADER_FAILED = "grader_failed"
    SYNCED = "synced"
    FOUND = "found"
    SAVED = "saved"
    HEALTHY = "healthy"
    DELETED = "deleted"
    WARNED = "warned"
    ENGINE_LOST = "engine_lost"
    ENGINE_RESTARTED = "engine_restarted"
    RANKS_LOST = "ranks_lost"
    RANKS_RESTARTED = "ranks_restarted"
    NO_PROGRESS = "no_progress"
    FINISHED = "finished"
    STOPPED = "stopped"


FIELDS: dict[Event, str] = {
    Event.STARTED: "`process`",
    Event.RESUMED: "`process`, `changed`: setting -> [before, now]; `step` is the number of finished steps",
    Event.CHECKED: "`check`, `passed`, `value`, `limit`: a self-check of sampler and trainer",
    Event.EVALUATED: "`label` (start, final, step N) and the evaluation's numbers, as in summary.json",
    Event.UPDATE_SKIPPED: "`update` (number in the run), `reason`",
    Event.NOT_FINITE: "`update`, `tensor`, `rollouts`, `kept`: folder in `nonfinite/`; the run stops",
    Event.STEP_EMPTY: "`reason`: no group to train on",
    Event.GROUP_DROPPED: "`group`, `reason`",
    Event.GROUPS_WAITING: "`groups`: kept, and not needed by any step until the run's end; in the checkpoint",
    Event.GRADER_FAILED: "`rollout`, `state`, `detail`: an answer without a grade",
    Event.SYNCED: "`version`: the engine samples from these weights now",
    Event.FOUND: "`rule`, `severity`, `title`: the doctor, during the run; findings.jsonl has the rest",
    Event.SAVED: "`checkpoint`",
    Event.HEALTHY: "`checkpoint`: nothing grave was found before it; it is kept until the next such one",
    Event.DELETED: "`checkpoint`",
    Event.WARNED: "`message`",
    Event.ENGINE_LOST: "`worker`, `reason`, `draws`: prompts it had not finished, drawn again by others",
    Event.ENGINE_RESTARTED: "`worker`, `process`, `node`: a new engine in its place; it gets the weights",
    Event.RANKS_LOST: "`worker`: the trainer rank that failed first, `reason`; all ranks were ended",
    Event.RANKS_RESTARTED: "`checkpoint` they went on from, or null; `step`: the number of finished steps",
    Event.NO_PROGRESS: "`worker`, `stage`, `seconds`, `stacks`: nothing has come of it for so long",
    Event.FINISHED: "nothing more; summary.json is there",
    Event.STOPPED: "`reason`",
}
"""The fields that each kind carries beside time and step."""

ENDS = frozenset({Event.FINISHED, Event.STOPPED})
BEGINS = frozenset({Event.STARTED, Event.RESUMED})


def as_markdown() -> str:
    """The kinds as the table of docs/record.md."""
    lines = ["| event | fields beside `time` and `step` |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{event}` | {FIELDS[event]} |" for event in Event)]) + "\n"
