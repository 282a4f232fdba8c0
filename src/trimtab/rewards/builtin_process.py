"""A built-in grader in a worker; runs in the process of worker_process.py, which imports the package."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from trimtab.rewards.build import build_grader
from trimtab.rewards.function_process import prompt_from, rollout_from, table_of
from trimtab.rewards.rubric import GraderConfig


def adapt(module: ModuleType, name: str, options: str) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """The grader that ``options``, a ``GraderConfig`` as JSON, describes."""
    del module, name
    grader = build_grader(GraderConfig(**json.loads(options)))

    async def ask(payload: Any) -> list[dict[str, Any]]:
        prompt = prompt_from(payload["prompt"])
        return [table_of(await grader(prompt, rollout_from(sent))) for sent in payload["rollouts"]]

    return ask, {}
