"""trimtab's own form: ``def f(prompt, rollout) -> float | bool | Grade | None``, each answer by itself."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect

from trimtab.rewards.adapters.arguments import Asked
from trimtab.rewards.adapters.returned import Returned


async def call(asked: Asked) -> list[Returned]:
    """Ask about each answer."""
    found: list[Returned] = []
    for rollout in asked.rollouts:
        try:
            returned = asked.function(asked.prompt, rollout, **asked.arguments)
            returned = await returned if inspect.isawaitable(returned) else returned
        except SystemExit as fault:
            raise RuntimeError(f"function {asked.name!r} called exit({fault.code})") from fault
        found.append(Returned(value=returned))
    return found
