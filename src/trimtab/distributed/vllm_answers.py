"""Answers from vLLM: tokens as they come, an end where this package's own rules see one, groups of them."""
# SPDX-License-Identifier: Apache-2.0
# vLLM is an extra: the types are checked with it and without it.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.errors import RunError
from trimtab.models import LoadedModel
from trimtab.rollout.engine import Sampling, rollout_seed
from trimtab.rollout.rows import Ended
from trimtab.rollout.stopping import StopTexts
from trimtab.types import Draw, Finish, Group, IntArray, Rollout, VersionSpan

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Answer number ``index`` to the prompt of draw ``owner``, with the seed it is drawn from."""

    owner: int
    prompt_id: str
    token_ids: IntArray
    index: int
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """What ends an answer, and how it is drawn: the same for all answers of a call."""

    sampling: Sampling
    stop_ids: tuple[int, ...]
    texts: StopTexts

    def parameters(self, seed: int) -> SamplingParams:
        """vLLM's form. Its own end token and stop strings are off: end ids are told, texts are ours."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        watched = bool(self.sampling.stop)
        return SamplingParams(
            n=1,
            temperature=self.sampling.temperature,
            seed=seed,
            max_tokens=self.sampling.max_new_tokens,
            stop_token_ids=list(self.stop_ids),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if watched else RequestOutputKind.FINAL_ONLY,
        )

    def first_end(self, token_ids: list[int], start: int) -> int | None:
        """Tokens up to the first one, from ``start`` on, that completes a stop text; None where none does."""
        if not self.sampling.stop:
            return None
        for i in range(start, len(token_ids)):
            if self.texts.candidates_V[token_ids[i]] and self.texts.met(np.asarray(token_ids[: i + 1])):
                return i + 1
        return None


async def answer(core: AsyncLLM, request: str, ask: Ask, rules: Rules) -> Ended:
    """Sample one answer to its end. Cancelling it aborts the request in vLLM.

    Raises: RunError when a log-probability is not finite, naming the prompt, or when vLLM aborted it.
    """
    ids: list[int] = []
    logprobs: list[float] = []
    met: int | None = None
    last: Any = None
    prompt: Any = {"prompt_token_ids": ask.token_ids.tolist()}
    async for output in core.generate(prompt, rules.parameters(ask.seed), request):
        last = output.outputs[0]
        start = len(ids)
        ids += last.token_ids
        logprobs += last.logprobs.logprobs if last.logprobs is not None else []
        if met is None and (met := rules.first_end(ids, start)) is not None and not output.finished:
            await core.abort(request)
    if len(ids) != len(logprobs):
        raise RunError(f"vLLM gave {len(ids)} tokens but {len(logprobs)} log-probabilities for {request}")
    length = len(ids) if met is None else met
    finish = _finish(ids[:length], met, rules, last.finish_reason)
    values = np.asarray(logprobs[:length], dtype=np.float32)
    _require_finite(values, ask)
    spans = tuple(
        VersionSpan(int(span.version), span.start, min(span.end, length))
        for span in last.weight_versions or ()
        if span.start < length
    )
    return Ended(
        ask.owner, ask.index, ask.seed, np.asarray(ids[:length], dtype=np.int64), values, finish, spans
    )


def _finish(ids: list[int], met: int | None, rules: Rules, reason: str | None) -> Finish:
    if ids and (met is not None or ids[-1] in rules.stop_ids):
        return Finish.STOP
    if len(ids) == rules.sampling.max_new_tokens:
        return Finish.LENGTH
    raise AbortedError(f"vLLM ended an answer after {len(ids)} tokens with {reason!r}")


def _require_finite(logprobs: np.ndarray, ask: Ask) -> None:
    wrong = np.flatnonzero(~np.isfinite(logprobs) | (logprobs > 1e-3))
    if len(wrong):
        raise RunError(
            f"the model's logits are not finite at token {wrong[0] + 1} of an answer to prompt "
            f"{ask.prompt_id!r} (vLLM gave the log-probability {logprobs[wrong[0]]}); its weights are "
            "damaged: go back to the last checkpoint and lower the learning rate"
        )


def asks_of(draws: Sequence[Draw], n: int, seed: int, purpose: str) -> Iterator[Ask]:
    """Each answer of each draw, with the seed that is its own."""
    for owner, (prompt, number) in enumerate(draws):
        for index in range(n):
            own = rollout_seed(seed, purpose, prompt.id, number, index)
            yield Ask(owner, prompt.id, prompt.token_ids, index, own)


def group_of(draw: Draw, answers: list[Ended], model: LoadedModel, texts: StopTexts) -> Group:
    """The ended answers of a draw as its group, texts cut at the first stop text."""
    answers.sort(key=lambda ended: ended.index)
    decoded = model.tokenizer.batch_decode([a.token_ids.tolist() for a in answers], skip_special_tokens=True)
    return Group(
        draw=draw,
        rollouts=tuple(
            Rollout(
                prompt_id=draw.prompt.id,
                draw=draw.number,
                index=a.index,
                token_ids=a.token_ids,
                logprobs=a.logprobs,
                mask=np.ones(len(a.token_ids), dtype=np.bool_),
                finish=a.finish,
                versions=a.versions,
                seed=a.seed,
                text=texts.cut(text),
            )
            for a, text in zip(answers, decoded, strict=True)
        ),
    )


class AbortedError(RunError):
    """vLLM gave an answer up; why is known to whoever aborted it."""
