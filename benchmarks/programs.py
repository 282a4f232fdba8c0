"""The recipe `programs` over several seeds: before, after, what was run, and how long grading took.

    python benchmarks/programs.py                                   prints the tables
    python benchmarks/programs.py --write docs/code_rewards.md      puts them into the page, between its marks

Finished runs are not run again. Leave the machine alone meanwhile: the seconds are part of the table.
The examples are of the first seed: for the first held-out question of each form in which the demonstrator can
forget something, the program that the start model, and the trained one, write most often in 32 answers.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trimtab.config import Run, resolve
from trimtab.data.prompts import DataConfig, load_prompts
from trimtab.data.tasks import Question
from trimtab.data.tasks.programs import Habits, asked_in, demonstrate, solution
from trimtab.models import load_model
from trimtab.record.reader import RunReader
from trimtab.record.rows import RolloutRow
from trimtab.rewards.blocks import last_program
from trimtab.rewards.build import build_rubric
from trimtab.rewards.sandbox import Place, Tier, open_place, probe, run_program
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.types import Draw, Finish, GradeState, Prompt

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
RESULTS = ("start pass@1", "final pass@1", "start pass@8", "final pass@8")
COSTS = ("steps", "RL seconds", "of it grading", "all in all", "answers", "different programs")
STATES = tuple(GradeState)
ANSWERS = 32
CALLS = 100


def trained(seed: int, out: Path) -> Path:
    """The folder of this seed's run, which is trained if it is not there yet."""
    folder = out / f"seed-{seed}"
    if not (folder / "summary.json").exists():
        command = [sys.executable, "-m", "trimtab", "train", "programs", f"run.seed={seed}"]
        subprocess.run([*command, "--out", str(folder), "--resume", "--plain"], check=True)
    return folder


def result_row(seed: int, summary: Mapping[str, Any]) -> str:
    """Each pass@k with its 95% interval."""
    cells = [
        f"{found[k]:.3f} [{found[f'{k}_interval'][0]:.3f}, {found[f'{k}_interval'][1]:.3f}]"
        for k in ("pass@1", "pass@8")
        for found in (summary["evaluation"]["start"], summary["evaluation"]["final"])
    ]
    return line(seed, *cells)


def cost_row(seed: int, summary: Mapping[str, Any], reader: RunReader) -> str:
    """Seconds, and the answers of training with the programs in them; equal ones run once."""
    seconds = summary["seconds"]
    share = seconds["stages"]["grade"] / seconds["train"]
    answers, programs = 0, set[tuple[str, str]]()
    for row in rows_of(reader):
        answers += 1
        program, _ = last_program(row.text)
        if program is not None and row.finish is Finish.STOP:
            programs.add((row.prompt_id, program))
    times = (f"{seconds['train']:.0f}", f"{share:.0%}", f"{seconds['total']:.0f}")
    return line(seed, summary["steps"], *times, answers, len(programs))


def state_row(seed: int, reader: RunReader) -> str:
    """How the answers of training were graded."""
    counts = Counter(row.grade for row in rows_of(reader))
    return line(seed, *(counts[state] for state in STATES))


def rows_of(reader: RunReader) -> Iterator[RolloutRow]:
    """Every recorded answer of training."""
    for step in reader.rollout_steps():
        yield from reader.rollouts(step)


def line(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def head(*names: str) -> list[str]:
    """The first two lines of a table."""
    return [line(*names), "|" + "---|" * len(names)]


def speed_rows() -> Iterator[str]:
    """Programs a second, one and two at a time, in each tier of this machine."""
    program = solution("read a b, print a plus 3, times b\n").split("\n", 1)[1].removesuffix("```")

    def once(place: Place) -> None:
        if not run_program(place, program, b"4 5\n").clean:
            raise RuntimeError("the program of the benchmark failed")

    for tier in (Tier.BUBBLEWRAP, Tier.LANDLOCK):
        if not probe(tier).usable:
            continue
        place, rates = open_place(tier=tier), []
        for workers in (1, 2):
            begun = time.perf_counter()
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(once, [place] * CALLS))
            rates.append(f"{CALLS / (time.perf_counter() - begun):.0f}")
        yield line(tier, *rates)


