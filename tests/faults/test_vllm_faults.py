"""A vLLM engine that breaks: said at once, with its own words, and never sampled from again."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract.test_engines import draws_of, sample
from tests.contract.test_local_engine import LONG, TEXTS, pairs
from tests.tiny import tiny_model
from tests.vllm_engines import HEAD, largest_difference, long_draws, moved, start_engine, take
from trimtab.distributed import vllm_options
from trimtab.distributed.transfer import Meeting, described
from trimtab.errors import RunError, SettingError
from trimtab.models import LoadedModel
from trimtab.rollout.engine import Sampling
from trimtab.types import Group

UNTIED = {"head_dim": HEAD, "tie_word_embeddings": False}


class Breaking:
    """Weights whose last tensor cannot be gathered."""

    def __init__(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        self.weights = weights
        self.described = None  # set by the test: known without iterating

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.weights[:-1]
        raise ValueError("a rank of the trainer is gone")


def test_without_vllm_the_remedy_is_told(monkeypatch):
    monkeypatch.setattr(vllm_options.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"install trimtab\[vllm\].*docs/vllm.md"):
        vllm_options.require_vllm()


def test_the_cause_is_read_from_the_traceback_of_an_inner_process():
    def record(process: int, error: str) -> str:
        head = f"2026-01-01 10:00:00,000 {process} ERROR vllm.core: it broke"
        return f"{head}\nTraceback (most recent call last):\n  File a, line 3\n    f()\n{error}\n"

    log = vllm_options.EngineLog()
    assert log.traceback() == ""
    log.path.write_text(record(os.getpid(), "EngineDeadError") + record(1, "KeyError: 'w'"), encoding="utf-8")
    assert vllm_options.cause_of(log.traceback()) == "KeyError: 'w'"
    assert log.traceback(log.mark()) == ""
    log.remove()
    assert not log.folder.exists()


@pytest.mark.vllm
def test_a_push_that_breaks_and_a_process_that_dies(tmp_path):
    """One engine's bad day: an untied model follows, NaN, a push that breaks in the middle, a kill -9."""
    trainer = tiny_model("llama", **UNTIED)
    engine = start_engine(tmp_path, trainer)
    try:
        take(trainer, moved(trainer))
        asyncio.run(engine.load_weights(trainer.module.named_parameters(), 1))
        groups = sample(engine, long_draws(), n=2, sampling=LONG)
        assert largest_difference(*pairs(trainer, groups, 1.0)) <= 1e-4
        damaged(engine, trainer)
        broken = Breaking(list(trainer.module.named_parameters()))
        broken.described = described(broken.weights)
        asyncio.run(break_while_sampling(engine, broken))
        with pytest.raises(
            RunError, match=r"version 2 did not arrive whole .* a rank of the trainer is gone"
        ):
            sample(engine, draws_of())
        assert engine.version == 1
        with pytest.raises(RunError, match="version 2 did not arrive whole"):
            asyncio.run(engine.load_weights(trainer.module.named_parameters(), 3))
        kill_the_core(engine)
        with pytest.raises(RunError, match="the vLLM engine died: .* ended without a word"):
            asyncio.run(asyncio.wait_for(engine.open_link(Meeting("127.0.0.1", 1, 2, 60.0), 1), 30.0))
    finally:
        asyncio.run(engine.close())


def damaged(engine: Any, trainer: LoadedModel) -> None:
    """A prompt whose numbers are damaged is named, its neighbour is not, and the engine serves on."""
    spoiled = dict(moved(trainer, size=0.0))
    spoiled["model.embed_tokens.weight"][12] = torch.nan  # the letter a
    asyncio.run(engine.load_weights(list(spoiled.items()), 1))
    with pytest.raises(RunError, match=r"not finite at token 1 of an answer to prompt 'p1' .*nan"):
        sample(engine, draws_of(["2+3", "a+b"]), sampling=Sampling(max_new_tokens=1))
    asyncio.run(engine.load_weights(trainer.module.named_parameters(), 1))
    assert len(sample(engine, draws_of())) == len(draws_of())


async def break_while_sampling(engine: Any, source: Any) -> None:
    """The push breaks while answers run; both callers learn why."""

    async def collect() -> list[Group]:
        return [g async for g in engine.generate(draws_of(TEXTS), 8, Sampling(max_new_tokens=200), seed=1)]

    sampling = asyncio.create_task(collect())
    while not engine._core.get_num_unfinished_requests():
        await asyncio.sleep(0.001)
    with pytest.raises(ValueError, match="a rank of the trainer is gone"):
        await engine.load_weights(source, 2)
    with pytest.raises(RunError, match="mixture of two policies"):
        await sampling


def kill_the_core(engine: Any) -> None:
    for process in engine._core.engine_core.resources.engine_manager.processes:
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.vllm
def test_a_crash_inside_ends_with_its_own_traceback(tmp_path, monkeypatch):
    """Cut prefills with seeds crash vLLM on a CPU: why the engine forbids them, and how a crash is told."""
    plain = vllm_options.engine_arguments

    def cut(*told: Any) -> dict[str, Any]:
        return plain(*told) | {"enable_chunked_prefill": True, "max_num_batched_tokens": 64}

    monkeypatch.setattr("trimtab.distributed.vllm_engine.engine_arguments", cut)
    engine = start_engine(tmp_path, tiny_model("llama", **UNTIED))
    try:
        with pytest.raises(RunError, match="the vLLM engine died: .*CPU Generator.*offset") as caught:
            sample(engine, long_draws(), n=8, sampling=LONG)
        assert any("Traceback" in note and "set_offset" in note for note in caught.value.__notes__)
        with pytest.raises(RunError, match="the vLLM engine died"):
            sample(engine, draws_of())
    finally:
        asyncio.run(engine.close())


@pytest.mark.vllm
def test_what_this_machine_cannot_compute_fails_at_the_start(tmp_path: Path):
    """vLLM itself finds heads of 24 numbers impossible only when the first prompt comes."""
    with pytest.raises(RunError, match=r"vLLM could not be started on .*Unsupported.*head_dim=24") as caught:
        start_engine(tmp_path, tiny_model("llama", head_dim=24))
    assert "Traceback" in caught.value.__notes__[0]
