"""Evaluate a policy on held-out prompts: sample, grade, and keep what each prompt received."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import SettingError
from trimtab.evaluation.estimators import Estimate, Paired, bootstrap, majority_at_k, paired, pass_at_k
from trimtab.rewards.rubric import Rubric
from trimtab.rollout.engine import RolloutEngine, Sampling
from trimtab.types import Draw, GradeState, Prompt, ScoredGroup


@dataclass(frozen=True, slots=True)
class PromptResult:
    """What one held-out prompt received. ``graded`` answers of ``attempted``; ``right`` of them right.

    ``votes`` are the answers as read by the grader (None: unreadable or not offered by the grader),
    ``correct`` says for each graded answer whether it was right.
    """

    prompt_id: str
    attempted: int
    graded: int
    right: int
    mean_value: float | None
    mean_length: float
    truncated: int
    votes: tuple[str | None, ...]
    correct: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All prompts' results at one policy version, and how they were sampled."""

    version: int
    temperature: float
    max_new_tokens: int
    samples: int
    seconds: float
    results: tuple[PromptResult, ...]

    def values(self, k: int) -> NDArray[np.float64]:
        """pass@k of each prompt with at least k graded answers."""
        return np.array(
            [pass_at_k(r.graded, r.right, k) for r in self.results if r.graded >= k], dtype=np.float64
        )

    def pass_at(self, k: int) -> Estimate:
        if k > self.samples:
            raise SettingError(
                f"pass@{k} cannot be estimated from {self.samples} answers a prompt; raise evaluation.samples"
            )
        return bootstrap(self.values(k))

    def majority_at(self, k: int) -> Estimate | None:
        """maj@k, or None when the grader reads no answers that could be voted on."""
        rng = np.random.default_rng(0)
        readable = [r for r in self.results if r.graded >= k]
        if not any(vote is not None for r in readable for vote in r.votes):
            return None
        return bootstrap(
            np.array([majority_at_k(r.votes, r.correct, k, rng) for r in readable], dtype=np.float64)
        )

    def against(self, start: Evaluation) -> Paired | None:
        """pass@1 of this evaluation minus the start's, over the prompts both could grade.

        None where there is no such prompt, or the two were sampled differently.
        """
        if (self.temperature, self.max_new_tokens) != (start.temperature, start.max_new_tokens):
            return None
        earlier = {r.prompt_id: r for r in start.results if r.graded}
        both = [(r, earlier[r.prompt_id]) for r in self.results if r.graded and r.prompt_id in earlier]
        if not both:
            return None
        later_P = np.array([now.right / now.graded for now, _ in both], dtype=np.float64)
        earlier_P = np.array([then.right / then.graded for _, then in both], dtype=np.float64)
        return paired(later_P, earlier_P)

    def summary(self, ks: Sequence[int], start: Evaluation | None = None) -> dict[str, Any]:
        """What summary.json and the view show. pass@k is left out where no prompt has k graded answers,
        maj@k where nothing can be voted on, the comparison where there is no ``start`` to compare with.
        """
        shown: dict[str, Any] = {}
        for k in ks:
            if k <= self.samples and not len(self.values(k)):
                continue
            estimate = self.pass_at(k)
            shown[f"pass@{k}"] = estimate.value
            shown[f"pass@{k}_interval"] = [estimate.low, estimate.high]
        most = max(ks)
        vote = self.majority_at(most) if most > 1 else None
        if vote is not None:
            shown[f"maj@{most}"] = vote.value
            shown[f"maj@{most}_interval"] = [vote.low, vote.high]
        answers = sum(r.attempted for r in self.results)
        shown |= {
            "prompts": len(self.results),
            "answers": answers,
            "ungraded": answers - sum(r.graded for r in self.results),
            "truncated": sum(r.truncated for r in self.results) / answers,
            "mean_length": sum(r.mean_length * r.attempted for r in self.results) / answers,
            "temperature": self.temperature,
            "max_new_tokens": self.max_new_tokens,
            "version": self.version,
            "seconds": self.seconds,
        }
        change = None if start is None else self.against(start)
        if change is not None:
            shown["against_start"] = {
                "difference": change.difference,
                "interval": [change.low, change.high],
                "verdict": change.verdict,
            }
        return shown

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Evaluation:
        results = tuple(
            PromptResult(**{**r, "votes": tuple(r["votes"]), "correct": tuple(r["correct"])})
            for r in stored["results"]
        )
        return cls(**{**stored, "results": results})


async def evaluate(
    engine: RolloutEngine,
    rubric: Rubric,
    prompts: Sequence[Prompt],
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
) -> Evaluation:
    """Sample ``samples`` answers to each prompt with seeds of their own, grade them, keep the counts.

    The seeds do not depend on the policy's version: start and final answers share their randomness,
    which narrows the paired comparison.

    Raises RunError, with the first traceback, when too many answers could not be graded.
    """
    started = time.perf_counter()
    draws = [Draw(prompt, 0) for prompt in prompts]
    sampled = engine.generate(draws, samples, sampling, seed=seed, purpose="evaluation")
    scored = {group.group.prompt.id: group for group in await rubric.grade_all(sampled)}
    rubric.check(list(scored.values()))
    return Evaluation(
        version=engine.version,
        temperature=sampling.temperature,
        max_new_tokens=sampling.max_new_tokens,
        samples=samples,
        seconds=time.perf_counter() - started,
        results=tuple(_result(scored[prompt.id], rubric) for prompt in prompts),
    )


def _result(scored: ScoredGroup, rubric: Rubric) -> PromptResult:
    prompt, rollouts = scored.group.prompt, scored.group.rollouts
    graded = [
        (rollout, grade) for rollout, grade in zip(rollouts, scored.grades, strict=True) if grade.graded
    ]
    correct = tuple(grade.state is GradeState.RIGHT for _, grade in graded)
    return PromptResult(
        prompt_id=prompt.id,
        attempted=len(rollouts),
        graded=len(graded),
        right=sum(correct),
        mean_value=scored.pass_rate,
        mean_length=float(np.mean([rollout.length for rollout in rollouts])),
        truncated=sum(rollout.truncated for rollout in rollouts),
        votes=tuple(rubric.read_answer(prompt, rollout) for rollout, _ in graded),
        correct=correct,
    )
