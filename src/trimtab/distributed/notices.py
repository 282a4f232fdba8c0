"""What is told of the workers: into the run's record and to whoever watches, once both are there."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from typing import Any, Protocol

from trimtab.record.events import Event


class Recording(Protocol):
    """The run's record, as far as it is needed here."""

    def event(self, event: Event | str, step: int | None = None, **fields: Any) -> None: ...


class Watching(Protocol):
    """The view of the run."""

    def message(self, text: str) -> None: ...


class Notices:
    """Keeps what happens before ``attach`` and after ``detach``; calls may come from several threads."""

    def __init__(self) -> None:
        self._record: Recording | None = None
        self._view: Watching | None = None
        self._kept: list[tuple[Event, str, dict[str, Any]]] = []
        self._mutex = threading.Lock()

    def attach(self, record: Recording, view: Watching) -> None:
        with self._mutex:
            self._record, self._view = record, view
            kept, self._kept = self._kept, []
        for event, sentence, fields in kept:
            self.tell(event, sentence, **fields)

    def detach(self) -> None:
        """Before the record is closed."""
        with self._mutex:
            self._record = self._view = None

    def tell(self, event: Event, sentence: str, **fields: Any) -> None:
        """The sentence for people, the fields for the record."""
        with self._mutex:
            record, view = self._record, self._view
            if record is None or view is None:
                self._kept.append((event, sentence, fields))
                return
        record.event(event, **fields)
        view.message(sentence)
