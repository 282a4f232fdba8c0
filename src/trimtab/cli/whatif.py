"""What another algorithm, or another group size, would have made of the same recorded answers.

trimtab whatif runs/x 12 --as sapo --as gspo               gates and gradient shares of step 12, side by side
trimtab whatif runs/x 12 --as sharp=sapo sharp.tau_pos=20  the same algorithm with other arguments
trimtab whatif runs/x 12 --as sapo --rollout 'sums-1#0/3'  every token of one answer
trimtab whatif runs/x --groups                             share of useful groups at other group sizes
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli.words import say
from trimtab.errors import DataError, SettingError, TrimtabError, nearest

if TYPE_CHECKING:
    from trimtab.algorithms import Algorithm
    from trimtab.doctor.whatif_text import Column
    from trimtab.record.reader import RunReader
    from trimtab.record.rows import RolloutRow

USUAL = ("grpo", "gspo", "sapo")


def add(parser: argparse.ArgumentParser) -> None:
    """RUN, STEP, --as, --rollout, --limit, --groups, --json."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("step", type=int, nargs="?", metavar="STEP", help="a step with recorded rollouts")
    parser.add_argument(
        "--as",
        dest="others",
        action="append",
        default=[],
        metavar="[LABEL=]ALGORITHM",
        help=f"may be given several times (default: {', '.join(USUAL)}); its arguments as LABEL.key=value",
    )
    parser.add_argument("--rollout", metavar="KEY", help="show every token of this rollout")
    parser.add_argument(
        "--limit", type=int, default=12, metavar="N", help="rollouts shown (default: %(default)s)"
    )
    parser.add_argument("--groups", action="store_true", help="useful groups at other group sizes")
    parser.add_argument("--json", action="store_true", help="print everything as JSON and nothing else")


def main(args: argparse.Namespace) -> int:
    """Compare algorithms on a step, or group sizes over the run."""
    from trimtab.record.reader import RunReader

    reader = RunReader(args.run)
    steps = reader.rollout_steps()
    if not steps:
        raise DataError(f"{args.run} has no recorded rollouts, and whatif reads nothing else")
    if args.step is not None and args.step not in steps:
        raise SettingError(
            f"{args.run} has no rollouts of step {args.step}; it has {len(steps)} steps from {steps[0]} to "
            f"{steps[-1]}"
        )
    if args.groups:
        return _groups(reader, steps if args.step is None else [args.step], args)
    if args.step is None:
        raise SettingError(f"whatif needs a STEP (the run has {steps[0]} to {steps[-1]}), or --groups")
    return _algorithms(reader, args)


def _algorithms(reader: RunReader, args: argparse.Namespace) -> int:
    from trimtab.doctor.whatif import reweigh
    from trimtab.doctor.whatif_recorded import as_recorded
    from trimtab.doctor.whatif_text import RECORDED, Column, as_tree

    rows = reader.rollouts(args.step)
    own, why = _own(reader)
    name = str(reader.run.get("run", {}).get("algorithm", {}).get("name", "unknown"))
    columns = [Column(f"{RECORDED} ({name})", {} if own is None else _pieces(own), as_recorded(rows, name))]
    for label, algorithm in _asked(args, reader, rows).items():
        columns.append(Column(label, _pieces(algorithm), reweigh(rows, algorithm, own=own)))
    if args.rollout is not None and args.rollout not in columns[0].found.rollouts:
        known = columns[0].found.rollouts
        raise SettingError(
            f"step {args.step} has no rollout {args.rollout!r} with values per token"
            f"{nearest(args.rollout, known)}"
        )
    if args.json:
        about = {"run": str(args.run), "step": args.step, "notes": _notes(columns, rows, reader, why)}
        say(json.dumps(about | {"algorithms": as_tree(columns, args.rollout)}))
    else:
        _show(columns, rows, reader, why, args)
    return 0


def _show(
    columns: Sequence[Column],
    rows: Sequence[RolloutRow],
    reader: RunReader,
    why: str | None,
    args: argparse.Namespace,
) -> None:
    from trimtab.doctor.whatif_text import rollout_lines, summary_lines, token_lines

    say("\n".join([f"{args.run}, step {args.step}", *_notes(columns, rows, reader, why), ""]))
    if args.rollout is None:
        say("\n".join([*summary_lines(columns), "", *rollout_lines(columns, args.limit)]))
        return
    row = next(row for row in rows if row.key == args.rollout)
    say("\n".join(token_lines(columns, args.rollout, _texts(reader, row))))


