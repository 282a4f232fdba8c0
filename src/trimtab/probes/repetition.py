"""How much of an answer it has said before: repeated n-grams of token ids."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trimtab.metrics import Mean, Metrics

NGRAM = 4
SHORTEST = 2 * NGRAM
"""Tokens below which an answer says nothing about repetition."""

LOOPING = 0.5
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F],
    dtype=np.uint64,
)


def repetition_metrics(answers: Sequence[NDArray[np.int64]]) -> Metrics:
    """``answers/*`` over the answers of ``SHORTEST`` tokens or more; nothing where there is none.

    answers: token ids, one array an answer.
    """
    shares = repeated_shares([ids for ids in answers if len(ids) >= SHORTEST])
    if not len(shares):
        return {}
    return {"answers/repetition": Mean.of(shares), "answers/looping": Mean.of(shares > LOOPING)}


def repeated_shares(answers: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """1 - different n-grams / n-grams of each answer, all of them at least ``NGRAM`` long, in [0, 1).

    N-grams are told apart by a 64-bit hash, all answers at once.
    """
    if not answers:
        return np.empty(0)
    lengths = np.array([len(ids) for ids in answers], dtype=np.int64)
    ids = np.concatenate(answers).astype(np.uint64)
    answer = np.repeat(np.arange(len(answers)), lengths)
    count = len(ids) - NGRAM + 1
    keys = answer[:count].astype(np.uint64) * _MULTIPLIERS[NGRAM]
    for offset in range(NGRAM):
        keys += (ids[offset : offset + count] + np.uint64(1)) * _MULTIPLIERS[offset]
    whole = answer[:count] == answer[NGRAM - 1 :]
    keys, owner = keys[whole], answer[:count][whole]
    _, first = np.unique(keys, return_index=True)
    different = np.bincount(owner[first], minlength=len(answers))
    return 1.0 - different / (lengths - NGRAM + 1)
