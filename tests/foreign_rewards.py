"""Reward functions as the documentation of other frameworks teaches them; loaded by path in tests."""
# SPDX-License-Identifier: Apache-2.0

import asyncio
import re
import time
from typing import Any

import torch


# TRL, standard format: completions are text; columns come as lists.
def trl_plain(completions: list[str], solution: list[str], **kwargs: Any) -> list[float]:
    found = [re.search(r"####\s*(\S+)", text) for text in completions]
    return [float(m is not None and m[1] == gold) for m, gold in zip(found, solution, strict=True)]


# TRL, conversational format.
def trl_chat(completions: list[list[dict[str, str]]], **kwargs: Any) -> list[float]:
    return [float(completion[0]["content"].startswith("<think>")) for completion in completions]


# TRL: None where it does not apply, and a coroutine.
async def trl_async_some(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float | None]:
    await asyncio.sleep(0)
    return [None if "skip" in text else float("7" in text) for text in completions]


# TRL: what the trainer passes besides.
def trl_logs(
    completions: list[str],
    completion_ids: list[list[int]],
    trainer_state: Any,
    log_extra: Any,
    log_metric: Any,
    **_: Any,
) -> list[float]:
    log_extra("read", [text[-1] for text in completions])
    log_extra("tokens", [len(ids) for ids in completion_ids])
    log_metric("step", trainer_state.global_step)
    return [-1.0 if len(ids) > 3 else 1.0 for ids in completion_ids]


class TrlLength:
    """TRL: a callable object."""

    def __call__(self, completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        return [1.0 / len(ids) for ids in completion_ids]


trl_object = TrlLength()


# verl: custom_reward_function.path and .name.
def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None
) -> Any:
    if data_source == "dictionary":
        return {"score": 1.0, "acc": solution_str.endswith(ground_truth), "pred": solution_str}
    assert extra_info is not None
    return 1.0 if solution_str.endswith(str(ground_truth)) else extra_info.get("format_score", 0.0)


def compute_score_kwargs(
    data_source: Any, solution_str: Any, ground_truth: Any, extra_info: Any, bonus: float
) -> float:
    return bonus


def compute_batch(
    data_sources: list[str], solution_strs: list[str], ground_truths: list[Any], extra_infos: list[Any]
) -> list[Any]:
    pairs = zip(solution_strs, ground_truths, strict=True)
    return [{"score": float(gold in text), "length": len(text)} for text, gold in pairs]


# OpenRLHF: a file given as the remote reward model.
def reward_func(queries: list[str], prompts: list[str], labels: list[str], **kwargs: Any) -> dict[str, Any]:
    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts, strict=True)]
    right = torch.tensor([float(label in text) for text, label in zip(responses, labels, strict=True)])
    return {"rewards": right - 0.5, "scores": right, "extra_logs": {"right": right, "mean": right.mean()}}


def reward_tensor(queries: list[str], prompts: list[str], labels: list[str]) -> torch.Tensor:
    return torch.ones(len(queries))


# verifiers, functions of a rubric.
async def correct_answer(completion: list[dict[str, str]], answer: str) -> float:
    return 1.0 if answer in completion[-1]["content"] else 0.0


def parsed_answer(parser: Any, completion: Any, answer: str, info: dict[str, Any], **kwargs: Any) -> float:
    return float((parser.parse_answer(completion) or "").strip() == answer) * info["scale"]


def by_state(state: dict[str, Any]) -> float:
    return float(state["answer"] in state["completion"][-1]["content"] and not state["is_truncated"])


def longest(completions: list[Any], states: list[dict[str, Any]]) -> list[float]:
    lengths = [len(completion[-1]["content"]) for completion in completions]
    return [float(length == max(lengths)) for length in lengths]


# verifiers v1: a plugged function, and a task class.
async def exact_match(task: Any, trace: Any) -> float:
    return float(trace.last_reply == str(task.answer))


def marked(weight: float = 1.0) -> Any:
    def mark(method: Any) -> Any:
        method.reward, method._vf_weight = True, weight
        return method

    return mark


class AdditionTask:
    """As ``class AdditionTask(vf.Task[AdditionData])``, with the marks that @vf.reward leaves."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @marked(weight=3.0)
    async def exact(self, trace: Any) -> float:
        return float(trace.last_reply == str(self.data.answer))

    @marked()
    def short(self, trace: Any) -> dict[str, float]:
        return {"short": float(len(trace.last_reply) < 5)}


# What functions do wrong.
def one_for_all(completions: list[str], **kwargs: Any) -> list[float]:
    return [1.0]


def mixed_up(completions: list[str], **kwargs: Any) -> list[Any]:
    return [1.0, float("nan"), "1", None, True, 2.0, torch.tensor(0.5), [1.0]]


def raises(completions: list[str], **kwargs: Any) -> list[float]:
    raise KeyError("no such rubric")


def leaves(completions: list[str], **kwargs: Any) -> list[float]:
    raise SystemExit(3)


def hangs(completions: list[str], **kwargs: Any) -> list[float]:
    time.sleep(60)
    return [1.0]


def needs_a_column(completions: list[str], difficulty: list[int]) -> list[float]:
    return [1.0] * len(completions)


def ambiguous(completions: list[str], answers: list[str]) -> list[float]:
    return [1.0] * len(completions)


def unknown(text: str, gold: str, weight: float) -> float:
    return 1.0


def own(prompt: Any, rollout: Any) -> float:
    return float(rollout.text == prompt.answer)
