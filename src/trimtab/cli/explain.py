"""Explain an algorithm (gspo) or a metric (a key of metrics.jsonl): formula, meaning, healthy range.

trimtab explain gspo
trimtab explain gate/effective_mass
trimtab explain actor/ppo_kl              a name of TRL or verl: what it is here, and how it differs
trimtab explain --json                    the whole catalogue of metrics, as JSON for tooltips
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json

from trimtab.cli.words import say
from trimtab.errors import SettingError, nearest


def add(parser: argparse.ArgumentParser) -> None:
    """NAME, --json."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="an algorithm or a metric")
    parser.add_argument("--json", action="store_true", help="a metric, or without NAME all of them, as JSON")


def main(args: argparse.Namespace) -> int:
    """Print what the algorithm's file or the catalogue says."""
    from trimtab.algorithms import ALGORITHMS, describe
    from trimtab.catalog import CATALOG, explain

    if args.json:
        print(json.dumps(_as_json(args.name), indent=1))
    elif args.name is None:
        raise SettingError("explain needs the name of an algorithm or a metric, or --json for all metrics")
    elif args.name in ALGORITHMS:
        say(describe(args.name))
    else:
        text = _foreign(args.name)
        try:
            say(explain(args.name) if text is None else text)
        except SettingError:
            hint = nearest(args.name, [*ALGORITHMS, *CATALOG])
            raise SettingError(f"{args.name!r} is neither an algorithm nor a metric{hint}") from None
    return 0


def _as_json(name: str | None) -> object:
    from trimtab.catalog import as_json, find

    return as_json() if name is None else as_json()["metrics"][find(name).key]


def _foreign(name: str) -> str | None:
    """What a name of TRL or verl is here; None where it is not one of theirs."""
    from trimtab.catalog import explain
    from trimtab.catalog.aliases import NOT_THE_SAME, from_trl, from_verl

    if name in NOT_THE_SAME:
        return f"{name} is none of ours: {NOT_THE_SAME[name]}"
    for framework, translate in (("TRL", from_trl), ("verl", from_verl)):
        alias = translate(name)
        if alias is not None:
            scale = "" if alias.scale == 1.0 else f", times {alias.scale:g}"
            note = f" ({alias.note})" if alias.note else ""
            return f"{framework}'s {name} is {alias.key}{scale}{note}\n\n{explain(alias.key)}"
    return None