async def commonest(path: str, prompts: Sequence[Prompt], run: Run) -> list[tuple[str, int, int]]:
    """For each prompt the answer written most often, how often, and how many of all answers are right."""
    engine, rubric = LocalEngine(load_model(path)), build_rubric(run.reward)
    sampling = Sampling(max_new_tokens=run.sampling.max_new_tokens)
    found: dict[str, tuple[str, int, int]] = {}
    async for group in engine.generate([Draw(p, 0) for p in prompts], ANSWERS, sampling, seed=0):
        scored = await rubric.grade(group)
        [(text, times)] = Counter(rollout.text for rollout in group.rollouts).most_common(1)
        found[group.prompt.id] = text, times, sum(grade.value == 1.0 for grade in scored.grades)
    return [found[prompt.id] for prompt in prompts]


def forgettable(prompt: str) -> bool:
    """Whether the demonstrator can forget parentheses, the end of a range or an equal sign here."""
    forgetful = demonstrate(Question(prompt, ""), random.Random(0), Habits(1, 1, 1, 0, 0, 0, 0))
    return forgetful.response != solution(prompt)


def examples(folder: Path) -> Iterator[str]:
    """The commonest programs of the start model and of the trained one, one question of each form."""
    run = resolve("programs")
    source = DataConfig(task="programs", train_prompts=1, held_out=run.data.held_out)
    held_out = load_prompts(source, load_model(run.model.path), run.sampling.max_new_tokens).held_out
    first = {type(asked_in(prompt.text)): prompt for prompt in reversed(held_out) if forgettable(prompt.text)}
    prompts = sorted(first.values(), key=lambda prompt: prompt.text)
    last = RunReader(folder).folder.checkpoint_steps()[-1]
    paths = (run.model.path, str(RunReader(folder).folder.checkpoint_of(last) / "model"))
    before, after = (asyncio.run(commonest(path, prompts, run)) for path in paths)
    for prompt, *both in zip(prompts, before, after, strict=True):
        yield f"`{prompt.text.strip()}`"
        for label, (text, times, right) in zip(("before", "after"), both, strict=True):
            yield f"\n{label}: written {times} times in {ANSWERS} answers, of which {right} pass\n"
            yield f"````text\n{text}\n````"
        yield ""


def report(out: Path, seeds: int) -> str:
    """All tables and the examples."""
    folders = [trained(seed, out) for seed in range(seeds)]
    summaries = [json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in folders]
    readers = [RunReader(folder) for folder in folders]
    machine = readers[0].run["hardware"]
    lines = [
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores, "
        f"{machine['threads']} thread(s) for the model, Python {platform.python_version()}.",
        "",
    ]
    lines += head("seed", *RESULTS)
    lines += [result_row(seed, summary) for seed, summary in enumerate(summaries)]
    lines += ["", *head("seed", *COSTS)]
    lines += [cost_row(k, *pair) for k, pair in enumerate(zip(summaries, readers, strict=True))]
    lines += ["", "How the answers of training were graded:", "", *head("seed", *STATES)]
    lines += [state_row(seed, reader) for seed, reader in enumerate(readers)]
    load = f"load average {os.getloadavg()[0]:.1f} at the start"
    lines += ["", f"Programs a second on one input each, start of the sandbox included ({load}):", ""]
    lines += [*head("tier", "one at a time", "two at a time"), *speed_rows()]
    lines += ["", "### Three programs, before and after", "", *examples(folders[0])]
    return "\n".join(lines).strip()


def main() -> None:
    """Train what is missing, print the report, and write it where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/programs-seeds"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="a file with the two marks")
    args = parser.parse_args()
    text = report(args.out, args.seeds)
    print(text)
    if args.write:
        before, rest = args.write.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        args.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
