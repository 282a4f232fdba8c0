"""Runs one program as ``python program.py`` would, with nothing of the sandbox in its namespace."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run(arguments: dict[str, Any]) -> None:
    """``arguments``: the program's source, folders of packages."""
    module = prepare("__main__", arguments["packages"])
    exec(compile(arguments["program"], "program.py", "exec"), module.__dict__)


def prepare(name: str, packages: list[str]) -> types.ModuleType:
    """An empty module of this name, where programs find what they find in a script."""
    import _sitebuiltins
    import builtins

    for word in ("exit", "quit"):
        setattr(builtins, word, _sitebuiltins.Quitter(word, "Ctrl-D"))
    sys.path.extend(packages)
    sys.argv[:] = ["program.py"]
    module = types.ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    sys.modules[name] = module
    return module
