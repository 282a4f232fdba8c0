"""Write prompts of a reasoning-gym dataset as rows that ``[data] files`` reads.

    pip install reasoning-gym
    python scripts/make_reasoning_gym.py basic_arithmetic build/gym-sums \\
        min_terms=3 max_terms=4 max_digits=1 'operators=["+", "-"]' allow_parentheses=false

writes ``train.jsonl`` and ``held_out.jsonl``: a row ``{"id", "prompt", "answer", "task"}`` a line, the
question as reasoning-gym words it. ``key=value`` are the dataset's own settings, values as in JSON.
With ``--demonstrations N`` it also writes ``demonstrations.jsonl``, rows ``{"prompt", "response"}`` to
imitate (sums of plus and minus only). Some are worked out term by term, a ``--direct`` share of them only
states the result, as people do: reinforcement learning can then find out which way pays.

Two traps of reasoning-gym are avoided here. Question i of a dataset comes from ``seed + i``, so that
two datasets with seeds 1 and 2 share all questions but one: here a hash of the question's text alone
decides whether it is held out. And its own scorer gives wrong answers a little credit (0.07 for "The
answer is 7"), which makes groups of wrong answers look mixed to dynamic sampling: the rows are made for
an exact grader instead. So only datasets with one right answer a question belong here.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.data.tasks.task import question_id, split_of
from trimtab.errors import DataError, SettingError, TrimtabError, nearest

DRAWN_A_ROW = 20
"""Entries drawn for each row asked for, repeats and the other split included, before giving up."""


def main() -> int:
    """Write the files; 1 and one sentence where that cannot be done."""
    parser = argparse.ArgumentParser(description="Write prompts of a reasoning-gym dataset as JSON lines.")
    parser.add_argument("dataset", help="for example basic_arithmetic")
    parser.add_argument("folder", type=Path)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="of the dataset, values as in JSON")
    parser.add_argument("--train", type=int, default=2048, help="training rows; %(default)s")
    parser.add_argument("--held-out", type=int, default=256, help="held-out rows; %(default)s")
    parser.add_argument("--demonstrations", type=int, default=0, help="training rows to answer as well")
    parser.add_argument(
        "--direct", type=float, default=0.0, help="share answered without working; %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="%(default)s")
    args = parser.parse_args()
    try:
        counts = {"train": args.train, "held_out": args.held_out}
        entries = draw(args.dataset, parsed(args.settings), args.seed, counts)
        rows = split(args.dataset, entries, counts)
        for name, chosen in rows.items():
            write(args.folder / f"{name}.jsonl", chosen)
        if args.demonstrations:
            shown = demonstrations(rows["train"], args.demonstrations, args.direct)
            write(args.folder / "demonstrations.jsonl", shown)
    except TrimtabError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def parsed(settings: Sequence[str]) -> dict[str, Any]:
    """``key=value`` pairs; a value is JSON, or else text. Raises SettingError where there is no ``=``."""
    pairs: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise SettingError(f"settings of the dataset are written key=value, got {setting!r}")
        try:
            pairs[key] = json.loads(value)
        except ValueError:
            pairs[key] = value
    return pairs


def draw(
    dataset: str, settings: Mapping[str, Any], seed: int, counts: Mapping[str, int]
) -> Iterator[Mapping[str, Any]]:
    """Entries of the dataset, more than enough. Raises SettingError for what reasoning-gym does not know."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise SettingError("reasoning-gym is not installed; pip install reasoning-gym") from None
    if dataset not in DATASETS:
        raise SettingError(f"reasoning-gym has no dataset {dataset!r}{nearest(dataset, DATASETS)}")
    size = sum(counts.values()) * DRAWN_A_ROW
    try:
        made = reasoning_gym.create_dataset(dataset, seed=seed, size=size, **settings)
    except (TypeError, AssertionError) as problem:
        raise SettingError(f"dataset {dataset!r} refuses these settings: {problem}") from None
    for entry in made:
        if made.score_answer(entry["answer"], entry) != 1.0:
            raise DataError(f"{dataset!r} does not grade its own answer {entry['answer']!r} as right")
        yield entry


def split(
    dataset: str, entries: Iterable[Mapping[str, Any]], counts: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """The first different questions of each split, ``counts`` of them; the text decides the split.

    Raises DataError when the entries run out, or one has no single answer in a line.
    """
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in counts}
    seen: set[str] = set()
    for entry in entries:
        question, answer = entry["question"], entry["answer"]
        if not (isinstance(answer, str) and answer.strip()) or "\n" in answer:
            raise DataError(f"{dataset!r} has answers such as {answer!r}; one line of text can be matched")
        wanted = split_of(question)
        if question not in seen and len(rows[wanted]) < counts[wanted]:
            rows[wanted].append(
                {"id": question_id(dataset, question), "prompt": question, "answer": answer, "task": dataset}
            )
        seen.add(question)
        if all(len(rows[name]) == count for name, count in counts.items()):
            return rows
    found = ", ".join(f"{len(chosen)} {name}" for name, chosen in rows.items())
    raise DataError(
        f"{dataset!r} has too few different questions with these settings: {found}; ask for fewer"
    )


def demonstrations(rows: Sequence[Mapping[str, Any]], count: int, direct: float) -> list[dict[str, str]]:
    """The first ``count`` rows with a response to imitate, evenly mixed: a share ``direct`` without working.

    Raises SettingError for an impossible share, DataError when there are fewer rows.
    """
    if not 0.0 <= direct <= 1.0:
        raise SettingError(f"the share of direct answers must be in [0, 1], got {direct}")
    if count > len(rows):
        raise DataError(f"{count} demonstrations were asked for and there are {len(rows)} training rows")
    shown: list[dict[str, str]] = []
    for i, row in enumerate(rows[:count]):
        response = work_out(row["prompt"], row["answer"])
        if int((i + 1) * direct) > int(i * direct):
            response = response.splitlines()[-1]
        shown.append({"prompt": row["prompt"], "response": response})
    return shown


def work_out(question: str, answer: str) -> str:
    """A sum term by term, as a child writes it, then ``Answer: `` and the result.

    Raises DataError when the question is not one sum of plus and minus that gives this answer.
    """
    expression = question.removeprefix("Calculate ").removesuffix(".")
    first, *rest = expression.split(" ")
    signs, terms = rest[::2], rest[1::2]
    numbers = [first, *terms]
    if (
        len(signs) != len(terms)
        or not terms
        or set(signs) - {"+", "-"}
        or not all(n.isdecimal() for n in numbers)
    ):
        raise DataError(f"only sums of plus and minus can be worked out, not {question!r}")
    total, lines = int(first), []
    for sign, term in zip(signs, terms, strict=True):
        before, total = total, total + int(term) * (1 if sign == "+" else -1)
        lines.append(f"{before} {sign} {term} = {total}")
    if str(total) != answer:
        raise DataError(f"{question!r} gives {total}, the row says {answer!r}")
    return "\n".join([*lines, f"Answer: {total}"])


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One JSON object a line; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(rows)} rows, first {lines[0].strip() if lines else 'none'}")


if __name__ == "__main__":
    raise SystemExit(main())
