"""Models, batches and objectives on which sharded trainers are compared with the trainer of one process."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from tests.loop.test_routing import tiny_experts
from tests.ranks import Spread
from tests.tiny import tiny_model
from tests.trainers import BOTH, OLD, TEMPERATURE, VALUES, annotate, masters, update, with_returns
from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.models import LoadedModel
from trimtab.models.lora import LoraConfig
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.regularizers import EntropyBonus, ReferenceKL
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.trainer import Trainer
from trimtab.types import Batch, StepReport

UPDATES = 10
KL = Objective((*POLICY.terms, (0.1, ReferenceKL()), (0.01, EntropyBonus())), token_mean)
REFERENCE = frozenset({"old_logprobs_T", "ref_logprobs_T"})


class Adapted(nn.Module):
    """A frozen linear layer with a trained correction of rank 2."""

    def __init__(self, inner: nn.Linear, seed: int) -> None:
        super().__init__()
        self.inner = inner.requires_grad_(False)
        random = torch.Generator().manual_seed(seed)
        self.down = nn.Parameter(0.3 * torch.randn(2, inner.in_features, generator=random))
        self.up = nn.Parameter(torch.zeros(inner.out_features, 2))

    def forward(self, states: Tensor) -> Tensor:
        return self.inner(states) + ((states.to(self.down.dtype) @ self.down.T) @ self.up.T).to(states.dtype)


def adapted_model() -> LoadedModel:
    """A model of which only the corrections of its query projections are trained."""
    model = tiny_model()
    model.module.requires_grad_(False)
    for number, layer in enumerate(model.module.model.layers):
        layer.self_attn.q_proj = Adapted(layer.self_attn.q_proj, number)
    return model


def low(model: LoadedModel) -> LoadedModel:
    """The model with what is frozen in bfloat16, or all of it where nothing is."""
    frozen = [p for p in model.module.parameters() if not p.requires_grad]
    for parameter in frozen or model.module.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    return model


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained on what. ``settings`` are a trainer's, ``shape`` a batch's. With ``lora`` the reference
    is the policy's own base.
    """

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    objective: Objective = POLICY
    columns: frozenset[str] = OLD
    shape: Mapping[str, Any] = field(default_factory=dict[str, Any])
    model: Callable[[], LoadedModel] = tiny_model
    lora: LoraConfig | None = None
    tolerance: float = 1e-5

    def batch(self) -> Batch:
        return with_advantages(ragged_batch(tiny_model().vocab_size, **self.shape))

    def built(self, make: Callable[..., Any]) -> Any:
        plain = {
            "learning_rate": 1e-3,
            "critic_warmup_updates": 2,
            "fast": "never",
            "tokens_per_micro_batch": 24,
        }
        return make(
            self.model(),
            temperature=TEMPERATURE,
            config=TrainerConfig(**{**plain, **self.settings}),
            reference=tiny_model(seed=9) if self.columns == REFERENCE and self.lora is None else None,
            critic=self.columns == VALUES,
            seed=5,
            total_updates=UPDATES,
            lora=self.lora,
        )


LOW = 4e-3
"""In bfloat16 other micro-batches alone, in one process, move weights apart by 4.8e-3 in ten updates."""
FEW = {"prompts": (3,), "answers": ((4,),)}
LONG = {"prompts": (40, 30), "answers": ((3, 5, 2, 4), (4, 1, 3))}
CASES: dict[str, Case] = {
    "policy": Case(),
    "one sequence, other ranks idle": Case(shape=FEW),
    "some answers empty": Case(shape={"answers": ((5, 0, 9), (0, 0), (4, 12))}),
    "clip, decay, schedule": Case(
        settings={"max_grad_norm": 1e-3, "weight_decay": 0.1, "schedule": "cosine", "warmup_updates": 3}
    ),
    "shared prompts": Case(shape=LONG, settings={"tokens_per_micro_batch": 128}),
    "silent answers left out": Case(settings={"skip_silent": True}),
    "old from the update": Case(columns=frozenset()),
    "critic head": Case(settings={"critic": "head"}, objective=BOTH, columns=VALUES),
    "critic model": Case(settings={"critic": "model"}, objective=BOTH, columns=VALUES),
    "reference and entropy": Case(objective=KL, columns=REFERENCE, settings={"learning_rate": 3e-4}),
    "frozen with adapters": Case(model=adapted_model, settings={"learning_rate": 1e-2}),
    "layers computed again": Case(settings={"gradient_checkpointing": True}),
    "untied": Case(model=lambda: tiny_model("llama", tie_word_embeddings=False)),
    "experts": Case(model=tiny_experts, settings={"learning_rate": 3e-4}),
    "bfloat16 autocast": Case(settings={"autocast": True}, tolerance=LOW),
}


@dataclass(frozen=True)
class Trained:
    """Reports of all updates, and the weights by owner after them."""

    reports: list[StepReport]
    weights: dict[str, dict[str, Tensor]]


def trained(case: Case, trainer: Trainer) -> Trained:
    """Ten updates on the same answers; columns are read anew after five."""
    reports: list[StepReport] = []
    batch = case.batch()
    for number in range(UPDATES):
        if number % 5 == 0 and case.columns:
            batch = with_returns(annotate(trainer, case.batch(), case.columns), 0.5)
        reports.append(update(trainer, batch, case.objective))
    return Trained(reports, {owner: dict(found) for owner, found in masters(trainer).items()})


@cache
def alone(name: str) -> Trained:
    case = CASES[name]
    done = trained(case, case.built(LocalTrainer))
    weights = {o: {n: t.detach().clone() for n, t in found.items()} for o, found in done.weights.items()}
    return dataclasses.replace(done, weights=weights)


def over(name: str, ranks: Any) -> Trained:
    case = CASES[name]
    return trained(case, case.built(lambda model, **settings: Spread(ranks, model, **settings)))


def apart(left: Trained, right: Trained) -> float:
    """The largest difference of a weight."""
    assert left.weights.keys() == right.weights.keys()
    return max(
        float((mine - right.weights[owner][name]).detach().abs().max())
        for owner, found in left.weights.items()
        for name, mine in found.items()
    )


def other_micro_batches(name: str) -> float:
    """How far the single process comes from itself with micro-batches of another size."""
    case = dataclasses.replace(CASES[name], settings={**CASES[name].settings, "tokens_per_micro_batch": 60})
    return apart(alone(name), trained(case, case.built(LocalTrainer)))
