"""Requests to an OpenAI-compatible endpoint: bounded in number, rate and time, and repeated where it helps.

Repeated: no connection, no reply in time, and the statuses 408, 425, 429 and 5xx, after the wait that the
server asks for (``Retry-After``) or else 0.5 s, 1 s, 2 s ... with a random part. Everything else is a fault
at once. The key is read from the environment at the first request and stands in no message.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
import weakref
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trimtab.errors import SettingError

if TYPE_CHECKING:
    import httpx2

FIRST_WAIT = 0.5
LARGEST_REPLY = 4 << 20
RETRIED = (408, 425, 429)


class EndpointError(RuntimeError):
    """The endpoint gave no usable reply."""


class EndpointTimeoutError(EndpointError):
    """The endpoint gave no reply in time, at any attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """seconds: for one request. retries: further attempts. longest_wait: seconds before one of them, at most.

    concurrency: requests under way at once. per_minute: requests begun in a minute, retries too; 0 for any.
    """

    seconds: float
    retries: int
    longest_wait: float
    concurrency: int
    per_minute: float


class Endpoint:
    """``reply`` posts a chat and returns the text of its answer. Belongs to no event loop.

    url: up to ``/v1``. key_name: the environment variable with the key; empty for none.
    """

    def __init__(self, url: str, key_name: str, limits: Limits) -> None:
        self.place = checked_url(url) + "/chat/completions"
        self.key_name, self.limits = key_name, limits
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane]
        self._lanes = weakref.WeakKeyDictionary()

    async def reply(self, body: Mapping[str, Any]) -> str:
        """The text of the first choice. Raises EndpointError, EndpointTimeoutError, SettingError."""
        key = self.key()
        loop = asyncio.get_running_loop()
        lane = self._lanes.setdefault(loop, _Lane(self.limits))
        async with lane.slots, lane.client() as client:
            return await self._tried(lane, client, body, key)

    def key(self) -> str:
        """The key; empty where none is named. Raises SettingError when the variable holds none."""
        if not self.key_name:
            return ""
        key = os.environ.get(self.key_name, "").strip()
        if not key or not key.isascii() or not key.isprintable():
            raise SettingError(
                f"the judge's key is expected in the environment variable {self.key_name}, which holds none; "
                f"export it, or set api_key_env to the name of another"
            )
        return key

    async def _tried(self, lane: _Lane, client: httpx2.AsyncClient, body: Mapping[str, Any], key: str) -> str:
        why, late = "", False
        for attempt in range(self.limits.retries + 1):
            await lane.turn()
            status, text, asked_wait = await self._posted(client, body, key)
            if status == 200:
                return content_of(text)
            why, late = _without(key, text), status == 0
            if status and status not in RETRIED and status < 500:
                raise EndpointError(f"{self.place} answered with status {status}: {why}")
            wait = FIRST_WAIT * 2**attempt * random.uniform(0.75, 1.25)
            wait = min(wait, self.limits.longest_wait) if asked_wait is None else asked_wait
            if wait > self.limits.longest_wait:
                raise EndpointError(
                    f"{self.place} asks to wait {wait:g} s, more than longest_wait = "
                    f"{self.limits.longest_wait:g}: {why}"
                )
            if attempt < self.limits.retries:
                if status == 429:
                    lane.pause(wait)
                await asyncio.sleep(wait)
        told = f"{self.place} gave no reply in {self.limits.retries + 1} attempts; the last: {why}"
        raise (EndpointTimeoutError if late else EndpointError)(told)

    async def _posted(
        self, client: httpx2.AsyncClient, body: Mapping[str, Any], key: str
    ) -> tuple[int, str, float | None]:
        """(status, text, seconds the server asks to wait); status 0: out of time, 599: no connection."""
        import httpx2

        headers = {"Accept-Encoding": "identity"}  # a few bytes that unpack to gigabytes are not read
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with (
                asyncio.timeout(self.limits.seconds),
                client.stream("POST", self.place, json=dict(body), headers=headers) as response,
            ):
                text = b""
                async for piece in response.aiter_raw():
                    text += piece
                    if len(text) > LARGEST_REPLY:
                        raise EndpointError(f"{self.place} sent more than {LARGEST_REPLY} bytes")
                wait = retry_after(response.headers.get("retry-after"))
                status = response.status_code
                return status, text.decode(errors="replace"), wait
        except TimeoutError:
            return 0, f"nothing within {self.limits.seconds:g} s", None
        except httpx2.HTTPError as fault:
            return 599, f"{type(fault).__name__}: {fault}", None


@dataclass(slots=True)
class _Lane:
    """What the requests of one event loop share: places, the next free moment, a client while any runs."""

    limits: Limits
    slots: asyncio.Semaphore = field(init=False)
    free_at: float = 0.0
    users: int = 0
    shared: httpx2.AsyncClient | None = None

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.limits.concurrency)

    async def turn(self) -> None:
        """Wait for the moment at which the rate allows the next request."""
        now = time.monotonic()
        begin = max(now, self.free_at)
        if self.limits.per_minute:
            self.free_at = begin + 60.0 / self.limits.per_minute
        if begin > now:
            await asyncio.sleep(begin - now)

    def pause(self, seconds: float) -> None:
        """Nobody begins before these seconds are over."""
        self.free_at = max(self.free_at, time.monotonic() + seconds)

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """One client for all requests under way; closed when none is, so that no socket outlives the loop."""
        import httpx2

        if self.shared is None:
            self.shared = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
        client = self.shared
        self.users += 1
        try:
            yield client
        finally:
            self.users -= 1
            if not self.users:
                self.shared = None
                await client.aclose()


def checked_url(url: str) -> str:
    """The URL without a slash at its end. Raises SettingError for one that is none, or holds a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"the judge's url must be like http://127.0.0.1:8000/v1, got {url!r}")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise SettingError(
            "the judge's url must hold no user, password or query, since it is recorded; the key belongs in "
            "the environment variable that api_key_env names"
        )
    return url.rstrip("/")


def retry_after(value: str | None) -> float | None:
    """Seconds of a ``Retry-After`` header, which is a number or a date; None where it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


def content_of(text: str) -> str:
    """The answer in a completion. Raises EndpointError where there is none, or it was cut off."""
    try:
        choice = json.loads(text)["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, RecursionError, AttributeError):
        raise EndpointError(f"the endpoint's reply is no chat completion: {text[:200]!r}") from None
    if not isinstance(content, str):
        raise EndpointError(f"the endpoint's reply holds no text: {text[:200]!r}")
    if finish == "length":
        raise EndpointError("the judge's reply was cut off; raise max_tokens")
    return content


def _without(key: str, text: str) -> str:
    words = text.replace(key, "***") if key else text
    return " ".join(words.split())[:300]
