"""How fast the dashboard is on long and on many runs, as a browser sees it, and its server's memory.

    python benchmarks/dashboard.py                      all of it, in a temporary folder
    python benchmarks/dashboard.py --table docs/dashboard.md   and put the table between its marks

The runs are synthetic, with 100 metrics a step and random digits. Every time is the middle of ``--rounds``,
each with a server of its own, so that nothing is remembered; a page's time is from the request of the address
to the moment the thing named stands on the page.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.catalog import SECTIONS
from trimtab.record.schema import COLUMNS, SCHEMA

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KEYS = 100
MARKS = ("<!-- begin: benchmarks/dashboard.py -->", "<!-- end: benchmarks/dashboard.py -->")
FIRST_CURVE = "figure[data-key] canvas"
CHARS = "0123456789abcdefghijklmnopqrstuvwxyz+-*/=?#. "


def metric_keys(count: int) -> list[str]:
    """Keys of the catalogue, those of the overview first; families with a name of their own filled in."""
    first = ["reward/outcome", "reward/mean", "policy/entropy", "length/mean", "length/truncated"]
    first += ["clip/removed", "kl/old_k3", "groups/mixed"]
    every = [
        spec.key
        for section in SECTIONS
        for spec in section.specs
        if "<" not in spec.key and "{" not in spec.key
    ]
    return list(dict.fromkeys([*first, *(key for key in every if not key.startswith("evaluation/"))]))[:count]


def write_run(folder: Path, steps: int, *, rollouts: bool = False, tokens: int = 0, seed: int = 0) -> Path:
    """A finished run of so many steps; with rollouts, a file for each of some steps, or one long answer."""
    folder.mkdir(parents=True)
    settings = {
        "run": {"name": folder.name, "steps": steps, "seed": seed},
        "algorithm": {"name": "dapo"},
        "sampling": {"max_new_tokens": 16384, "samples_per_prompt": 8},
    }
    described = {"schema": 1, "name": folder.name, "created": 1.7e9, "run": settings, "seeds": {"run": seed}}
    (folder / "run.json").write_text(json.dumps(described))
    drawn = random.Random(seed)
    pool = [[repr(drawn.gauss(0.5, 0.2)) for _ in range(997)] for _ in range(KEYS)]
    names = [f'"{key}":' for key in metric_keys(KEYS)]
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for step in range(steps):
            values = ",".join(f"{name}{pool[i][(step + i) % 997]}" for i, name in enumerate(names))
            file.write(f'{{"step":{step},"time":{1.7e9 + step},"metrics":{{{values}}}}}\n')
    events = [
        {"event": "started", "process": 1},
        *({"event": "synced", "version": s} for s in range(0, steps, 10)),
    ]
    lines = [{"time": 1.7e9, "step": None, **event} for event in [*events, {"event": "finished"}]]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    if rollouts:
        for step in range(0, steps, max(1, steps // 20)):
            write_rollouts(folder, step, groups=32, length=64)
    if tokens:
        write_rollouts(folder, 0, groups=1, length=tokens)
        write_tokenizer(folder / "tokenizer")
    return folder


def write_rollouts(folder: Path, step: int, *, groups: int, length: int) -> None:
    """Groups of eight answers, all with tokens."""
    (folder / "rollouts").mkdir(exist_ok=True)
    rng = np.random.default_rng(step)
    rows: list[dict[str, Any]] = []
    for place in range(groups * 8):
        group, index = divmod(place, 8)
        ids = rng.integers(0, len(CHARS), length)
        ratios = np.exp(rng.normal(0, 0.15, length))
        flat = {"old_logprobs": -rng.random(length), "new_logprobs": -rng.random(length), "ratios": ratios}
        flat |= {"sampler_logprobs": -rng.random(length), "entropies": rng.random(length)}
        flat |= {"gates": (ratios < 1.28).astype(float), "advantages": np.full(length, 1.0 - 2 * (index % 2))}
        flat |= {"weights": np.full(length, 1.0 / length)}
        row: dict[str, Any] = {column.name: None for column in COLUMNS}
        row |= {"step": step, "group": f"p{group}#0", "prompt_id": f"p{group}", "draw": 0, "index": index}
        row |= {"task": "synthetic", "kept": True, "reason": "kept", "carried": False, "prompt": "p " * 50}
        row |= {"answer": '"7"', "text": "".join(CHARS[i] for i in ids), "finish": "stop", "length": length}
        row |= {
            "versions": [{"version": step, "start": 0, "stop": length}],
            "grade": "right",
            "value": 1.0,
            "parts": [],
            "detail": "",
            "reward": 1.0,
        }
        row |= {"shaping": 0.0, "update": step, "trained_tokens": length, "advantage": 1.0, "weight": 1.0}
        row |= {
            "prompt_token_ids": [1, 2],
            "token_ids": ids,
            "mask": [True] * length,
            "trained": [True] * length,
        }
        rows.append(row | flat)
    arrays = [pa.array([row[c.name] for row in rows], type=c.type) for c in COLUMNS]
    pq.write_table(pa.table(arrays, schema=SCHEMA), folder / "rollouts" / f"{step:06d}.parquet")


def write_tokenizer(folder: Path) -> None:
    """One token a character."""
    from tokenizers import Tokenizer, decoders, models

    core = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(CHARS)}, merges=[]))
    core.decoder = decoders.Fuse()
    folder.mkdir()
    core.save(str(folder / "tokenizer.json"))


class Server:
    """``trimtab watch`` as a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "trimtab", "watch", str(root), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = next(word for word in line.split() if word.startswith("http")).rstrip("/")

    def megabytes(self) -> float:
        """Memory of the process now."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def get(self, path: str) -> float:
        """Seconds of one answer."""
        began = time.perf_counter()
        with urllib.request.urlopen(self.address + path, timeout=120) as answer:
            answer.read()
        return time.perf_counter() - began


@contextmanager
def server(root: Path) -> Iterator[Server]:
    """A server that is warm in what every user has waited for already: its own start and the list of runs."""
    made = Server(root)
    try:
        made.get("/api/runs")
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def page_time(browser: Browser, address: str, route: str, ready: Callable[[Page], None]) -> float:
    """Seconds from asking for the address to ``ready``."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    began = time.perf_counter()
    page.goto(f"{address}/#/{route}")
    ready(page)
    spent = time.perf_counter() - began
    page.close()
    return spent


