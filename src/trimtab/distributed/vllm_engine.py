"""Samples with vLLM, which runs in processes of its own beside this one; behind ``RolloutEngine``."""
# SPDX-License-Identifier: Apache-2.0
# vLLM is an extra: the types are checked with it and without it.
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import atexit
import itertools
from collections.abc import AsyncIterator, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from trimtab.config.cluster import VllmConfig
from trimtab.distributed.loop_thread import LoopThread
from trimtab.distributed.skeleton import load_skeleton
from trimtab.distributed.transfer import Described, Meeting, Traffic
from trimtab.distributed.vllm_answers import Ask, Rules, answer, asks_of, group_of
from trimtab.distributed.vllm_faults import Faults, unstartable
from trimtab.distributed.vllm_options import (
    EngineLog,
    engine_arguments,
    engine_dtype,
    limit_of,
    require_vllm,
)
from trimtab.distributed.vllm_weights import WeightIntake
from trimtab.errors import WorkerLostError
from trimtab.models import LoadedModel, resolve_path
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import EffectiveSampler, effective_sampler, refuse
from trimtab.rollout.rows import Ended
from trimtab.rollout.stopping import StopTexts
from trimtab.types import Draw, Group, WeightSource

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

Result = TypeVar("Result")
GRACE = 2.0
"""Seconds that vLLM's processes have to end by themselves."""
LOOK = 1.0
"""Seconds between two looks whether vLLM still lives, while an answer of it is awaited."""


