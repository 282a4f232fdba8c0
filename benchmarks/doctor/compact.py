"""A part of the runs in compact form, for the test that the doctor is right on them without training."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from benchmarks.doctor.plan import chosen
from benchmarks.doctor.runs import folder_of, made
from benchmarks.doctor.scene import ROOT

from trimtab.record.reader import RunReader

FIXTURES = ROOT / "tests" / "fixtures" / "doctor"
HEALTHY = ("grpo", "dapo", "gspo", "sapo", "ppo", "one-update", "low-entropy-start")
"""The healthy ones among them, with a tuning run of every fault that has one. A scored run stays unseen: a
test that fails on it would make people tune rules on it.
"""

PLAIN = ("run.json", "metrics.jsonl", "distributions.jsonl", "events.jsonl", "summary.json")
FIRST, LAST = 1, 1
"""Steps at both ends whose rollouts are kept."""
LATER = ("seconds/", "tokens_per_second/", "memory/")
"""Metrics of the machine that made the run; nothing is judged by them."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def write(root: Path, folder: Path = FIXTURES) -> list[Path]:
    """Write every picked run that is there as a zip file."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _zip(folder_of(scene, root), folder / f"{scene.name}.zip")
        for scene in chosen([], "tuning")
        if made(scene, root) is not None and (scene.cause is not None or scene.variant.name in HEALTHY)
    ]


def _zip(run: Path, path: Path) -> Path:
    reader = RunReader(run)
    steps = reader.rollout_steps()
    kept = sorted({*steps[:FIRST], *steps[len(steps) // 2 :][:1], *steps[-LAST:]})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def put(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED, 9)

        for name in PLAIN:
            if (run / name).exists():
                put(name, _lean(name, (run / name).read_text(encoding="utf-8")).encode())
        for step in kept:
            source = reader.folder.rollouts_of(step)
            put(f"rollouts/{source.name}", _squeezed(source))
        for file in sorted((run / "tokenizer").iterdir()):
            put(f"tokenizer/{file.name}", file.read_bytes())
    return path


def _lean(name: str, text: str) -> str:
    """Numbers to four significant digits, and without those of the machine."""
    if name == "run.json":
        found = json.loads(text)
        found.pop("commits", None)
        found["hardware"] = {
            key: found["hardware"][key] for key in ("system", "processor") if key in found["hardware"]
        }
        return json.dumps(found, indent=1)
    if not name.endswith(".jsonl"):
        return text
    return "".join(json.dumps(_shorter(json.loads(line))) + "\n" for line in text.splitlines())


def _shorter(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _shorter(v) for k, v in value.items() if not k.startswith(LATER)}
    if isinstance(value, list):
        return [_shorter(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) and abs(value) < 1e6 else value


def _squeezed(path: Path) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pq.read_table(path), sink, compression="zstd", compression_level=19)
    return sink.getvalue()