def middle(rounds: int, root: Path, measure: Callable[[Server], float]) -> float:
    """The median over fresh servers."""
    times = []
    for _ in range(rounds):
        with server(root) as fresh:
            times.append(measure(fresh))
    return statistics.median(times)


def measure(root: Path, rounds: int) -> dict[str, str]:
    """Everything that is in the table: what -> how much."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    curve = lambda page: page.wait_for_selector(FIRST_CURVE, timeout=120_000)  # noqa: E731
    table = lambda page: page.wait_for_selector("tbody tr:nth-child(50)", timeout=120_000)  # noqa: E731
    whole = lambda page: page.locator(".tokens .token").nth(7999).wait_for(timeout=120_000)  # noqa: E731
    begun = lambda page: page.locator(".tokens .token").first.wait_for(timeout=120_000)  # noqa: E731
    tokens = "run/answers/tokens?step=0&rollout=p0%230/0"
    found: dict[str, str] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        browser.new_page().goto("about:blank")

        def page(route: str, ready: Callable[[Page], Any]) -> str:
            return f"{middle(rounds, root, lambda one: page_time(browser, one.address, route, ready)):.2f} s"

        found["first curve, run of 10,000 steps, 100 metrics each"] = page("run/long/overview", curve)
        found["the same again, run open"] = f"{again(browser, root, 'run/long/overview', curve):.2f} s"
        found["first curve of the page with all metrics, same run"] = page("run/long/curves", curve)
        found["list of 50 runs"] = page("runs", table)
        found["first curve, run of 100,000 steps"] = page("run/longest/overview", curve)
        found["the same page again, run open"] = (
            f"{again(browser, root, 'run/longest/overview', curve):.2f} s"
        )
        found["8,000 tokens: first of them"] = page(tokens, begun)
        found["8,000 tokens: all of them, coloured"] = page(tokens, whole)
        browser.close()
    found |= memory(root)
    return found


def again(browser: Browser, root: Path, route: str, ready: Callable[[Page], Any]) -> float:
    """The page of a run that the server has open."""
    with server(root) as warm:
        page_time(browser, warm.address, route, ready)
        return page_time(browser, warm.address, route, ready)


def memory(root: Path) -> dict[str, str]:
    """Of the server: at first, with the longest run open, and after every run of the folder was opened."""
    with server(root) as one:
        at_first = one.megabytes()
        wanted = f"&keys={metric_keys(1)[0]}"
        one.get(f"/api/curves?run=longest{wanted}")
        longest = one.megabytes()
        others = sorted(path.name for path in root.iterdir() if path.name != "longest")
        for _ in range(2):
            for name in others:
                one.get(f"/api/curves?run={name}{wanted}")
        every = one.megabytes()
        waiting = one.get("/api/runs")
    return {
        "memory of the server at first": f"{at_first:.0f} MB",
        "with the run of 100,000 steps open": f"{longest:.0f} MB",
        "after opening all 53 runs twice": f"{every:.0f} MB",
        "list of runs, then": f"{waiting:.2f} s",
    }


def main() -> None:
    """Write the runs, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--table", type=Path, metavar="FILE", help="a page of docs with the marks")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        for seed in range(50):
            write_run(root / f"run-{seed:02}", 500, seed=seed)
        write_run(root / "long", 10_000, rollouts=True)
        write_run(root / "longest", 100_000)
        write_run(root / "answers", 3, tokens=8000)
        found = measure(root, args.rounds)
    lines = ["| what | measured |", "|---|---|", *(f"| {what} | {much} |" for what, much in found.items())]
    text = "\n".join(lines)
    print(text)
    if args.table:
        before, _, rest = args.table.read_text(encoding="utf-8").partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        args.table.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
