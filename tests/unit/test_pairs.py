"""Pairs of preferred answers: the forms that are read, errors by row, and a file that grows while read."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from trimtab.errors import DataError
from trimtab.rewards.pairs import Pair, append_pair, read_pair, read_pairs

ASK = {"role": "user", "content": "3+4?"}


def says(text):
    return {"role": "assistant", "content": text}


def pair_of(row) -> Pair:
    return read_pair(json.dumps(row).encode(), "row 1")


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "3+4?", "chosen": "7", "rejected": "8"}, "3+4?"),
        ({"prompt": [ASK], "chosen": [says("7")], "rejected": [says("8")]}, (ASK,)),
        ({"prompt": [ASK], "chosen": "7", "rejected": "8"}, (ASK,)),
        ({"prompt": "3+4?", "chosen": [says("7")], "rejected": [says("8")]}, "3+4?"),
        ({"prompt": "3+4?", "chosen": [ASK, says("7")], "rejected": [ASK, says("8")]}, "3+4?"),
        ({"prompt": [ASK], "chosen": [ASK, says("7")], "rejected": [ASK, says("8")]}, (ASK,)),
        ({"chosen": [ASK, says("7")], "rejected": [ASK, says("8")]}, (ASK,)),
        (
            {"chosen": [ASK, says("no"), ASK, says("7")], "rejected": [ASK, says("no"), ASK, says("8")]},
            (ASK, says("no"), ASK),
        ),
    ],
    ids=[
        "text",
        "messages",
        "answers as text",
        "prompt as text",
        "whole 1",
        "whole 2",
        "implicit",
        "two turns",
    ],
)
def test_the_common_forms(row, prompt):
    pair = pair_of(row)
    assert (pair.prompt, pair.chosen, pair.rejected) == (prompt, "7", "8")


def test_a_dialogue_text_shares_its_prompt():
    head = "\n\nHuman: 3+4?\n\nAssistant: what?\n\nHuman: 3+4!\n\nAssistant:"
    pair = pair_of({"chosen": f"{head} 7 it is", "rejected": f"{head} 7 is not it"})
    assert (pair.prompt, pair.chosen, pair.rejected) == (head, " 7 it is", " 7 is not it")


def test_where_a_pair_comes_from_is_kept():
    told = {"run": "r", "step": 3, "chosen_rollout": "p#0/1", "rejected_rollout": "p#0/2"}
    pair = pair_of({"prompt": "a", "chosen": "b", "rejected": "c", **told, "margin": 2})
    assert {key: getattr(pair, key) for key in told} == told


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "not a JSON object"),
        ({"prompt": "a", "chosn": "b", "rejected": "c"}, "there is no 'chosen' (did you mean 'chosn'?)"),
        ({"prompt": "a", "chosen": "b"}, "there is no 'rejected'"),
        ({"prompt": "a", "chosen": 3, "rejected": "c"}, "chosen must be a text or a list of messages, got 3"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "prompt must be a text or a list of messages"),
        ({"prompt": "a", "chosen": [], "rejected": "c"}, "chosen must be a text or a list"),
        (
            {"prompt": "a", "chosen": [{"role": "assistant"}], "rejected": "c"},
            "message 1 needs role and content",
        ),
        ({"prompt": "a", "chosen": [ASK], "rejected": "c"}, "chosen must add one assistant message"),
        ({"prompt": [ASK], "chosen": [ASK], "rejected": "c"}, "but adds: nothing"),
        ({"chosen": "7", "rejected": "8"}, "give the prompt"),
        ({"chosen": [ASK, says("7")], "rejected": "8"}, "must both be"),
        ({"chosen": [says("7")], "rejected": [says("8")]}, "do not begin alike"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "step": "3"}, "step must be a number"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "run": 3}, "run must be text"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_row_is_named(row, words, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n\n' + json.dumps(row) + "\n")
    with pytest.raises(DataError, match="row 3") as fault:
        read_pairs(path)
    assert words in str(fault.value)


def test_a_torn_last_line_is_ignored_and_equal_answers_are_counted(tmp_path):
    path = tmp_path / "pairs.jsonl"
    whole = '{"prompt": "a", "chosen": "b", "rejected": "c"}'
    equal = whole.replace('"c"', '"b"')
    path.write_text(f"{whole}\n{equal}\n{whole[:20]}")
    found = read_pairs(path)
    assert (len(found.pairs), found.identical, found.torn) == (1, 1, 20)
    path.write_text(f"{whole}\n{whole}")
    assert len(read_pairs(path).pairs) == 2, "whole, only without its newline"
    path.write_text(f"{whole[:20]}\n{whole}\n")
    with pytest.raises(DataError, match="row 1: not a JSON object"):
        read_pairs(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_pairs(tmp_path / "none.jsonl")


@pytest.mark.parametrize("tail", ["", '{"prompt": "torn', '{"prompt": "x", "chosen": "y", "rejected": "z"}'])
def test_appending_mends_the_end_of_the_file(tail, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' + tail)
    pair = Pair(prompt=(ASK,), chosen="7 \u2028 é", rejected="8\n9", run="r", step=0, chosen_rollout="p#0/1")
    append_pair(path, pair)
    found = read_pairs(path)
    assert found.torn == 0
    assert found.pairs[-1] == pair
    assert len(found.pairs) == (3 if tail.endswith("}") else 2)


def add_many(path: Path, writer: int) -> None:
    for number in range(40):
        append_pair(path, Pair(prompt=f"{writer}/{number}", chosen="x" * 3000, rejected="y"))


def test_several_processes_append_while_it_is_read(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.touch()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_many, args=(path, k)) for k in range(2)]
    threads = [threading.Thread(target=add_many, args=(path, k)) for k in (2, 3)]
    for writer in (*writers, *threads):
        writer.start()
    seen = [0]
    while any(writer.is_alive() for writer in (*writers, *threads)):
        seen.append(len(read_pairs(path).pairs))
    for writer in (*writers, *threads):
        writer.join()
    assert seen == sorted(seen), "a reader never sees fewer pairs than before, nor half a one"
    prompts = [pair.prompt for pair in read_pairs(path).pairs]
    assert sorted(prompts) == sorted(f"{k}/{n}" for k in range(4) for n in range(40))
