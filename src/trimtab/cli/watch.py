"""Open the dashboard: local pages over run directories.

trimtab watch                           the runs in runs/
trimtab watch runs/quickstart           one run
trimtab watch runs --pairs pairs.jsonl  and mark better answers, appended to that file

Pages are served on this machine alone; over ssh, forward the port: ssh -L 6780:127.0.0.1:6780 HOST
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from pathlib import Path

from trimtab.cli.words import say
from trimtab.errors import RunError

PORT = 6780


def add(parser: argparse.ArgumentParser) -> None:
    """RUNS, --port, --pairs."""
    parser.add_argument("runs", nargs="?", type=Path, default=Path("runs"), help="folder of runs, or a run")
    parser.add_argument("--port", type=int, default=PORT, help=f"of 127.0.0.1 ({PORT}); 0 takes a free one")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="preferences are appended to this file")


def main(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    import socket

    import uvicorn

    from trimtab.dashboard.server import application
    from trimtab.dashboard.store import RunStore

    app = application(RunStore(args.runs), args.pairs)
    # Named as TCP, its connections send at once (TCP_NODELAY); else each answer ends 40 ms late.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", args.port))
        listener.listen()  # before the address is told, so that it answers at once
    except OSError as problem:
        raise RunError(
            f"port {args.port} of 127.0.0.1 cannot be opened ({problem.strerror}); choose another with --port"
        ) from None
    say(f"watching {args.runs}: http://127.0.0.1:{listener.getsockname()[1]}/  (Ctrl-C ends it)")
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])
    return 0
