"""A rank of the trainer that is killed, stopped, failing or missing is named by the others, and in time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import rank_process
from tests.ranks import Spawned, Spread
from tests.sharded_cases import CASES
from tests.trainers import annotate
from tests.training import POLICY
from trimtab.errors import RunError
from trimtab.trainer.sharded_group import join, open_store, reach_store

TIMEOUT = 4.0
SLACK = 20.0
"""Seconds beyond the time-out: for the words of others, and for a busy machine."""


@pytest.fixture
def trio() -> Iterator[tuple[Spawned, Spread, Any]]:
    """Three ranks that know each other, their trainer, and a batch for it."""
    ranks = Spawned(3, timeout=TIMEOUT)
    trainer = CASES["policy"].built(lambda model, **settings: Spread(ranks, model, **settings))
    batch = annotate(trainer, CASES["policy"].batch())
    yield ranks, trainer, batch
    for process in ranks.processes:
        process.kill()  # also ends one that is stopped
    ranks.close()


def told_by(ranks: Spawned, trainer: Spread, batch: Any, survivors: tuple[int, ...]) -> list[str]:
    """What the survivors say of an update, and that they say it in time and again."""
    sentences = []
    began = time.monotonic()
    for call in ("update", "annotate"):
        args = (batch, POLICY if call == "update" else frozenset({"old_logprobs_T"}))
        message = (rank_process.call, trainer.number, call, *args)
        ranks.ask_of(survivors, *message)
        for rank in survivors:
            done, error = ranks.answer(rank)
            assert not done
            assert isinstance(error, RunError), error
            sentences.append(str(error))
    assert time.monotonic() - began < TIMEOUT + SLACK
    assert all("start all ranks again from the last checkpoint" in sentence for sentence in sentences)
    return sentences


@pytest.mark.parametrize("lost", [0, 2])
def test_a_killed_rank_is_named_at_once(trio: Any, lost: int):
    ranks, trainer, batch = trio
    os.kill(ranks.pids[lost], signal.SIGKILL)
    ranks.processes[lost].join()
    began = time.monotonic()
    survivors = tuple(rank for rank in range(3) if rank != lost)
    for sentence in told_by(ranks, trainer, batch, survivors):
        assert f"rank {lost} of the trainer" in sentence
        assert "no answer in update" in sentence
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_hangs_is_named_within_the_time_out(trio: Any, lost: int):
    ranks, trainer, batch = trio
    os.kill(ranks.pids[lost], signal.SIGSTOP)
    survivors = tuple(rank for rank in range(3) if rank != lost)
    for sentence in told_by(ranks, trainer, batch, survivors):
        assert f"rank {lost} of the trainer" in sentence


def test_a_rank_that_fails_says_why_to_all(trio: Any):
    ranks, trainer, batch = trio
    trainer.inside("fail", 1)
    ranks.ask(rank_process.call, trainer.number, "update", batch, POLICY)
    answers = [ranks.answer(rank) for rank in range(3)]
    assert not any(done for done, _ in answers)
    assert str(answers[1][1]) == "out of memory"
    for rank in (0, 2):
        assert "rank 1 failed in update (RuntimeError: out of memory)" in str(answers[rank][1])
    assert "rank 1 failed" in told_by(ranks, trainer, batch, (0, 1, 2))[1]


def test_a_rank_that_does_not_come_is_named():
    store = open_store(timeout=5.0)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"rank 1, 2 of the trainer's 3 did not come within 1 s"):
        join(0, 3, store, timeout=1.0)
    assert time.monotonic() - began < SLACK


def test_ranks_meet_on_loopback_only_and_say_where_nobody_is():
    store = open_store(timeout=5.0)
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        listening = [line.split()[1] for line in table if f":{store.port:04X}" in line]
    assert "0100007F" in {address.split(":")[0] for address in listening}
    assert "00000000" not in {address.split(":")[0] for address in listening}
    with pytest.raises(RunError, match="no rank 0 of the trainer at 127.0.0.1:1 within 1 s"):
        reach_store("127.0.0.1", 1, timeout=1.0)
