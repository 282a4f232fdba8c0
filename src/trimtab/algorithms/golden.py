"""Check the real objectives, advantages and value loss against files of golden cases, in float64.

Two kinds of file, told apart by their cases. *Objectives*: each case is one optimizer step of several
responses; expected are ``advantages`` (one a response), ``loss`` and ``grad`` = d loss / d logp (one a
token). *Critics*: each case is one answer; expected are GAE's ``advantages`` and ``returns``, the
``value_loss`` (token mean) and its ``value_grad``. Nothing here computes a formula: the pieces that train
are built, packed and differentiated. The recipe's refusals do not apply.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trimtab.advantages.gae import GAE
from trimtab.advantages.group import GroupRelative
from trimtab.algorithms.fields import Fields
from trimtab.errors import DataError, SettingError
from trimtab.objectives.aggregate import AGGREGATES, SeqMeanTokenSumNorm, aggregate_named, token_mean
from trimtab.objectives.objective import Objective, Term
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import RATIOS
from trimtab.objectives.regularizers import ReferenceKL
from trimtab.objectives.surrogate import Clip, ClippedWeight, DualClip, SignDecoupledClip, SoftGate, Surrogate
from trimtab.objectives.value import ClippedValueLoss
from trimtab.types import Batch, ModelOutput

TOLERANCE = 1e-9
"""Golden inputs carry 12 decimals, so 1e-9 leaves room for their rounding and for nothing else."""


@dataclass(frozen=True, slots=True)
class CaseReport:
    """Largest absolute error of each expected quantity of one case."""

    name: str
    errors: Mapping[str, float]

    @property
    def worst(self) -> float:
        return max(self.errors.values())


@dataclass(frozen=True, slots=True)
class GoldenReport:
    """All cases of a file; ``errors`` is the largest of each quantity over them."""

    path: str
    cases: tuple[CaseReport, ...]
    tolerance: float = TOLERANCE

    @property
    def errors(self) -> dict[str, float]:
        names = self.cases[0].errors
        return {name: max(case.errors[name] for case in self.cases) for name in names}

    @property
    def failed(self) -> tuple[CaseReport, ...]:
        return tuple(case for case in self.cases if not case.worst <= self.tolerance)

    @property
    def ok(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.cases)} cases, largest absolute errors:"]
        lines += [f"  {name:12} {error:.2e}" for name, error in self.errors.items()]
        verdict = "all" if self.ok else f"{len(self.cases) - len(self.failed)} of {len(self.cases)}"
        lines.append(f"{verdict} within {self.tolerance:g}")
        for case in self.failed:
            wrong = ", ".join(f"{n} {e:.2e}" for n, e in case.errors.items() if not e <= self.tolerance)
            lines.append(f"  {case.name}: {wrong}")
        return "\n".join(lines)


def check_golden(path: str | Path) -> GoldenReport:
    """Every case of the file. Raises DataError naming case and field where the file is malformed."""
    try:
        tree: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise DataError(f"cannot read golden cases from {path}: {problem}") from None
    cases = Fields.of(tree, str(path)).tables("cases")
    if not cases:
        raise DataError(f"{path}: field cases is empty")
    reports: list[CaseReport] = []
    for case in cases:
        name = case.text("name")
        named = case.called(f"{path}: case {name}")
        check = _check_objective if "responses" in case else _check_critic
        try:
            reports.append(CaseReport(name, check(named)))
        except SettingError as problem:
            raise DataError(f"{path}: case {name}: {problem}") from None
    if len({tuple(report.errors) for report in reports}) > 1:
        raise DataError(f"{path}: mixes cases with responses and cases of a critic; split it into two files")
    return GoldenReport(str(path), tuple(reports))


def _check_objective(case: Fields) -> dict[str, float]:
    batch, logprobs_T = _packed(case.tables("responses"))
    spec, expected = case.table("objective"), case.table("expected")
    advantage = _advantage(spec.table("advantage"))
    objective = _objective(spec)
    batch = objective.weighted(batch.with_columns(**advantage(batch)))
    losses, _ = objective(ModelOutput(logprobs_T=logprobs_T, entropy_T=torch.zeros_like(logprobs_T)), batch)
    loss = torch.stack(list(losses.values())).sum()
    (grad_T,) = torch.autograd.grad(loss, logprobs_T)
    grads = expected.rows("grad", [int(length) for length in batch.lengths_S])
    return {
        "advantages": _error(
            advantage.advantages(batch.rewards_S, batch.group_S),
            expected.numbers("advantages", batch.num_sequences),
        ),
        "loss": _error(loss, [expected.number("loss")]),
        "grad": _error(grad_T, [g for row in grads for g in row]),
    }


def _check_critic(case: Fields) -> dict[str, float]:
    rewards, expected = case.numbers("rewards"), case.table("expected")
    length = len(rewards)
    if not length:
        raise DataError(f"{case.where}: field rewards is empty")
    batch = _batch([length], [0], [rewards[-1]], torch.ones(length, dtype=torch.bool))
    batch = batch.with_columns(
        kl_rewards_T=_double([*rewards[:-1], 0.0]),
        values_T=_double(case.numbers("values", length)),
        bootstrap_S=_double([case.number("bootstrap")]),
    )
    gae = GAE(gamma=case.number("gamma"), lam=case.number("lam"), bootstrap_truncated=True)
    made = gae(batch)
    objective = Objective(((1.0, ClippedValueLoss(case.number("clip"))),), token_mean)
    new_T = _double(case.numbers("new_values", length)).requires_grad_()
    zeros_T = torch.zeros(length, dtype=torch.float64)
    losses, _ = objective(
        ModelOutput(logprobs_T=zeros_T, entropy_T=zeros_T, values_T=new_T),
        objective.weighted(batch.with_columns(**made)),
    )
    (grad_T,) = torch.autograd.grad(losses["value"], new_T)
    return {
        "advantages": _error(made["advantages_T"], expected.numbers("advantages", length)),
        "returns": _error(made["returns_T"], expected.numbers("returns", length)),
        "value_loss": _error(losses["value"], [expected.number("value_loss")]),
        "value_grad": _error(grad_T, expected.numbers("value_grad", length)),
    }


def _objective(spec: Fields) -> Objective:
    terms: list[tuple[float, Term]] = [
        (1.0, PolicyGradient(spec.one_of("ratio", RATIOS), _surrogate(spec.table("surrogate"))))
    ]
    if spec.optional("kl"):
        kl = spec.table("kl")
        estimator: Any = kl.text("estimator")
        terms.append((kl.number("coef"), ReferenceKL(estimator)))
    name = spec.text("aggregation")
    horizon = spec.whole("horizon") if AGGREGATES.get(name) is SeqMeanTokenSumNorm else None
    return Objective(tuple(terms), aggregate_named(name, horizon))


def _surrogate(spec: Fields) -> Surrogate:
    def clip() -> Surrogate:
        low, high = spec.number("low"), spec.number("high")
        return DualClip(low, high, spec.number("dual")) if spec.optional("dual") else Clip(low, high)

    def by_sign() -> Surrogate:
        bound: Any = spec.text("bound")
        return SignDecoupledClip(spec.number("pos"), spec.number("neg"), spec.number("alpha"), bound)

    kinds: dict[str, Callable[[], Surrogate]] = {
        "clip": clip,
        "soft-gate": lambda: SoftGate(spec.number("tau_pos"), spec.number("tau_neg")),
        "clipped-weight": lambda: ClippedWeight(spec.number("low"), spec.number("high")),
        "sign-decoupled-clip": by_sign,
    }
    return spec.one_of("kind", kinds)()


def _advantage(spec: Fields) -> GroupRelative:
    if spec.text("baseline") != "group-mean" or spec.whole("ddof") != 1:
        raise DataError(f"{spec.where}: only baseline group-mean with ddof 1 is known")
    scale: Any = spec.text("scale")
    return GroupRelative(scale=scale, eps=spec.number("eps"))


def _packed(responses: list[Fields]) -> tuple[Batch, Tensor]:
    logprobs = [response.numbers("logp") for response in responses]
    lengths = [len(row) for row in logprobs]
    pairs = list(zip(responses, lengths, strict=True))
    mask = [flag for response, length in pairs for flag in response.flags("mask", length)]
    order: dict[int, int] = {}
    groups = [order.setdefault(response.whole("group"), len(order)) for response in responses]
    batch = _batch(
        lengths, groups, [r.number("reward") for r in responses], torch.tensor(mask, dtype=torch.bool)
    )
    batch = batch.with_columns(
        old_logprobs_T=_double([x for r, length in pairs for x in r.numbers("old_logp", length)]),
        ref_logprobs_T=_double([x for r, length in pairs for x in r.numbers("ref_logp", length)]),
    )
    return batch, _double([x for row in logprobs for x in row]).requires_grad_()


def _batch(lengths: list[int], groups: list[int], rewards: list[float], mask_T: Tensor) -> Batch:
    count = len(lengths)
    return Batch(
        prompts_P=tuple(torch.zeros(1, dtype=torch.int64) for _ in set(groups)),
        token_ids_T=torch.zeros(sum(lengths), dtype=torch.int64),
        seq_T=torch.repeat_interleave(torch.arange(count), torch.tensor(lengths, dtype=torch.int64)),
        mask_T=mask_T,
        rollout_logprobs_T=torch.zeros(sum(lengths)),
        group_S=torch.tensor(groups, dtype=torch.int64),
        rewards_S=_double(rewards),
        outcomes_S=_double(rewards),
        truncated_S=torch.ones(count, dtype=torch.bool),
        version_S=torch.zeros(count, dtype=torch.int64),
        keys_S=tuple(f"golden#0/{index}" for index in range(count)),
    )


def _double(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _error(found: Tensor, expected: list[float]) -> float:
    """Largest absolute difference; NaN anywhere counts as an infinite one."""
    if not expected:
        return 0.0
    worst = float((found.detach().reshape(-1) - _double(expected)).abs().max())
    return worst if worst == worst else float("inf")
