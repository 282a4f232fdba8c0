"""docs/record.md is true: its tables are the code's, its examples have the form of what is written."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.scenes import everything
from trimtab.catalog import DISTRIBUTIONS, find
from trimtab.metrics import Histogram, Mean
from trimtab.record import events, schema
from trimtab.record.events import FIELDS, Event
from trimtab.record.layout import SCHEMA_VERSION
from trimtab.record.summary import Summary
from trimtab.record.writer import RunRecord

PAGE = (Path(__file__).parents[2] / "docs" / "record.md").read_text(encoding="utf-8")


def example(heading: str) -> dict:
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.search(r"```json\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("docs") / "quickstart"
    with RunRecord.create(path, run={}, seeds={"run": 0}) as record:
        record.step(12, everything() | {"kl/reference_k3": Mean.of(float("nan"))})
    return path


def first(run: Path, name: str) -> dict:
    return json.loads((run / name).read_text(encoding="utf-8").splitlines()[0])


def test_the_tables_are_the_codes():
    assert schema.as_markdown() in PAGE
    assert events.as_markdown() in PAGE
    assert FIELDS.keys() == set(Event)
    assert f"schema {SCHEMA_VERSION}" in PAGE


def test_the_example_of_run_json(run):
    shown, written = example("run.json"), json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert shown.keys() == written.keys()
    assert shown["schema"] == written["schema"]
    assert shown["hardware"].keys() <= written["hardware"].keys()
    assert shown["versions"].keys() <= {"python", *written["versions"], "trimtab"}
    for commit in written["commits"].values():
        assert commit.keys() == shown["commits"]["trimtab"].keys()


def test_the_example_of_metrics(run):
    shown, written = example("metrics.jsonl"), first(run, "metrics.jsonl")
    assert shown.keys() == written.keys()
    for key in (*shown["metrics"], *shown["missing"]):
        find(key)


def test_the_example_of_distributions(run):
    shown, written = example("distributions.jsonl"), first(run, "distributions.jsonl")
    assert shown.keys() == written.keys()
    for key, fields in shown["distributions"].items():
        assert key in DISTRIBUTIONS
        assert fields.keys() == written["distributions"][key].keys()
        assert Histogram.from_json(fields).to_json() == fields


def test_the_example_of_events(run):
    shown, written = example("events.jsonl"), first(run, "events.jsonl")
    assert {"time", "step", "event"} <= shown.keys() & written.keys()
    assert all(f"`{name}`" in FIELDS[Event(shown["event"])] for name in shown.keys() - written.keys())


def test_the_example_of_summary():
    shown = example("summary.json")
    seconds = shown["seconds"]
    summary = Summary(
        algorithm=shown["algorithm"],
        start=shown["evaluation"]["start"],
        final=shown["evaluation"]["final"],
        steps=shown["steps"],
        tokens=shown["tokens"],
        train_seconds=seconds["train"],
        evaluation_seconds=seconds["evaluation"],
        total_seconds=seconds["total"],
        stages=seconds["stages"],
        peak_memory_bytes=shown["peak_memory_bytes"],
    )
    assert summary.to_json() == shown