def _asked(args: argparse.Namespace, reader: RunReader, rows: Sequence[RolloutRow]) -> dict[str, Algorithm]:
    """Label -> algorithm, each built with its own settings."""
    from trimtab.algorithms import build_algorithm
    from trimtab.config import tables_of

    tables: dict[str, Any] = tables_of(args.settings)
    names = dict(_labelled(text) for text in args.others or USUAL)
    for label in tables:
        if label not in names:
            raise SettingError(f"{label}.* sets an algorithm that no --as names{nearest(label, names)}")
    sampling: Mapping[str, Any] = reader.run.get("run", {}).get("sampling", {})
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row.group] = sizes.get(row.group, 0) + 1
    built: dict[str, Algorithm] = {}
    for label, name in names.items():
        table = {"name": name, **tables.get(label, {})}
        allow = table.pop("allow", [])
        built[label] = build_algorithm(
            table,
            max_new_tokens=sampling.get("max_new_tokens", max(row.length for row in rows)),
            samples_per_prompt=sampling.get("samples_per_prompt", max(sizes.values())),
            allow=tuple(allow),
        )
    return built


def _labelled(text: str) -> tuple[str, str]:
    label, equals, name = text.partition("=")
    return (label, name) if equals else (text, text)


def _own(reader: RunReader) -> tuple[Algorithm | None, str | None]:
    """The run's own algorithm; None with the reason where run.json does not say enough."""
    from trimtab.config import run_from_dict

    try:
        return run_from_dict(reader.run["run"]).build_algorithm(), None
    except (TrimtabError, KeyError, TypeError) as problem:
        return None, f"the run's own algorithm cannot be built again ({problem}); advantages are made anew"


def _pieces(algorithm: Algorithm) -> dict[str, str]:
    from trimtab.algorithms.table import row_of

    row = row_of(algorithm)
    return {"ratio": row.ratio, "trust region": row.trust_region, "weights": row.aggregation}


def _notes(
    columns: Sequence[Column], rows: Sequence[RolloutRow], reader: RunReader, why: str | None
) -> list[str]:
    """What the answer covers, what was recomputed, what was not."""
    found = columns[0].found
    updates = len({part.update for part in found.rollouts.values()})
    lines = [
        f"values per token of {len(found.rollouts)} of {found.batch_rollouts} rollouts, {found.tokens:,} of "
        f"{found.batch_tokens:,} trained tokens, {updates} update(s); shares add up to 1 over these in each",
        "recomputed: rewards and group advantages where they differ, weights of whole updates, ratios, gates",
        "as recorded: answers, selected groups, their split into updates, log-probabilities",
        "not recomputed: advantages that need a critic, KL and entropy terms of the loss",
    ]
    if reader.run.get("run", {}).get("record", {}).get("rollouts", "all") != "all":
        lines.append(
            'record.rollouts is not "all": weights and baselines are over the rows that were written'
        )
    if all(float(abs(p.ratio_T[p.moved_T] - 1.0).max(initial=0.0)) == 0.0 for p in found.rollouts.values()):
        lines.append("every ratio is 1: the update began with the weights that sampled, no trust region acts")
    return lines if why is None else [*lines, why]


def _texts(reader: RunReader, row: RolloutRow) -> list[str]:
    """The text of each token by the run's tokenizer; its id where there is none."""
    assert row.tokens is not None
    ids = row.tokens.token_ids.tolist()
    if not reader.folder.tokenizer.is_dir():
        return [str(token) for token in ids]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(reader.folder.tokenizer))
    return [repr(tokenizer.decode([token]))[1:-1] for token in ids]


def _groups(reader: RunReader, steps: Sequence[int], args: argparse.Namespace) -> int:
    from trimtab.doctor.whatif_groups import GroupCounts, shares_by_size
    from trimtab.doctor.whatif_text import group_lines

    late = steps[-max(1, len(steps) // 4) :]
    every, last = GroupCounts(), GroupCounts()
    for step in steps:
        rows = reader.rollouts(step)
        every.add(rows)
        if step in late:
            last.add(rows)
    tables = {f"steps {steps[0]} to {steps[-1]}": every}
    if len(late) < len(steps):
        tables[f"the last quarter, steps {late[0]} to {late[-1]}"] = last
    found = {label: shares_by_size(counts) for label, counts in tables.items()}
    if args.json:
        say(json.dumps({label: [dataclasses.asdict(s) for s in shares] for label, shares in found.items()}))
        return 0
    for label, shares in found.items():
        say("\n".join([*group_lines(label, shares, tables[label].size), ""]))
    if every.partial or every.ungraded:
        say(f"{every.partial:,} partial grades count as not right; {every.ungraded:,} answers had no grade.")
    say(
        "counted: over all ways to draw that many of the answers, no model. beta-binomial: pass rates taken "
        "as a Beta with lumps at 0 and 1; it cannot know what more answers would have shown."
    )
    return 0
