"""The judge as a grader: its options, the question about a rollout, and the grade of its verdict."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError, nearest
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.judge import question
from trimtab.rewards.judge.cache import VerdictCache, key_of
from trimtab.rewards.judge.endpoint import Endpoint, EndpointTimeoutError, Limits
from trimtab.rewards.judge.question import Asked, Verdict
from trimtab.rewards.shown import READS, Reads, shown, spoken
from trimtab.types import Grade, GradeState, Prompt, Rollout

CRITERIA = "whether the answer is correct, complete and answers what was asked"
OWN_KEYS = ("messages", "model", "n", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Grades an answer by the verdict of a language model behind a chat-completions endpoint.

    url, model: such as ``http://127.0.0.1:8000/v1``, and the model's name there.
    api_key_env: the environment variable that holds the key; empty sends none. Its content is never kept.
    criteria: what counts, in one clause. reference: show ``prompt.answer`` as the known right answer.
    scale: the judge's worst and best grade, taken to 0 and 1.
    reads: ``conclusion`` shows it what follows the thinking, ``all`` the whole response.
    temperature, max_tokens: of the judge's reply. extra: further fields of the request.
    seconds: for one request. retries: after 408, 425, 429, 5xx, a lost connection or no reply in time.
    longest_wait: seconds before a retry, at most; a server that asks for more is a fault.
    concurrency, per_minute: requests under way at once, and begun in a minute (0: any number).
    cache: verdicts kept in memory, 0 for none. cache_file: an SQLite file that keeps as many.

    A reply that is not the asked form is a fault, and the answer ungraded.
    """

    limits_itself: ClassVar[Literal[True]] = True

    url: str = ""
    model: str = ""
    api_key_env: str = ""
    criteria: str = CRITERIA
    reference: bool = False
    scale: tuple[float, float] = (0.0, 10.0)
    reads: Reads = "conclusion"
    temperature: float = 0.0
    max_tokens: int = 1024
    extra: dict[str, Any] = field(default_factory=dict)
    seconds: float = 120.0
    retries: int = 5
    longest_wait: float = 60.0
    concurrency: int = 16
    per_minute: float = 0.0
    cache: int = 10_000
    cache_file: str | None = None
    name: str = "judge"
    _endpoint: Endpoint = field(init=False, repr=False, compare=False)
    _known: VerdictCache = field(init=False, repr=False, compare=False)
    _asking: weakref.WeakValueDictionary[tuple[int, str], asyncio.Lock] = field(
        init=False, repr=False, compare=False, default_factory=weakref.WeakValueDictionary
    )

    def __post_init__(self) -> None:
        if (why := self._fault()) is not None:
            raise SettingError(f"grader {self.name!r}: {why}")
        limits = Limits(
            seconds=self.seconds,
            retries=self.retries,
            longest_wait=self.longest_wait,
            concurrency=self.concurrency,
            per_minute=self.per_minute,
        )
        object.__setattr__(self, "_endpoint", Endpoint(self.url, self.api_key_env, limits))
        object.__setattr__(self, "_known", VerdictCache(self.cache, self.cache_file))

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        answer = shown(prompt, rollout, self.reads)
        if not answer.strip():
            return Grade.of(0.0, detail="there is no answer after the thinking")
        try:
            verdict = await self.grade(asked_of(prompt), answer, self._reference(prompt))
        except EndpointTimeoutError as fault:
            return Grade(state=GradeState.TIMEOUT, value=None, detail=f"{rollout.key}: {fault}")
        return Grade.of(verdict.value, detail=verdict.reason)

    async def grade(self, asked: str, answer: str, reference: str | None) -> Verdict:
        """The verdict on one answer. Raises EndpointError, EndpointTimeoutError, UnreadableVerdictError."""

        def put() -> Asked:
            return question.ask_grade(
                asked, answer, criteria=self.criteria, reference=reference, scale=self.scale
            )

        key = self._key("grade", asked, [answer], reference)
        return await self._verdict(
            key, put, lambda reply, nonce: question.read_grade(reply, nonce, self.scale)
        )

    async def better(self, prompt: Prompt, first: str, second: str) -> Verdict:
        """Which of two answers is better, asked in this order. Raises like ``grade``."""
        asked, reference = asked_of(prompt), self._reference(prompt)

        def put() -> Asked:
            return question.ask_better(asked, first, second, criteria=self.criteria, reference=reference)

        key = self._key("better", asked, [first, second], reference)
        return await self._verdict(key, put, question.read_better)

    def self_check(self, prompts: Sequence[Prompt]) -> list[Unverifiable]:
        """Looks for the key and the cache before the run; names the prompts without the asked reference.

        Raises SettingError.
        """
        self._endpoint.key()
        self._known.open()
        if not self.reference:
            return []
        missing = [prompt for prompt in prompts if prompt.answer is None]
        return [
            Unverifiable(prompt.id, "None", "there is no reference to show the judge") for prompt in missing
        ]

    async def _verdict(
        self, key: str, put: Callable[[], Asked], read: Callable[[str, str], Verdict]
    ) -> Verdict:
        """From the cache, else from the endpoint; equal questions at the same time are asked once."""
        place = (id(asyncio.get_running_loop()), key)
        lock = self._asking.setdefault(place, asyncio.Lock())
        async with lock if self.cache else asyncio.Lock():
            if (found := self._known.get(key)) is not None:
                return found
            asked = put()
            body = {
                "model": self.model,
                "messages": asked.messages,
                "temperature": self.temperature,
                "max_tokens": self.max_tokens,
                **self.extra,
            }
            reply = await self._endpoint.reply(body)
            try:
                verdict = read(reply, asked.nonce)
            except question.UnreadableVerdictError as fault:
                raise question.UnreadableVerdictError(f"the reply of judge {self.model!r}: {fault}") from None
            self._known.put(key, verdict)
            return verdict

    def _key(self, kind: str, asked: str, answers: list[str], reference: str | None) -> str:
        return key_of(
            version=question.VERSION,
            kind=kind,
            url=self.url,
            model=self.model,
            criteria=self.criteria,
            scale=self.scale,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            extra=self.extra,
            question=asked,
            answers=answers,
            reference=reference,
        )

    def _reference(self, prompt: Prompt) -> str | None:
        return str(prompt.answer) if self.reference and prompt.answer is not None else None

    def _fault(self) -> str | None:
        if not self.url or not self.model:
            return "needs the options url, such as http://127.0.0.1:8000/v1, and model"
        if self.reads not in READS:
            return f"reads cannot be {self.reads!r}{nearest(self.reads, READS)}"
        if not self.criteria.strip():
            return "criteria must say what counts"
        if not -math.inf < self.scale[0] < self.scale[1] < math.inf:
            return f"scale must be the worst and the best grade, got {list(self.scale)}"
        if taken := sorted(set(self.extra) & set(OWN_KEYS)):
            return f"extra cannot set {taken[0]!r}, which the judge sets itself"
        if self.max_tokens < 1 or self.concurrency < 1 or self.retries < 0 or self.cache < 0:
            return "max_tokens and concurrency must be >= 1, retries and cache >= 0"
        if not (self.seconds > 0.0 and self.longest_wait >= 0.0 and self.per_minute >= 0.0):
            return "seconds must be > 0, longest_wait and per_minute >= 0"
        if self.cache_file is not None and not self.cache:
            return "cache_file needs cache > 0, the number of verdicts it keeps"
        return None


def asked_of(prompt: Prompt) -> str:
    """The question as plain text, without the marks of the policy's chat template where it has messages."""
    return spoken(prompt.messages) if prompt.messages else prompt.text
