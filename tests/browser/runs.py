"""Run directories for the tests of the pages: the recorded one, copies of it, and ones written by hand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from trimtab.record.schema import COLUMNS, SCHEMA

RECORDED = Path(__file__).parents[1] / "fixtures" / "dashboard" / "recorded"
END = 256
"""Id of the end token in ``byte_tokenizer``; every other id is a byte."""

SHIFTED = "reward/outcome"
SHIFT = 0.125
"""What each further seed adds to ``SHIFTED``: exact in binary, so that means and bands are too."""


def runs_folder(root: Path) -> Path:
    """``recorded``, ``recorded-1`` and ``recorded-2`` (other seeds), ``other`` (another algorithm)."""
    shutil.copytree(RECORDED, root / "recorded")
    for seed in (1, 2):
        changed_copy(root / f"recorded-{seed}", {"run.seed": seed}, shift=SHIFT * seed)
    changed_copy(root / "other", {"algorithm.name": "sapo", "run.seed": 5}, shift=-SHIFT)
    return root


def changed_copy(folder: Path, settings: Mapping[str, Any], *, shift: float = 0.0) -> Path:
    """The recorded run without its rollouts, with other settings, ``SHIFTED`` moved by ``shift``."""
    shutil.copytree(RECORDED, folder, ignore=shutil.ignore_patterns("rollouts"))
    described = json.loads((folder / "run.json").read_text())
    described["name"] = folder.name
    for name, value in settings.items():
        section, _, key = name.partition(".")
        described["run"][section][key] = value
    if settings.get("algorithm.name"):
        described["run"]["algorithm"] = {"name": settings["algorithm.name"]}
    (folder / "run.json").write_text(json.dumps(described))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["metrics"][SHIFTED] += shift
    write_lines(folder / "metrics.jsonl", lines)
    return folder


def recorded_lines(name: str) -> list[dict[str, Any]]:
    """The objects of one of the recorded run's files, read without trimtab."""
    return [json.loads(line) for line in (RECORDED / name).read_text().splitlines()]


def recorded_metrics(key: str) -> dict[int, float]:
    """A metric of the recorded run by step."""
    lines = recorded_lines("metrics.jsonl")
    return {line["step"]: line["metrics"][key] for line in lines if key in line["metrics"]}


def written_run(
    folder: Path,
    *,
    metrics: Sequence[Mapping[str, float]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    rollouts: Mapping[int, Sequence[Mapping[str, Any]]] | None = None,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Any] | None = None,
    tokenizer: bool = True,
) -> Path:
    """A finished run by hand: a step for each of ``metrics``, rollouts made by ``rollout``."""
    folder.mkdir(parents=True)
    described = {
        "schema": 1,
        "name": folder.name,
        "created": 1767225600.0,
        "run": settings if settings is not None else {"run": {"name": folder.name, "steps": len(metrics)}},
        "seeds": {"run": 0},
        "versions": {"python": "3.11"},
        "commits": {},
        "hardware": {"cores": 2},
        "facts": facts or {},
    }
    (folder / "run.json").write_text(json.dumps(described))
    write_lines(
        folder / "metrics.jsonl",
        [{"step": s, "time": 1767225600.0 + s, "metrics": m} for s, m in enumerate(metrics)],
    )
    around = [{"event": "started", "process": 1}, *events, {"event": "finished"}]
    write_lines(folder / "events.jsonl", [{"time": 1767225600.0, "step": None, **event} for event in around])
    for step, rows in (rollouts or {}).items():
        write_rollouts(folder, step, rows)
    if tokenizer:
        byte_tokenizer(folder / "tokenizer")
    return folder


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def write_rollouts(folder: Path, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """rollouts/NNNNNN.parquet of rows that ``rollout`` made."""
    (folder / "rollouts").mkdir(exist_ok=True)
    arrays = [pa.array([{**row, "step": step}[c.name] for row in rows], type=c.type) for c in COLUMNS]
    pq.write_table(pa.table(arrays, schema=SCHEMA), folder / "rollouts" / f"{step:06d}.parquet")


def rollout(
    text: str,
    *,
    group: str = "p#0",
    index: int = 0,
    ratio: Callable[[int], float] = lambda place: 1.0,
    advantage: float = 1.0,
    **changes: Any,
) -> dict[str, Any]:
    """A trained rollout with a token for each byte of its text and the end token; gates are DAPO's."""
    ids = [*text.encode("utf-8", "replace"), END]
    size = len(ids)
    ratios = [ratio(place) for place in range(size)]
    cut = [(advantage > 0 and r > 1.28) or (advantage < 0 and r < 0.8) for r in ratios]
    lists = {
        "prompt_token_ids": list(b"ask"),
        "token_ids": ids,
        "mask": [True] * size,
        "sampler_logprobs": [-0.5] * size,
        "trained": [True] * size,
        "old_logprobs": [-0.5] * size,
        "ref_logprobs": None,
        "new_logprobs": [-0.25] * size,
        "ratios": ratios,
        "gates": [0.0 if gone else 1.0 for gone in cut],
        "advantages": [advantage] * size,
        "weights": [1.0 / size] * size,
        "entropies": [0.01 * (place % 50) for place in range(size)],
        "values": None,
        "returns": None,
    }
    row = {
        "group": group,
        "prompt_id": group.partition("#")[0],
        "draw": 0,
        "index": index,
        "task": "hand",
        "kept": True,
        "reason": "kept",
        "carried": False,
        "flag": None,
        "prompt": "ask",
        "answer": '"7"',
        "text": text,
        "finish": "stop",
        "length": size,
        "seed": index,
        "versions": [{"version": 0, "start": 0, "stop": size}],
        "grade": "right" if advantage > 0 else "wrong",
        "value": 1.0 if advantage > 0 else 0.0,
        "parts": [("answer", 1.0)],
        "detail": "",
        "reward": advantage,
        "shaping": 0.0,
        "update": 0,
        "trained_tokens": size,
        "advantage": advantage,
        "weight": 1.0,
    }
    return {**row, **lists, **changes}


def byte_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer whose ids are the bytes themselves, so that any character is several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte_of)
    core = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(alphabet)}, merges=[]))
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|end|>"])
    folder.mkdir()
    core.save(str(folder / "tokenizer.json"))


def _byte_of(character: str) -> int:
    """Byte-level alphabets show printable bytes as themselves and the rest, in order, from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    code = ord(character)
    return code if code < 256 else [byte for byte in range(256) if byte not in plain][code - 256]
