"""The local engine in a process of its own: its weights come by broadcast."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from trimtab.distributed.meeting import Meeting
from trimtab.distributed.transfer import Described, Receiver
from trimtab.errors import RunError
from trimtab.rollout.local import LocalEngine


class LinkedLocalEngine(LocalEngine):
    """A ``LocalEngine`` with the two methods of a ``LinkedEngine``."""

    receiver: Receiver | None = None

    async def open_link(self, meeting: Meeting, rank: int) -> None:
        """Come to the meeting as receiver ``rank``; an older link is closed."""
        if self.receiver is not None:
            self.receiver.close()
        self.receiver = await asyncio.to_thread(Receiver, meeting, rank)

    async def receive_weights(self, described: Sequence[Described], version: int) -> None:
        """Take one push. The weights change between two tokens, all at once, when every one has come."""
        if self.receiver is None:
            raise RunError("weights were announced to an engine that has no link; open_link comes first")
        receiver = self.receiver
        came = await asyncio.to_thread(lambda: list(receiver.receive(described)))
        await self.load_weights(came, version)
