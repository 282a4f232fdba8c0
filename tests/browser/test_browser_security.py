"""The server answers this machine's own pages and nobody else, and its pages run nothing but its scripts."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
import http.client
import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Opens
from tests.browser.runs import RECORDED
from tests.browser.serving import Watched, served
from tests.browser.test_browser_rollouts import STEP, key, two_answers
from trimtab.cli import watch


class Site(NamedTuple):
    address: str
    pairs: Path


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server with --pairs over the recorded run; a secret lies beside the folder."""
    root = tmp_path_factory.mktemp("security")
    (root / "secret.json").write_text('{"secret": "do not tell"}')
    (root / "outside").mkdir()
    shutil.copytree(RECORDED, root / "runs" / "recorded")
    shutil.copytree(RECORDED, root / "outside" / "private")
    with served(root / "runs", root / "pairs.jsonl") as address:
        yield Site(address, root / "pairs.jsonl")


def ask(site: Site, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
    """A request as given, nothing normalised on the way."""
    connection = http.client.HTTPConnection(urlsplit(site.address).netloc, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path, skip_host="Host" in named)
    for name, value in {**named, **({"Content-Length": str(len(body))} if body else {})}.items():
        connection.putheader(name, value)
    connection.endheaders(body.encode() or None)
    answer = connection.getresponse()
    told = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
    connection.close()
    return told


def preference() -> str:
    first, second = two_answers()
    return json.dumps({"run": "recorded", "step": STEP, "better": key(first), "worse": key(second)})


@pytest.mark.parametrize(
    "host",
    [
        "evil.invalid",
        "evil.invalid:80",
        "127.0.0.1.evil.invalid",
        "localhost.evil.invalid",
        "0.0.0.0",
        "169.254.1.1",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/runs", "/static/main.js", "/api/stream?run=recorded"])
def test_a_foreign_name_for_this_machine_is_refused(host: str, path: str, marked: Site):
    answer = ask(marked, path, Host=host)
    assert answer.status == 400
    assert "recorded" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:6780"])
def test_own_names_are_answered(host: str, marked: Site):
    assert ask(marked, "/api/runs", Host=host).status == 200


def test_a_foreign_page_cannot_mark_a_preference(marked: Site):
    plain = {"Content_Type": "text/plain", "Origin": "https://evil.invalid"}
    assert ask(marked, "/api/preference", "POST", preference(), **plain).status == 403
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert ask(marked, "/api/preference", "POST", preference(), **form).status == 403
    asked = {"Origin": "https://evil.invalid", "Access_Control_Request_Method": "POST"}
    before = ask(marked, "/api/preference", "OPTIONS", **asked, Access_Control_Request_Headers="x-trimtab")
    assert "access-control-allow-origin" not in before.headers
    assert ask(marked, "/api/preference", "GET").status in (404, 405, 400)
    assert not marked.pairs.exists()


def test_a_page_of_another_site_in_the_browser_can_neither_read_nor_write(marked: Site, chromium):
    context = chromium.new_context()
    page: Page = context.new_page()
    page.route(
        "https://evil.invalid/**", lambda route: route.fulfill(body="<p>evil</p>", content_type="text/html")
    )
    page.goto("https://evil.invalid/")
    tried = page.evaluate(
        """async ([site, body]) => {
          const attempt = async (path, options) => {
            try {
              return (await (await fetch(site + path, options)).text()).length;
            } catch {
              return "refused";
            }
          };
          const json = { "content-type": "application/json", "x-trimtab": "1" };
          return [
            await attempt("/api/runs"),
            await attempt("/api/preference", { method: "POST", headers: json, body }),
            await attempt("/api/preference", { method: "POST", body }),
          ];
        }""",
        [marked.address, preference()],
    )
    assert tried == ["refused", "refused", "refused"]
    page.evaluate(
        """([site, body]) =>
          fetch(`${site}/api/preference`, { method: "POST", mode: "no-cors", body }).catch(() => 0)""",
        [marked.address, preference()],
    )
    context.close()
    assert not marked.pairs.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../outside/private"},
        {"run": "recorded/../../outside/private"},
        {"step": -1},
        {"step": "0"},
        {"step": True},
        {"better": "absent"},
        {"worse": None},
        {"better": ["a"]},
    ],
)
def test_a_preference_is_about_recorded_answers_only(change: dict, marked: Site):
    body = json.dumps({**json.loads(preference()), **change})
    answer = ask(marked, "/api/preference", "POST", body, X_Trimtab="1")
    assert answer.status == 400
    assert json.loads(answer.body)["error"]
    assert not marked.pairs.exists()


@pytest.mark.parametrize("body", ["", "[]", "null", "{", "[" * 30_000, '{"run": 1}', "x" * 70_000])
def test_a_preference_that_is_none_is_refused(body: str, marked: Site):
    assert ask(marked, "/api/preference", "POST", body, X_Trimtab="1").status in (400, 413)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../outside/private",
        "recorded/..",
        "recorded/../../outside/private",
        "/etc",
        "./recorded",
        "recorded\x00",
        "",
    ],
)
def test_runs_outside_the_folder_are_not_there(name: str, marked: Site):
    for view in ("run", "rollouts", "tokens", "curves", "stream"):
        answer = ask(marked, f"/api/{view}?run={quote(name, safe='')}&step=0&rollout=x&keys=a")
        assert answer.status in (400, 404) or '"error"' in answer.body
        assert "settings" not in answer.body


