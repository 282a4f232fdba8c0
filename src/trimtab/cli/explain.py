"""Explain an algorithm (gspo) or a metric (a key of metrics.jsonl): formula, meaning, healthy range."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse

from trimtab.cli.words import say


def add(parser: argparse.ArgumentParser) -> None:
    """NAME."""
    parser.add_argument("name", metavar="NAME", help="an algorithm or a metric")


def main(args: argparse.Namespace) -> int:
    """Print what the algorithm's file or the catalogue says."""
    from trimtab.algorithms import ALGORITHMS, describe
    from trimtab.catalog import CATALOG, explain
    from trimtab.errors import SettingError, nearest

    if args.name in ALGORITHMS:
        say(describe(args.name))
        return 0
    try:
        say(explain(args.name))
    except SettingError:
        hint = nearest(args.name, [*ALGORITHMS, *CATALOG])
        raise SettingError(f"{args.name!r} is neither an algorithm nor a metric{hint}") from None
    return 0
