"""From the ``[reward]`` table to a rubric.

``GRADERS`` names the built-in graders. Each is a frozen dataclass whose fields are its options in a
recipe: ``graders = [{name = "answer", options = {marker = "####"}}]``.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from trimtab.errors import SettingError, nearest
from trimtab.rewards.adapters import AdapterOptions
from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.code import CodeTests
from trimtab.rewards.format import FormatMatch
from trimtab.rewards.function import FunctionGrader, find_file, load_function
from trimtab.rewards.grader import Grader, SelfLimiting
from trimtab.rewards.gym import GymScore
from trimtab.rewards.isolated import IsolatedFunction, IsolatedGrader
from trimtab.rewards.judge import Judge
from trimtab.rewards.mathematics import MathematicsMatch
from trimtab.rewards.model import RewardModel
from trimtab.rewards.rubric import GraderConfig, RewardConfig, Rubric
from trimtab.rewards.win_rate import WinRate
from trimtab.rewards.workers import pool_of

GRADERS: dict[str, type[Any]] = {
    "answer": AnswerMatch,
    "code": CodeTests,
    "format": FormatMatch,
    "gym": GymScore,
    "judge": Judge,
    "mathematics": MathematicsMatch,
    "reward-model": RewardModel,
    "win-rate": WinRate,
}

MOST_WORKERS = 8


def build_rubric(config: RewardConfig, folder: Path | None = None) -> Rubric:
    """The rubric that a recipe asks for; relative grader files start at ``folder``.

    Raises SettingError on unknown graders or options, each with the nearest known name.
    """
    timeouts: dict[str, float] = {}
    graders: list[tuple[Grader, float]] = []
    for one in config.graders:
        grader = build_grader(one, folder, config)
        graders.append((grader, one.weight))
        if one.timeout is not None:
            timeouts[grader.name] = one.timeout
    return Rubric(
        graders,
        truncated=config.truncated,
        max_ungraded_share=config.max_ungraded_share,
        timeout=config.timeout,
        timeouts=timeouts,
        concurrency=config.concurrency,
        retry=config.retry,
    )


def build_grader(
    config: GraderConfig, folder: Path | None = None, reward: RewardConfig = RewardConfig()
) -> Grader:
    """One grader, by name or ``path.py:function``, with the workers and limits of ``reward``."""
    if ".py:" not in config.name:
        grader = _built_in(config)
        return _isolated(grader, config, reward) if config.isolated else grader
    options = AdapterOptions(**_checked(config, AdapterOptions))
    file, function = find_file(config.name, folder)
    if config.isolated is False:
        return FunctionGrader(load_function(config.name, folder), config.label or function, options)
    workers = _workers(reward)
    return IsolatedFunction(
        file,
        function,
        pool=pool_of(workers, reward.worker_megabytes),
        timeout=_limit(config, reward),
        together=math.ceil(reward.concurrency / workers),
        name=config.label,
        options=options,
    )


def _isolated(grader: Grader, config: GraderConfig, reward: RewardConfig) -> Grader:
    """A built-in grader in workers. Raises SettingError for one that runs processes or devices of its own."""
    if isinstance(grader, SelfLimiting):
        raise SettingError(
            f"grader {config.name!r} cannot be isolated: it limits itself, and what can hang in it runs in "
            "processes of its own already; leave isolated out"
        )
    pool = pool_of(_workers(reward), reward.worker_megabytes)
    return IsolatedGrader(grader, config.name, config.options, pool=pool, timeout=_limit(config, reward))


def _limit(config: GraderConfig, reward: RewardConfig) -> float:
    return reward.timeout if config.timeout is None else config.timeout


def _workers(reward: RewardConfig) -> int:
    """Processes at most for isolated graders."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS) if reward.workers is None else reward.workers


def _built_in(config: GraderConfig) -> Grader:
    constructor = GRADERS.get(config.name)
    if constructor is None:
        own = "; a function of your own is named path.py:function"
        raise SettingError(f"there is no grader {config.name!r}{nearest(config.name, GRADERS)}{own}")
    options = _checked(config, constructor)
    return constructor(**options, name=config.label or config.name)


def _checked(config: GraderConfig, constructor: type[Any]) -> dict[str, Any]:
    """The options, lists as tuples. Raises SettingError for an unknown one or a wrong type."""
    hints = get_type_hints(constructor)
    known = {field.name for field in dataclasses.fields(constructor) if field.init} - {"name"}
    options: dict[str, Any] = {}
    for key, given in config.options.items():
        if key not in known:
            raise SettingError(f"grader {config.name!r} has no option {key!r}{nearest(key, known)}")
        plain = tuple(given) if isinstance(given, list) else given
        try:
            options[key] = TypeAdapter(hints[key]).validate_python(plain, strict=True)
        except ValidationError as fault:
            why = fault.errors()[0]["msg"].lower()
            raise SettingError(f"grader {config.name!r}: option {key} cannot be {given!r}: {why}") from None
    return options
