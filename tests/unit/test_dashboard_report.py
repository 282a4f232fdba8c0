"""The report is one file that needs nothing else, and nothing in a run can break out of it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.cli import main
from trimtab.dashboard.bundle import bundle
from trimtab.dashboard.report import MOST_TEXT, report

RECORDED = Path(__file__).parents[1] / "fixtures" / "dashboard" / "recorded"
EVIL = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)>"


class Parts(HTMLParser):
    """Scripts, styles and everything that could ask for another file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[str | None, str]] = []
        self.styles: list[str] = []
        self.policy = ""
        self.addresses: list[str] = []
        self._open: str | None = None
        self._kind: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._open, self._kind = tag, found.get("type")
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found.get("content") or ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts.append((self._kind, data))
        elif self._open == "style":
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = None


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a run whose name, answers and prompts try to end the script that holds them."""
    folder = tmp_path_factory.mktemp("report") / "evil"
    shutil.copytree(RECORDED, folder)
    stored = json.loads((folder / "run.json").read_text())
    stored["name"] = EVIL
    (folder / "run.json").write_text(json.dumps(stored))
    for path in (folder / "rollouts").iterdir():
        table = pq.read_table(path)
        for column in ("text", "prompt"):
            place = table.column_names.index(column)
            values = pa.array([EVIL + "\u2028" + str(value) for value in table.column(column).to_pylist()])
            table = table.set_column(place, table.field(place), values)
        pq.write_table(table, path)
    return report(folder)


def test_nothing_outside_the_file_is_named(text: str):
    parts = Parts(text)
    assert [one for one in parts.addresses if not one.startswith(("data:", "#"))] == []
    assert "import " not in re.sub(r"(?m)^\s*(//|\*|/\*).*$", "", parts.scripts[1][1])[:200]
    assert "url(" not in "".join(parts.styles)
    assert "@import" not in "".join(parts.styles)


def test_the_policy_lets_in_the_own_script_and_style_by_their_hashes(text: str):
    parts = Parts(text)
    (kind, held), (module, script) = parts.scripts
    assert (kind, module) == ("application/json", "module")
    for one in (script, *parts.styles):
        digest = base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in parts.policy
    assert "default-src 'none'" in parts.policy
    assert "unsafe" not in parts.policy
    assert "connect-src" not in parts.policy
    values = json.loads(held)
    assert values["run"]["name"] == EVIL
    assert values["rollouts"]["7"]["groups"][0]["rollouts"][0]["text"].startswith(EVIL)


def test_nothing_of_the_run_becomes_markup(text: str):
    parts = Parts(text)
    assert len(parts.scripts) == 2
    assert "<img" not in text
    assert "alert(1)</script>" not in text


def test_all_views_are_inside(text: str):
    values = json.loads(Parts(text).scripts[0][1])
    assert set(values) == {
        "runs",
        "algorithms",
        "run",
        "catalogue",
        "prompts",
        "findings",
        "events",
        "curves",
        "heat",
        "rollouts",
        "tokens",
    }
    assert set(values["curves"]["curves"]) >= set(values["run"]["keys"])
    assert set(values["heat"]) == set(values["run"]["distributions"])
    shown = [
        f"{exhibit['step']}|{exhibit['rollout']}"
        for finding in values["findings"]["findings"]
        if finding["outcome"] == "found"
        for exhibit in finding["exhibits"]
    ]
    there = {
        f"{step}|{row['key']}"
        for step, listed in values["rollouts"].items()
        for group in listed["groups"]
        for row in group["rollouts"]
    }
    assert set(shown) <= there
    assert any(key.endswith("|sapo") for key in values["tokens"])


def test_rows_that_promise_tokens_have_them(text: str):
    values = json.loads(Parts(text).scripts[0][1])
    for step, listed in values["rollouts"].items():
        for group in listed["groups"]:
            for row in group["rollouts"]:
                assert row["has_tokens"] == (f"{step}|{row['key']}|" in values["tokens"])


def test_long_answers_leave_groups_out_and_it_is_said(tmp_path: Path):
    folder = tmp_path / "long"
    shutil.copytree(RECORDED, folder)
    path = folder / "rollouts" / "000007.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("text")
    rows = pa.array(["x" * 20_000] * table.num_rows)
    pq.write_table(table.set_column(place, table.field(place), rows), path)
    found = json.loads(Parts(report(folder)).scripts[0][1])["rollouts"]["7"]
    kept = sum(len(row["text"]) for group in found["groups"] for row in group["rollouts"])
    assert found["left_out"] > 0
    assert kept <= MOST_TEXT


def test_the_command_writes_once_and_replaces_only_on_demand(tmp_path: Path):
    to = tmp_path / "r.html"
    assert main(["report", str(RECORDED), "--to", str(to)]) == 0
    assert to.stat().st_size < 6_000_000
    to.write_text("mine")
    assert main(["report", str(RECORDED), "--to", str(to)]) != 0
    assert to.read_text() == "mine"
    assert main(["report", str(RECORDED), "--to", str(to), "--force"]) == 0
    assert to.read_text().startswith("<!doctype html>")


def test_modules_stand_before_what_imports_them(tmp_path: Path):
    (tmp_path / "a.js").write_text('import { one as two } from "./b.js";\nexport const three = two + 2;\n')
    (tmp_path / "b.js").write_text("/*\nexport const gone = 1;\n*/\nexport const one = 1;\n")
    made = bundle(tmp_path, "a.js")
    assert made.index("const module_b") < made.index("const module_a")
    assert "const { one: two } = module_b;" in made
    assert "return { three };" in made
    assert "gone" not in made


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('import { a } from "./a.js";\n', "import each other"),
        ("export default 1;\n", "not understood"),
        ("export let a = 1;\n", "not understood"),
        ('import * as b from "./b.js";\n', "not understood"),
    ],
)
def test_a_module_that_cannot_be_bundled_is_an_error(tmp_path: Path, text: str, word: str):
    (tmp_path / "a.js").write_text(text)
    (tmp_path / "b.js").write_text("export const b = 1;\n")
    with pytest.raises(ValueError, match=word):
        bundle(tmp_path, "a.js")
