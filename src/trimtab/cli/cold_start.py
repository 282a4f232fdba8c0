"""Rebuild the embedded start model from demonstrations."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    """To come with loop.cold_start."""


def main(args: argparse.Namespace) -> int:
    """To come with loop.cold_start."""
    raise NotImplementedError
