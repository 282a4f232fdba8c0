"""Runs of TRL: trainer_state.json, and the completions that GRPOTrainer writes with log_completions.

    OUTPUT/trainer_state.json                      or OUTPUT/checkpoint-30/trainer_state.json, the last one
    OUTPUT/completions/completions_00001.parquet   one a log call, numbered by the optimizer step

Where a generation serves several optimizer steps, TRL writes its completions again after each of them.
training_args.bin is a pickle and is never opened.
Source: TRL 1.16, trl/trainer/grpo_trainer.py, transformers/trainer_callback.py.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import DataError
from trimtab.record.importers.numbers import numbers_of
from trimtab.record.importers.source import Answer, Entry, Source

STATE = "trainer_state.json"
NOT_REWARDS = frozenset({"step", "prompt", "completion", "advantage"})
NOT_METRICS = frozenset({"step", "epoch", "total_flos"})


def recognises(path: Path) -> bool:
    """Whether there is anything of TRL's here."""
    return _state_of(path) is not None or bool(_completions(path))


def read(path: Path) -> Source:
    """Raises DataError where there is neither a trainer_state.json nor completions."""
    state, complaints = _state_of(path), list[str]()
    files = _completions(path)
    if state is None and not files:
        raise DataError(f"{path} holds neither {STATE} nor completions/completions_*.parquet")
    log, rest = ([], {}) if state is None else _log(state, complaints)
    entries = [_entry(fields) for fields in log if isinstance(fields.get("step"), int)]
    entries = [entry for entry in entries if entry.values and not _is_summary(entry)]
    done, planned = rest.get("global_step"), rest.get("max_steps")
    places = [*([] if state is None else [state]), *files]
    return Source(
        kind="trl",
        framework="trl",
        entries=tuple(sorted(entries, key=lambda entry: entry.at)),
        answers={_number(file): file for file in files},
        read=_answers,
        end=f"optimizer step {done} of {planned}" if done is not None and planned else "",
        complaints=tuple(complaints),
        files=tuple(str(file.relative_to(path) if path.is_dir() else file.name) for file in places),
        modified=max(file.stat().st_mtime for file in places),
    )


def _state_of(path: Path) -> Path | None:
    if path.is_file():
        return path if path.name == STATE else None
    saved = sorted(path.glob(f"checkpoint-*/{STATE}"), key=lambda file: _number(file.parent))
    found = [path / STATE, *reversed(saved)]
    return next((file for file in found if file.is_file()), None)


def _completions(path: Path) -> list[Path]:
    folder = path if path.is_dir() else path.parent
    files = [*folder.glob("completions/completions_*.parquet"), *folder.glob("completions_*.parquet")]
    return sorted((file for file in files if file.stem[-1].isdigit()), key=_number)


def _number(path: Path) -> int:
    found = re.search(r"(\d+)$", path.stem if path.suffix == ".parquet" else path.name)
    return int(found[1]) if found else -1


def _log(state: Path, complaints: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """log_history and the rest. Of a file that was cut off, the log's whole entries."""
    text = state.read_text(encoding="utf-8", errors="replace")
    try:
        found = json.loads(text)
    except ValueError:
        entries = _whole_entries(text)
        if not entries:
            raise DataError(f"{state} is no valid JSON and holds no whole log entry") from None
        complaints.append(
            f"{state.name} is cut off; the {len(entries)} whole entries of its log are imported"
        )
        return entries, {}
    if not isinstance(found, dict) or not isinstance(found.get("log_history"), list):
        raise DataError(f"{state} has no log_history; it was not written by a trainer")
    log = [fields for fields in found["log_history"] if isinstance(fields, dict)]
    return log, found


def _whole_entries(text: str) -> list[dict[str, Any]]:
    decoder, entries = json.JSONDecoder(), list[dict[str, Any]]()
    start = text.find("[", text.find('"log_history"'))
    while start >= 0 and '"log_history"' in text:
        opening = text.find("{", start)
        if opening < 0:
            break
        try:
            fields, start = decoder.raw_decode(text, opening)
        except ValueError:
            break
        entries.append(fields)
    return entries


def _entry(fields: Mapping[str, Any]) -> Entry:
    return Entry(at=fields["step"], values=numbers_of(fields, leave_out=NOT_METRICS))


def _is_summary(entry: Entry) -> bool:
    """The last line of a log: the whole training in one, with its runtime."""
    return "train_runtime" in entry.values


def _answers(file: Path, complaints: list[str]) -> tuple[Answer, ...]:
    import pyarrow.parquet as pq

    try:
        return tuple(_answer(row) for row in pq.read_table(file).to_pylist())
    except (OSError, ValueError, KeyError) as problem:
        complaints.append(f"{file.name} cannot be read ({_short(problem)}); its answers are left out")
        return ()


def _answer(row: Mapping[str, Any]) -> Answer:
    rewards = numbers_of(row, leave_out=NOT_REWARDS)
    return Answer(
        prompt=_text(row["prompt"]),
        text=_text(row["completion"]),
        reward=sum(rewards.values()) if rewards else None,
        rewards=rewards,
        advantage=row.get("advantage"),
    )


def _text(value: Any) -> str:
    """A text, or the last message of a conversation."""
    if isinstance(value, list):
        parts = [str(turn.get("content", "")) for turn in value if isinstance(turn, Mapping)]
        return "\n".join(parts)
    return str(value)


def _short(problem: Exception) -> str:
    return str(problem).splitlines()[0][:120] if str(problem) else type(problem).__name__
