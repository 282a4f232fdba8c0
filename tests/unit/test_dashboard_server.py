"""The server answers this machine's own pages only, says what is wrong, and writes but preferences."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from trimtab.cli import main
from trimtab.dashboard.server import application
from trimtab.dashboard.store import RunStore
from trimtab.rewards.pairs import read_pairs

RECORDED = Path(__file__).parents[1] / "fixtures" / "dashboard" / "recorded"
HEADER = {"x-trimtab": "1"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(RECORDED, tmp_path / "runs" / "a")
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> TestClient:
    return TestClient(application(RunStore(root), root.parent / "pairs.jsonl"), "http://127.0.0.1")


def test_pages_have_a_strict_policy_and_no_inline_script(client: TestClient):
    for path in ("/", "/static/main.js", "/api/runs", "/api/run?run=nobody", "/nothing"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "169.254.1.1"])
def test_a_foreign_host_is_refused(client: TestClient, host: str):
    assert client.get("/api/runs", headers={"host": host}).status_code == 400
    assert client.get("/", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:6780", "localhost:6780", "localhost"])
def test_this_machine_is_answered_under_any_port(client: TestClient, host: str):
    assert client.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/nothing", 400, "no view"),
        ("/api/curves?run=a", 400, "keys"),
        ("/api/rollouts?run=a&step=1x", 400, "whole number"),
        ("/api/run?run=b", 404, "no run"),
        ("/api/run?run=../a", 404, "no run"),
        ("/api/run?run=..%2F..%2Fetc", 404, "no run"),
        ("/api/rollouts?run=a&step=-1", 404, "step"),
        ("/api/tokens?run=a&step=7&rollout=x", 404, "recorded rollout"),
    ],
)
def test_what_is_wrong_is_said_as_json(client: TestClient, path: str, status: int, word: str):
    answer = client.get(path)
    assert answer.status_code == status
    assert word in answer.json()["error"]


def test_static_files_end_at_their_folder(client: TestClient):
    assert client.get("/static/main.js").status_code == 200
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py"):
        assert client.get(path).status_code == 404


def test_looking_at_everything_changes_no_file(client: TestClient, root: Path):
    def state() -> dict[str, str]:
        files = [path for path in root.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = state()
    for path in (
        "runs",
        "run?run=a",
        "findings?run=a",
        "prompts?run=a",
        "rollouts?run=a&step=7",
        "catalogue?run=a",
    ):
        assert client.get(f"/api/{path}").status_code == 200
    assert state() == before


def _two(client: TestClient) -> list[str]:
    """Two different answers to one prompt, one to another prompt, and one with the first one's text."""
    groups = client.get("/api/rollouts?run=a&step=7").json()["groups"]
    for group in groups:
        first, *others = group["rollouts"]
        unlike = [row["key"] for row in others if row["text"] != first["text"]]
        alike = [row["key"] for row in others if row["text"] == first["text"]]
        if unlike and alike:
            other = next(one for one in groups if one["prompt_id"] != group["prompt_id"])
            return [first["key"], unlike[0], other["rollouts"][0]["key"], alike[0]]
    raise AssertionError("the fixture has a group with answers that are alike and others that are not")


def test_a_preference_is_appended_and_read_back(client: TestClient, root: Path):
    better, worse, *_ = _two(client)
    marked = {"run": "a", "step": 7, "better": better, "worse": worse}
    for _ in range(2):
        assert client.post("/api/preference", json=marked, headers=HEADER).json()["written"] == "pairs.jsonl"
    lines = [json.loads(line) for line in (root.parent / "pairs.jsonl").read_text().splitlines()]
    assert [(line["chosen_rollout"], line["rejected_rollout"]) for line in lines] == [(better, worse)] * 2
    found = read_pairs(root.parent / "pairs.jsonl")
    assert [(pair.chosen_rollout, pair.run, pair.step) for pair in found.pairs] == [(better, "a", 7)] * 2


def test_a_preference_without_the_own_header_is_refused(client: TestClient, root: Path):
    better, worse, *_ = _two(client)
    marked = {"run": "a", "step": 7, "better": better, "worse": worse}
    assert client.post("/api/preference", json=marked).status_code == 403
    assert client.post("/api/preference", json=marked, headers={"x-trimtab": "0"}).status_code == 403
    assert not (root.parent / "pairs.jsonl").exists()


def test_preferences_that_say_nothing_are_refused(client: TestClient, root: Path):
    better, worse, other, alike = _two(client)
    good = {"run": "a", "step": 7, "better": better, "worse": worse}
    for change in (
        {"worse": better},
        {"worse": other},
        {"worse": alike},
        {"worse": "nobody"},
        {"run": "nobody"},
        {"step": True},
        {"step": "7"},
        {"better": None},
    ):
        answer = client.post("/api/preference", json={**good, **change}, headers=HEADER)
        assert answer.status_code == 400, change
        assert answer.json()["error"]
    assert client.post("/api/preference", content=b"[", headers=HEADER).status_code == 400
    assert not (root.parent / "pairs.jsonl").exists()


def test_without_a_file_there_is_nothing_to_prefer(root: Path):
    client = TestClient(application(RunStore(root)), "http://127.0.0.1")
    assert client.post("/api/preference", json={}, headers=HEADER).status_code == 403
    assert "data-preference" not in client.get("/").text


def test_watch_and_report_say_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(tmp_path / "nothing")]) != 0
    assert main(["report", str(tmp_path)]) != 0
    told = capsys.readouterr().err
    assert "is no folder" in told
    assert "holds no run" in told