@pytest.mark.parametrize(
    "step", ["../000000", "0/../0", "-1", "1e3", "0x1", "\u0661", "999999999999999999999", " 1 ", "null"]
)
def test_a_step_is_a_number_of_this_run(step: str, marked: Site):
    answer = ask(marked, f"/api/rollouts?run=recorded&step={quote(step)}")
    assert answer.status in (400, 404) or json.loads(answer.body)["step"] == 1


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/..%2fserver.py",
        "/static/%2e%2e/%2e%2e/server.py",
        "/static//etc/passwd",
        "/static/....//server.py",
        "/../secret.json",
        "/static/",
        "/server.py",
    ],
)
def test_files_beside_the_static_ones_are_not_served(path: str, marked: Site):
    answer = ask(marked, path)
    assert answer.status in (404, 400, 405)
    assert "SPDX" not in answer.body
    assert "do not tell" not in answer.body


def test_every_answer_carries_the_policy(marked: Site):
    for path in ("/", "/api/runs", "/static/main.js", "/api/absent", "/nowhere"):
        headers = ask(marked, path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert "frame-ancestors 'none'" in policy


def test_the_policy_stops_scripts_styles_and_requests_that_are_injected(marked: Site, opens: Opens):
    watched = opens(marked.address)
    page = watched.visit("run/recorded/overview")
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.pwned = 1";
          document.body.append(script);
          const box = document.createElement("div");
          const link = "<a id=bad href='javascript:window.pwned = 3'>x</a>";
          box.innerHTML = `<img src=x onerror='window.pwned = 2'>${link}`;
          document.body.append(box);
          document.getElementById("bad").click();
        }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.pwned ?? 0") == 0
    gone = page.evaluate("fetch('https://evil.invalid/').then(() => 'sent', () => 'stopped')")
    assert gone == "stopped"
    page.wait_for_timeout(200)
    assert any("Content Security Policy" in text for text in watched.complaints)
    watched.complaints.clear()
    watched.requests = [url for url in watched.requests if "evil.invalid" not in url]


def test_the_command_listens_on_this_machine_alone():
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(watch)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bind"
    ]
    assert [ast.unparse(call.args[0]) for call in calls] == ["('127.0.0.1', args.port)"]
    assert not any(word in inspect.getsource(watch) for word in ("0.0.0.0", '"--host"'))


def test_watching_writes_nothing_into_the_runs(tmp_path: Path, opens: Opens):
    shutil.copytree(RECORDED, tmp_path / "recorded")

    def stamp() -> list[tuple[str, int, int]]:
        return sorted((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*"))

    before = stamp()
    with served(tmp_path) as site:
        watched: Watched = opens(site)
        for name in ("overview", "distributions", "rollouts", "tokens", "prompts", "doctor"):
            watched.visit(f"run/recorded/{name}")
    assert stamp() == before
