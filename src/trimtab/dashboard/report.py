"""One self-contained HTML file with the views of one run: pages, scripts, styles and values inside it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from trimtab import __version__
from trimtab.dashboard.bundle import bundle
from trimtab.dashboard.rollouts import groups, tokens
from trimtab.dashboard.server import HERE
from trimtab.dashboard.store import OpenRun, RunStore
from trimtab.dashboard.views import view
from trimtab.errors import TrimtabError
from trimtab.record.layout import write_aside

CURVE_POINTS = 400
STEPS, MOST_STEPS = 6, 12
"""Recorded steps whose rollouts go into the file: spread over the run, and with those that findings show."""

TOKENS_A_STEP = 8
"""Rollouts of a step with their tokens, beside those that findings show."""

MOST_TOKENS = 40_000
"""Response tokens with values in the file; each costs about a hundred bytes."""

MOST_TEXT = 1_500_000
"""Characters of prompts and answers in the file; groups that findings show and flagged ones come first."""

AS_IF = ("grpo", "dapo", "gspo", "sapo")


def write_report(folder: Path, to: Path) -> int:
    """Write the report of the run in ``folder``; returns its bytes. DataError where there is no run."""
    text = report(folder).encode("utf-8", "backslashreplace")  # a lone surrogate becomes an escape
    write_aside(to, lambda path: path.write_bytes(text))
    return len(text)


def report(folder: Path) -> str:
    """The whole file. Its policy lets in only the scripts and styles written here, by their hashes."""
    store = RunStore(folder)
    (name,) = store.ids()[:1] or [folder.name]
    held = json.dumps(values(store, name), allow_nan=False, separators=(",", ":"))
    held = held.replace("<", "\\u003c").replace("\x7f", "\\u007f")
    static = (HERE / "static").resolve()
    script = bundle(static, "main.js")
    style = "\n".join(path.read_text(encoding="utf-8") for path in sorted(static.rglob("*.css")))
    page = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True).get_template(
        "report.html"
    )
    return page.render(
        version=__version__,
        name=name,
        policy=(
            f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
        style=Markup(style),
        script=Markup(script),
        values=Markup(held),
    )


def values(store: RunStore, name: str) -> dict[str, Any]:
    """Everything the pages ask for, by view."""
    run = store.open(name)
    described = view(store, "run", {"run": name})
    keys = ",".join([*described["keys"], *described["evaluation_keys"]])
    found = {one: view(store, one, {"run": name}) for one in ("catalogue", "prompts", "findings")}
    events = view(store, "events", {"run": name, "limit": "500"})
    curves = (
        view(store, "curves", {"run": name, "keys": keys, "points": str(CURVE_POINTS)})
        if keys
        else {"curves": {}}
    )
    heats = {key: view(store, "heat", {"run": name, "key": key}) for key in described["distributions"]}
    shown = _exhibits(found["findings"])
    steps = _steps(described["rollout_steps"], shown)
    with run.lock:
        rollouts = {str(step): _within(groups(run, step), shown, MOST_TEXT // len(steps)) for step in steps}
        held = dict(_tokens(run, rollouts, shown))
    described["rollout_steps"] = steps
    return {
        "runs": {
            "root": "",
            "runs": [entry for entry in view(store, "runs", {})["runs"] if entry["id"] == name],
        },
        "algorithms": {"algorithms": list(AS_IF)},
        "run": described,
        **found,
        "events": events,
        "curves": curves,
        "heat": heats,
        "rollouts": rollouts,
        "tokens": held,
    }


def _exhibits(findings: dict[str, Any]) -> set[tuple[int, str]]:
    """Step and rollout of what the doctor's findings show."""
    found = [one for one in findings["findings"] if one["outcome"] == "found"]
    return {(exhibit["step"], exhibit["rollout"]) for one in found for exhibit in one["exhibits"]}


def _steps(recorded: list[int], shown: set[tuple[int, str]]) -> list[int]:
    wanted = sorted({step for step, _ in shown} & set(recorded))[-(MOST_STEPS - STEPS) :]
    return sorted({*_spread(recorded, STEPS), *wanted})


def _within(listed: dict[str, Any], shown: set[tuple[int, str]], characters: int) -> dict[str, Any]:
    """The groups of a step that find room, in their order; ``left_out`` says how many do not."""
    kept: list[int] = []
    for place in sorted(
        range(len(listed["groups"])), key=lambda i: _rank(listed, listed["groups"][i], shown)
    ):
        group = listed["groups"][place]
        characters -= len(group["prompt"]) + sum(len(row["text"]) for row in group["rollouts"])
        if characters < 0 and kept:
            break
        kept.append(place)
    return {
        **listed,
        "groups": [listed["groups"][place] for place in sorted(kept)],
        "left_out": len(listed["groups"]) - len(kept),
    }


def _rank(listed: dict[str, Any], group: dict[str, Any], shown: set[tuple[int, str]]) -> int:
    if any((listed["step"], row["key"]) in shown for row in group["rollouts"]):
        return 0
    return 1 if group["flag"] is not None else 2 if group["kept"] else 3


def _tokens(
    run: OpenRun, rollouts: dict[str, Any], shown: set[tuple[int, str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """``step|rollout|`` and ``step|rollout|ALGORITHM`` -> tokens, telling groups first, within the budget."""
    left = MOST_TOKENS
    for step, listed in rollouts.items():
        chosen = sorted(listed["groups"], key=lambda group: _rank(listed, group, shown))
        rows = [row for group in chosen for row in group["rollouts"] if row["has_tokens"]]
        exhibits = [row for row in rows if (listed["step"], row["key"]) in shown]
        taken = [*exhibits, *[row for row in rows if row not in exhibits][:TOKENS_A_STEP]]
        kept = {row["key"] for row in taken}
        for row in taken:
            if row["length"] > left:
                kept.discard(row["key"])
                continue
            left -= row["length"]
            yield f"{step}|{row['key']}|", tokens(run, int(step), row["key"], None)
            for name in AS_IF:
                try:
                    other = tokens(run, int(step), row["key"], name)["other"]
                except TrimtabError:
                    continue
                yield f"{step}|{row['key']}|{name}", {"other": other}
        for row in rows:
            row["has_tokens"] = row["key"] in kept


def _spread(steps: list[int], count: int) -> list[int]:
    """The first, the last, and evenly chosen ones between."""
    if len(steps) <= count:
        return steps
    return sorted({steps[round(i * (len(steps) - 1) / (count - 1))] for i in range(count)})


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
