"""The algorithms: each is one file with its formula, its source, the paper's numbers and its neighbour."""
# SPDX-License-Identifier: Apache-2.0

from trimtab.algorithms.activity import activity, notes
from trimtab.algorithms.algorithm import AdvantageEstimator, Algorithm
from trimtab.algorithms.build import build_algorithm
from trimtab.algorithms.presets import ALGORITHMS
from trimtab.algorithms.refusals import REFUSALS
from trimtab.algorithms.spelling import spelled_out
from trimtab.algorithms.table import describe, overview

__all__ = [
    "ALGORITHMS",
    "REFUSALS",
    "AdvantageEstimator",
    "Algorithm",
    "activity",
    "build_algorithm",
    "describe",
    "notes",
    "overview",
    "spelled_out",
]
