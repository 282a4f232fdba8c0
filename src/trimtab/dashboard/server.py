"""The server of the pages: on this machine only, for this machine's pages only.

A page of another site can neither read nor write here: the Host header must name this machine (so a foreign
name that resolves to it is refused), no answer allows another origin, and what writes wants a header that
a foreign page cannot send. Pages load nothing from elsewhere and run no inline script.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import logging
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab import __version__
from trimtab.dashboard.bundle import bundle
from trimtab.dashboard.live import changes
from trimtab.dashboard.preference import prefer
from trimtab.dashboard.store import RunStore
from trimtab.dashboard.views import view
from trimtab.errors import DataError, TrimtabError

HERE = Path(__file__).parent
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OWN_HEADER = "x-trimtab"
MOST_BODY = 1 << 16
LOG = logging.getLogger(__name__)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def application(store: RunStore, pairs: Path | None = None) -> Starlette:
    """The pages, ``/api/VIEW`` for each view, ``/api/stream``; ``/api/preference`` needs ``pairs``."""
    page = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True).get_template("page.html")
    shell = page.render(version=__version__, preference=pairs is not None)

    modules = bundle((HERE / "static").resolve(), "main.js")  # one request instead of forty

    async def index(request: Request) -> Response:
        return HTMLResponse(shell)

    async def script(request: Request) -> Response:
        return Response(modules, media_type="text/javascript")

    async def values(request: Request) -> Response:
        try:
            found = await run_in_threadpool(
                view, store, request.path_params["name"], dict(request.query_params)
            )
            return _json(found)
        except TrimtabError as problem:
            return _json({"error": str(problem)}, 404 if isinstance(problem, DataError) else 400)
        except Exception as problem:  # a record that was damaged or made by hand: the page wants a sentence
            LOG.exception("the view %s failed", request.url)
            what = f"{type(problem).__name__}: {problem}"
            return _json({"error": f"the record has something this view cannot show ({what})"}, 500)

    async def stream(request: Request) -> Response:
        lines = changes(store, request.query_params.get("run", ""))
        return StreamingResponse(lines, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def preference(request: Request) -> Response:
        if request.headers.get(OWN_HEADER) != "1":
            return _json({"error": f"a preference needs the header {OWN_HEADER}"}, 403)
        if pairs is None:
            return _json({"error": "start with --pairs FILE to mark preferences"}, 403)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BODY:
                return _json({"error": f"a preference has at most {MOST_BODY} bytes"}, 413)
        try:
            return _json(await run_in_threadpool(prefer, store, pairs, json.loads(body)))
        except (TrimtabError, ValueError, RecursionError, OSError) as problem:
            return _json({"error": str(problem)}, 400)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/pages.js", script),
            Route("/api/stream", stream),
            Route("/api/preference", preference, methods=["POST"]),
            Route("/api/{name}", values),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK), www_redirect=False),
            Middleware(Guard),
            Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4),
        ],
    )


class Guard:
    """Puts the headers of ``SECURITY`` on every answer, streams included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                headers.setdefault("Cache-Control", "no-cache")
            await send(message)

        await self.app(scope, receive, guarded)


def _json(fields: object, status: int = 200) -> Response:
    """Strict JSON: a NaN in a view is an error here, not a broken page. A lone surrogate is escaped."""
    told = json.dumps(fields, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    text = told.encode("utf-8", "backslashreplace")
    headers = {"Cache-Control": "no-store"}
    return Response(text, status, headers=headers, media_type="application/json")
