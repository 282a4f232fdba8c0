"""List the algorithms: what sets each apart, and its source."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse

from trimtab.cli.words import say


def add(parser: argparse.ArgumentParser) -> None:
    """No arguments."""


def main(args: argparse.Namespace) -> int:
    """Print the overview."""
    from trimtab.algorithms import overview
    from trimtab.objectives.correction import Correction

    say(str(overview()))
    say(
        f"\nall: rollout correction, {Correction()}, where cluster.staleness > 0 or a vLLM engine is not "
        'told to compute in float32; correction = "none" turns it off'
    )
    return 0