class VllmEngine:
    """One vLLM engine. Made by ``start``, ended by ``close``; usable from any event loop.

    The tokens of an answer depend on its seed, its prompt and the weights, up to rounding: vLLM adds the
    numbers of a batch in an order that depends on the batch, so a token can differ where two were
    nearly tied.
    """

    def __init__(
        self,
        core: AsyncLLM,
        model: LoadedModel,
        *,
        thread: LoopThread,
        intake: WeightIntake,
        log: EngineLog,
        length: int,
        limit: str,
        version: int,
    ) -> None:
        self.model, self.length, self.version = model, length, version
        self._limit = limit
        self._core, self._thread, self._intake, self._log = core, thread, intake, log
        self._faults = Faults(core, log)
        self._numbers = itertools.count()
        self._at_exit = partial(_end, core)
        atexit.register(self._at_exit)
        self._sampled = 0

    @classmethod
    async def start(
        cls,
        path: str,
        *,
        config: VllmConfig | None = None,
        max_model_len: int | None = None,
        dtype: str = "auto",
        version: int = 0,
        timeout: float = 300.0,
    ) -> VllmEngine:
        """Start an engine on the model of that folder or hub name.

        max_model_len: tokens of prompt and answer together; the model's context where None or longer.
        dtype: the model's, "auto" as in ``[model]``; ``config.dtype`` goes before it.
        version: of the weights in that folder. timeout: seconds for one operation of a weight transfer.
        Raises: SettingError without vLLM, DataError for a model it cannot serve, RunError when it fails.
        """
        config = config or VllmConfig()
        require_vllm()
        kind = engine_dtype(config, dtype)
        model = await asyncio.to_thread(load_skeleton, path, kind)
        length = min(max_model_len or model.context, model.context)
        log = EngineLog()
        arguments = engine_arguments(resolve_path(path), model, config, kind, length)
        thread = LoopThread("vllm")
        try:
            with log.environment(compile=config.compile):
                core = await thread.run(_start(arguments, model.vocab_size, version))
            intake = await thread.run(_intake(core, model, config.tensor_parallel, timeout))
        except Exception as error:
            thread.stop()
            fault = unstartable(path, error, log.traceback())
            log.remove()
            raise fault from error
        limit = limit_of(length, model, config)
        return cls(
            core, model, thread=thread, intake=intake, log=log, length=length, limit=limit, version=version
        )

    @property
    def dtype(self) -> torch.dtype:
        """See ``RolloutEngine``."""
        return self.model.dtype

    @property
    def link_ranks(self) -> int:
        """Receiving ranks that this engine takes in a meeting: one a worker, its tensor parallelism."""
        return self._intake.workers

    @property
    def traffic(self) -> Traffic:
        """What ``load_weights`` has carried into the workers so far."""
        return self._intake.traffic

    @property
    def ticks(self) -> int:
        """Tokens sampled so far: what shows a watcher that it goes on."""
        running = list(self._core.output_processor.request_states.values())
        return self._sampled + sum(s.detokenizer.num_output_tokens() for s in running if s.detokenizer)

    def describe(self, sampling: Sampling) -> EffectiveSampler:
        """The effective sampler, end tokens with their texts."""
        return effective_sampler(self.model, sampling)

    async def generate(
        self, draws: Sequence[Draw], n: int, sampling: Sampling, *, seed: int, purpose: str = "train"
    ) -> AsyncIterator[Group]:
        """See ``RolloutEngine``. A group comes as soon as its last answer has ended.

        Leaving the generator early aborts what still runs. Weights loaded meanwhile change running
        answers from their next token on; each answer says which version drew which tokens.
        Raises: DataError for a prompt that is empty or too long, before anything is sampled; RunError
        naming the prompt whose logits are not finite; WorkerLostError when vLLM died, with its traceback.
        """
        if self._intake.broken:
            raise WorkerLostError(self._intake.broken)
        refuse(draws, n, sampling, self.length, self._limit)
        asks = list(asks_of(draws, n, seed, purpose))
        if not asks:
            return
        texts = StopTexts(sampling.stop, self.model.tokenizer, self.model.vocab_size, torch.device("cpu"))
        rules = Rules(sampling, self.model.stop_ids, texts)
        here = asyncio.get_running_loop()
        came: asyncio.Queue[Ended | BaseException | None] = asyncio.Queue()

        def hand_over(item: Ended | BaseException | None) -> None:
            here.call_soon_threadsafe(came.put_nowait, item)

        groups: list[list[Ended]] = [[] for _ in draws]
        cancel = self._thread.spawn(self._sample(asks, rules, hand_over), hand_over)
        ended = False
        try:
            for _ in asks:
                item = await came.get()
                if not isinstance(item, Ended):
                    ended = True
                    raise self._faults.told(item, self._intake.broken)
                groups[item.owner].append(item)
                if len(groups[item.owner]) == n:
                    yield group_of(draws[item.owner], groups[item.owner], self.model, texts)
                    groups[item.owner] = []
        finally:
            cancel()
            while not ended:
                ended = not isinstance(await came.get(), Ended)

    async def _sample(self, asks: Sequence[Ask], rules: Rules, hand_over: Any) -> None:
        """All answers at once; vLLM lets in as many as fit. The first fault ends the others."""

        async def one(ask: Ask) -> None:
            request = f"{ask.prompt_id}/{ask.index}-{next(self._numbers)}"
            ended = await answer(self._core, request, ask, rules)
            self._sampled += len(ended.token_ids)
            hand_over(ended)

        try:
            async with asyncio.TaskGroup() as tasks:
                for ask in asks:
                    tasks.create_task(one(ask))
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None

    async def load_weights(self, source: WeightSource, version: int) -> None:
        """Put ``source`` into the running engine. Running answers go on under the new weights.

        Raises: RunError when a name is unknown, a shape differs or a parameter is missing, before anything
        has changed; what the source raised, or WorkerLostError, when the push broke, and the engine with it.
        """
        await self._asked(self._intake.load(source, version))
        self.version = version

    async def open_link(self, meeting: Meeting, rank: int) -> None:
        """Come to a meeting as receivers ``rank`` to ``rank + link_ranks - 1``; an older link is left."""
        await self._asked(self._intake.open_link(meeting, rank))

    async def receive_weights(self, described: Sequence[Described], version: int) -> None:
        """Take the push that the sender of the open link begins now. Raises: as ``load_weights``."""
        await self._asked(self._intake.receive(list(described), version))
        self.version = version

    async def _asked(self, work: Coroutine[Any, Any, Result]) -> Result:
        asked = asyncio.ensure_future(self._thread.run(work))
        try:
            while not (await asyncio.wait([asked], timeout=LOOK))[0]:
                if self._core.errored:  # a call that was under way when vLLM died is never answered
                    raise self._faults.death()
            return asked.result()
        except Exception as error:
            raise self._faults.told(error, self._intake.broken) from error
        finally:
            asked.cancel()

    async def close(self) -> None:
        """End vLLM's processes."""
        self._intake.close()
        atexit.unregister(self._at_exit)
        await self._thread.run(_shut_down(self._core))
        self._thread.stop()
        self._log.remove()


async def _start(arguments: dict[str, Any], vocab_size: int, version: int) -> AsyncLLM:
    """Runs in the engine's loop, which waits for vLLM's processes meanwhile; the caller's loop does not."""
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

    import trimtab.distributed.vllm_worker  # noqa: F401  registers the transfer backend here too

    core = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    try:
        await core.collective_rpc("trimtab_mask_ids", args=(vocab_size,))
        await core.update_weight_version(str(version))
        first = SamplingParams(max_tokens=1, detokenize=False)
        async for _ in core.generate({"prompt_token_ids": [0]}, first, "first"):
            pass  # what this machine cannot compute shall fail here, and not in the first step of a run
    except BaseException:
        _end(core)
        raise
    return core


async def _intake(core: AsyncLLM, model: LoadedModel, workers: int, timeout: float) -> WeightIntake:
    return WeightIntake(core, model, workers, timeout)


async def _shut_down(core: AsyncLLM) -> None:
    await asyncio.to_thread(_end, core)


def _end(core: AsyncLLM) -> None:
    core.shutdown(GRACE)
    core.shutdown = lambda timeout=None: None  # it would do it again when collected, and fail at exit
