"""Verdicts that are known already: in memory, and on request in a file that outlives the run."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections import OrderedDict
from typing import Any

from trimtab.errors import SettingError
from trimtab.rewards.judge.question import Verdict

_TABLE = (
    "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, value REAL NOT NULL, reason TEXT NOT NULL)"
)
_TRIM = """
DELETE FROM verdicts WHERE rowid <= (SELECT rowid FROM verdicts ORDER BY rowid DESC LIMIT 1 OFFSET ?)
"""


def key_of(**parts: Any) -> str:
    """SHA-256 of everything that a verdict depends on."""
    told = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(told.encode()).hexdigest()


class VerdictCache:
    """At most ``entries`` verdicts in memory, the least recently used ones leave first; 0 keeps none.

    file: an SQLite file with as many again, the oldest leave first; several runs may share it. It holds
    hashes, values and the judge's reasons, no questions, answers or keys.
    Raises SettingError when the file cannot be opened.
    """

    def __init__(self, entries: int, file: str | None = None) -> None:
        self.entries, self.file = entries, file
        self._known: OrderedDict[str, Verdict] = OrderedDict()
        self._lock = threading.Lock()
        self._opened: sqlite3.Connection | None = None

    def get(self, key: str) -> Verdict | None:
        with self._lock:
            found = self._known.get(key) or self._stored(key)
            if found is not None:
                self._keep(key, found)
            return found

    def put(self, key: str, verdict: Verdict) -> None:
        with self._lock:
            self._keep(key, verdict)
            if self.file is not None and self.entries:
                with self._database() as database:
                    database.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (key, *verdict))
                    database.execute(_TRIM, (self.entries,))

    def open(self) -> None:
        """Open the file now, so that a wrong path is told of before the run."""
        if self.file is not None:
            self._database()

    def _keep(self, key: str, verdict: Verdict) -> None:
        self._known[key] = verdict
        self._known.move_to_end(key)
        while len(self._known) > self.entries:
            self._known.popitem(last=False)

    def _stored(self, key: str) -> Verdict | None:
        if self.file is None:
            return None
        row = self._database().execute("SELECT value, reason FROM verdicts WHERE key = ?", (key,)).fetchone()
        return None if row is None else Verdict(float(row[0]), str(row[1]))

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                opened = sqlite3.connect(str(self.file), timeout=30.0, check_same_thread=False)
                opened.execute(_TABLE)
            except sqlite3.Error as fault:
                raise SettingError(f"the judge's cache_file {self.file!r} cannot be used: {fault}") from None
            self._opened = opened
        return self._opened
