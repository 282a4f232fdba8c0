"""New weights for a running vLLM engine: paused between two tokens, never restarted.

    pause -> start -> broadcast into the workers -> finish(version) -> forget all keys and values -> resume

Running answers are kept: what the old weights left in the cache is computed anew, so every later token
is what the new weights give. A push that breaks in the middle leaves a mixture of two policies behind;
the engine then refuses to sample.
"""
# SPDX-License-Identifier: Apache-2.0
# vLLM is an extra: the types are checked with it and without it.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trimtab.distributed.skeleton import check_complete
from trimtab.distributed.transfer import Described, Meeting, Sender, Traffic, described, free_port
from trimtab.errors import RunError, WorkerLostError
from trimtab.models import LoadedModel
from trimtab.types import WeightSource

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

OWN, OUTER = "own", "outer"
"""Links: from the engine's own client process, and from a trainer elsewhere."""


class WeightIntake:
    """The one way by which weights enter an engine. All methods run in the engine's loop."""

    def __init__(self, core: AsyncLLM, model: LoadedModel, workers: int, timeout: float) -> None:
        self._core, self._model, self._timeout = core, model, timeout
        self.workers = workers
        self._turn = asyncio.Lock()
        self._sender: Sender | None = None
        self.broken = ""
        self.traffic = Traffic()

    async def load(self, source: WeightSource, version: int) -> None:
        """Broadcast ``source`` from this process into the workers, over loopback."""
        if iter(source) is source:  # it can be gone through once only, and is needed twice
            source = list(source)
        offered = await asyncio.to_thread(described, source)
        async with self._turn:
            self._refuse(offered, version)
            sender = await self._own_sender()
            await self._swap(OWN, offered, version, asyncio.to_thread(sender.send, source))
            self.traffic += sender.last

    async def open_link(self, meeting: Meeting, rank: int) -> None:
        """Let every worker come to a meeting, as receivers ``rank``, ``rank + 1`` ..."""
        async with self._turn:
            await self._join(OUTER, meeting, rank)

    async def receive(self, offered: list[Described], version: int) -> None:
        """Take the push that the sender of the open link begins now."""
        async with self._turn:
            self._refuse(offered, version)
            await self._swap(OUTER, offered, version, None)

    def _refuse(self, offered: list[Described], version: int) -> None:
        """Before anything changes. Raises: RunError when the engine is lost, or these are other weights."""
        if self.broken:
            raise WorkerLostError(self.broken)
        check_complete(self._model, offered, version)

    def close(self) -> None:
        """Leave the engine's own link."""
        if self._sender is not None:
            self._sender.close()

    async def _own_sender(self) -> Sender:
        if self._sender is None:
            meeting = Meeting("127.0.0.1", free_port(), 1 + self.workers, self._timeout)
            opening = asyncio.create_task(asyncio.to_thread(Sender, meeting))
            try:
                await self._join(OWN, meeting, 1)
            finally:
                await asyncio.wait([opening])
            self._sender = opening.result()
        return self._sender

    async def _join(self, link: str, meeting: Meeting, first: int) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        told = {"link": link, "first": first, **asdict(meeting)}
        await self._core.init_weight_transfer_engine(WeightTransferInitRequest(init_info=told))

    async def _swap(
        self, link: str, offered: list[Described], version: int, sending: Coroutine[Any, Any, Any] | None
    ) -> None:
        core = self._core
        await core.pause_generation(mode="keep", clear_cache=False)
        try:
            await core.start_weight_update()
            await self._both(sending, self._update(link, offered))
            await core.finish_weight_update(str(version))
            if not await core.reset_prefix_cache(reset_running_requests=True):
                raise RunError("vLLM did not forget the keys and values of the older weights")
        except BaseException as error:
            self.broken = (
                f"weights of version {version} did not arrive whole in the vLLM engine, which now holds a "
                f"mixture of two policies and must be started anew: {error or type(error).__name__}"
            )
            await self._quietly(lambda: core.pause_generation(mode="abort", clear_cache=False))
            if link == OUTER or isinstance(error, RunError) or type(error) is Exception:
                raise WorkerLostError(self.broken) from error
            raise  # what the source itself raised
        await core.resume_generation()

    async def _update(self, link: str, offered: list[Described]) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        told = {
            "link": link,
            "names": [one.name for one in offered],
            "dtypes": [one.dtype for one in offered],
            "shapes": [list(one.shape) for one in offered],
        }
        await self._core.update_weights(WeightTransferUpdateRequest(update_info=told))

    async def _both(self, sending: Coroutine[Any, Any, Any] | None, taking: Coroutine[Any, Any, Any]) -> None:
        """Wait for both ends; of two faults the sender's source is the cause, else the receiver's."""
        if sending is None:
            await taking
            return
        sent, taken = await asyncio.gather(sending, taking, return_exceptions=True)
        if isinstance(sent, BaseException) and not isinstance(sent, RunError):
            raise sent
        for fault in (taken, sent):
            if isinstance(fault, BaseException):
                raise fault

    async def _quietly(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await asyncio.wait_for(action(), timeout=10.0)
        except Exception:  # the engine is lost already; what was wrong first is what is raised
            return
