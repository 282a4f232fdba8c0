"""The prompts of a run, without those whose gold answer does not grade as right."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from trimtab.config import Run
from trimtab.config.arguments import vllm_length
from trimtab.data.prompts import PromptSet, load_prompts
from trimtab.errors import DataError
from trimtab.models import LoadedModel
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.rubric import Rubric
from trimtab.types import Prompt

SHOWN_PROBLEMS = 5


def prompts_of(run: Run, model: LoadedModel, rubric: Rubric) -> tuple[PromptSet, list[Unverifiable]]:
    """All prompts but those whose gold answers cannot be verified against themselves."""
    prompts = load_prompts(run.data, model, run.longest_answer)
    _refuse_longer(run, prompts)
    problems = rubric.self_check([*prompts.train, *prompts.held_out])
    usable = prompts.without({bad.prompt_id for bad in problems})
    if not usable.train:
        raise DataError("no training prompt is left: " + "\n".join(problem_lines(problems, prompts)))
    return usable, problems


def _refuse_longer(run: Run, prompts: PromptSet) -> None:
    """Raises DataError for a prompt for which a vLLM engine of this run has no room, before it samples."""
    length = vllm_length(run)
    if run.cluster.engine != "vllm" or length is None:
        return
    room = length - run.longest_answer
    for prompt in (*prompts.train, *prompts.held_out):
        tokens = len(prompt.token_ids)
        if tokens > room:
            place = prompts.report.places.get(prompt.id, prompt.id)
            raise DataError(
                f"{place}: prompt {prompt.id!r} has {tokens} tokens, and cluster.vllm.max_model_len = "
                f"{length} leaves {room} beside answers of {run.longest_answer}; raise it to "
                f"{tokens + run.longest_answer}, or leave longer prompts out with "
                f'data.max_prompt_tokens = {room} and data.on_long = "drop"'
            )


def held_out(run: Run, prompts: PromptSet) -> tuple[Prompt, ...]:
    """The prompts that an evaluation asks."""
    return prompts.held_out[: run.evaluation.prompts]


def problem_lines(problems: Sequence[Unverifiable], prompts: PromptSet) -> list[str]:
    """What was left out and why, the first few by row."""
    if not problems:
        return []
    places = prompts.report.places
    shown = [
        f"  {places.get(bad.prompt_id, bad.prompt_id)}: {bad.reason} ({bad.prompt_id}, gold {bad.answer})"
        for bad in problems[:SHOWN_PROBLEMS]
    ]
    more = len(problems) - len(shown)
    shown += [f"  and {more} more"] if more else []
    return [f"left out {len(problems)} prompts whose gold answer does not grade as right:", *shown]
