"""The first code in a sandboxed interpreter: unpack the duty, give up rights, say so, do the duty.

Runs as the source of ``python -c`` with the variables ``duty`` (below) and no modules of trimtab at hand.
The line ``ready`` on the status pipe is the promise that all rights are given up: whatever happens before
it is a fault of the sandbox, whatever happens after it is the program's doing.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def start(duty: dict[str, Any]) -> None:
    """Keys of ``duty``: modules [(name, code)], restrict (a module), rules, status (a file descriptor),
    reports (whether status stays open), entry (module, function), arguments.
    """
    status = duty["status"]
    try:
        for name, code in duty["modules"]:
            module = types.ModuleType(name)
            sys.modules[name] = module
            exec(code, module.__dict__)
        sys.modules[duty["restrict"]].restrict(duty["rules"])
    except BaseException as fault:
        os.write(status, f"fault {type(fault).__name__}: {fault}\n".encode())
        os._exit(70)
    os.write(status, b"ready\n")
    if duty["reports"]:
        duty["arguments"]["status"] = status
    else:
        os.close(status)
    module, function = duty["entry"]
    getattr(sys.modules[module], function)(duty["arguments"])
