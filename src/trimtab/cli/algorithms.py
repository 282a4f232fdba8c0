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

    say(str(overview()))
    return 0
