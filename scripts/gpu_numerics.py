"""The checks of numbers that ``gpu_check.py`` makes: every way to compute a thing against the plain one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab.data.packing import micro_batches
from trimtab.models import LoadedModel, as_loaded, split_head
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Clip
from trimtab.ops.fused_logprobs import fused_logprobs
from trimtab.ops.logprobs import logprobs_and_entropy
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.local import LocalTrainer
from trimtab.trainer.sharing import Cost, can_share, plan
from trimtab.types import Batch, Draw, Group, Prompt

POLICY = Objective(((1.0, PolicyGradient(token_ratio, Clip(0.2, 0.28))),), token_mean)
FUSED = "cut-cross-entropy"
OPTIONAL = {"flash_attention_2": "flash_attn", "liger": "liger_kernel", FUSED: "cut_cross_entropy"}
"""What is measured where it is installed, and its package."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """``groups`` x ``samples`` answers in checks and updates; ``widths``: answers sampled at once."""

    groups: int
    samples: int
    prompt: int
    answer: int
    widths: tuple[int, ...]
    micro_batch: int


@dataclass(frozen=True, slots=True)
class Check:
    """A number and the largest value it may have."""

    name: str
    value: float
    limit: float

    @property
    def good(self) -> bool:
        return self.value <= self.limit  # also False for NaN


def converted(model: LoadedModel, dtype: torch.dtype) -> LoadedModel:
    """A copy in another dtype."""
    return as_loaded(copy.deepcopy(model.module).to(dtype), model.tokenizer)


def installed(name: str, model: LoadedModel) -> bool:
    """Whether one of ``OPTIONAL`` can be measured."""
    return model.device.type == "cuda" and importlib.util.find_spec(OPTIONAL[name]) is not None


def batch_of(prompts: Sequence[Tensor], ids_T: Tensor, lengths_S: Tensor, logprobs_T: Tensor) -> Batch:
    """Answers to prompts, groups of equal size one after the other; no rewards."""
    count = len(lengths_S)
    group_S = torch.arange(count) // (count // len(prompts))
    return Batch(
        prompts_P=tuple(prompts),
        token_ids_T=ids_T,
        seq_T=torch.repeat_interleave(torch.arange(count), lengths_S),
        mask_T=torch.ones(len(ids_T), dtype=torch.bool),
        rollout_logprobs_T=logprobs_T,
        group_S=group_S,
        rewards_S=torch.zeros(count, dtype=torch.float64),
        outcomes_S=torch.zeros(count, dtype=torch.float64),
        truncated_S=torch.zeros(count, dtype=torch.bool),
        version_S=torch.zeros(count, dtype=torch.int64),
        keys_S=tuple(f"p{group}#0/{i}" for i, group in enumerate(group_S.tolist())),
    )


def random_batch(model: LoadedModel, sizes: Sizes) -> Batch:
    """Ragged answers of random ids, with random advantages."""
    random = torch.Generator().manual_seed(1)
    count = sizes.groups * sizes.samples
    lengths = torch.randint(sizes.answer // 2, sizes.answer + 1, (count,), generator=random)
    tokens = int(lengths.sum())

    def ids(length: int) -> Tensor:
        return torch.randint(2, model.vocab_size, (length,), generator=random)

    prompts = [ids(sizes.prompt) for _ in range(sizes.groups)]
    batch = batch_of(prompts, ids(tokens), lengths, torch.zeros(tokens))
    advantages_S = torch.randn(count, generator=random, dtype=torch.float64)
    return batch.with_columns(advantages_T=advantages_S[batch.seq_T])


def draws_of(batch: Batch) -> list[Draw]:
    """Its prompts as draws for an engine."""
    return [
        Draw(Prompt(id=f"p{i}", token_ids=prompt.numpy(), text="", task="random"), 0)
        for i, prompt in enumerate(batch.prompts_P)
    ]


def sampled(model: LoadedModel, draws: Sequence[Draw], samples: int, limit: int) -> list[Group]:
    """Groups of answers, in the order of the draws."""

    async def collect() -> list[Group]:
        engine = LocalEngine(model)
        stream = engine.generate(draws, samples, Sampling(max_new_tokens=limit), seed=0)
        return [group async for group in stream]

    order = {draw.key: i for i, draw in enumerate(draws)}
    return sorted(asyncio.run(collect()), key=lambda group: order[group.key])


def read(
    model: LoadedModel,
    batch: Batch,
    parts: Sequence[Sequence[int]],
    *,
    autocast: bool = False,
    kernels: str = "none",
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the tokens, and the gradient of their sum weighted by advantage, as one vector."""
    reader = Reader(model, temperature=1.0, autocast=autocast, kernels=kernels)
    model.module.zero_grad()
    numbered = batch.with_columns(place_T=torch.arange(batch.num_tokens))
    logprobs = torch.zeros(batch.num_tokens)
    for part in parts:
        chosen = numbered.select(list(part))
        out, _ = reader(chosen, Asked(policy_grad=True))
        weight_T = chosen.columns["advantages_T"].to(out.logprobs_T.device, torch.float32)
        (out.logprobs_T * weight_T).sum().backward()
        logprobs[chosen.columns["place_T"]] = out.logprobs_T.detach().float().cpu()
    gradient = torch.cat([p.grad.float().flatten() for p in model.module.parameters() if p.grad is not None])
    model.module.zero_grad()
    return logprobs, gradient


def rows_of(batch: Batch, sizes: Sizes) -> list[list[int]]:
    """Micro-batches with a row for each answer."""
    return micro_batches(batch, sizes.micro_batch)


def apart(left: Tensor, right: Tensor) -> float:
    """Distance of two vectors as a share of the second's length."""
    return float((left - right).norm() / right.norm())


def numerics(model: LoadedModel, sizes: Sizes) -> Iterator[Check]:
    """Every check of numbers. Limits are for float32 products in float32, and bfloat16's three digits."""
    batch = random_batch(model, sizes)
    parts = rows_of(batch, sizes)
    logprobs, gradient = read(model, batch, parts)
    yield from chunked(model, sizes)
    yield from sampler_agrees(model, batch, sizes, "float32", 1e-4)
    if can_share(model, Reader(model, temperature=1.0).backbone):
        shared, rows = plan(
            batch, torch.arange(batch.num_sequences), sizes.micro_batch, Cost(token=1e9, pair=1.0)
        )
        once, slope = read(model, shared, rows)
        yield Check("prompt once a group: log-probabilities, largest difference", _most(once, logprobs), 1e-3)
        yield Check("prompt once a group: gradient, relative", apart(slope, gradient), 1e-3)
    yield from attentions(model, batch, parts, logprobs)
    mixed, slope = read(model, batch, parts, autocast=True)
    yield Check("autocast: log-probabilities, mean difference", _mean(mixed, logprobs), 0.03)
    yield Check("autocast: gradient, relative", apart(slope, gradient), 0.1)
    half = converted(model, torch.bfloat16)
    rounded, slope = read(half, batch, parts)
    yield Check("bfloat16: log-probabilities, mean difference", _mean(rounded, logprobs), 0.03)
    yield Check("bfloat16: gradient, relative", apart(slope, gradient), 0.2)
    if installed(FUSED, model):
        fused, slope = read(half, batch, parts, kernels=FUSED)
        yield Check(f"bfloat16, {FUSED}: log-probabilities, mean difference", _mean(fused, logprobs), 0.03)
        yield Check(f"bfloat16, {FUSED}: gradient, relative", apart(slope, gradient), 0.2)
    yield from sampler_agrees(half, batch, sizes, "bfloat16", 0.03)
    yield from trainers_agree(model, half, batch.with_columns(old_logprobs_T=logprobs), sizes)


def _most(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())


def _mean(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().mean())


def chunked(model: LoadedModel, sizes: Sizes) -> Iterator[Check]:
    """Log-probabilities and entropies in chunks, and the library's fused ones, against the plain softmax."""
    count, (_, head) = sizes.groups * sizes.prompt, split_head(model.module)
    random = torch.Generator().manual_seed(2)
    states = torch.randn(count, model.module.config.hidden_size, generator=random).to(model.device)
    targets = torch.randint(2, model.vocab_size, (count,), generator=random).to(model.device)
    weight = torch.randn(count, generator=random).to(model.device)

    def slope(run: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        leaf = states.clone().requires_grad_()
        found = run(leaf)
        (found * weight).sum().backward()
        assert leaf.grad is not None
        return found.detach(), leaf.grad

    def plain(leaf: Tensor) -> Tensor:
        return torch.log_softmax(head(leaf).float(), -1).gather(-1, targets[:, None])[:, 0]

    def in_chunks(leaf: Tensor) -> Tensor:
        return logprobs_and_entropy(
            leaf, head, targets, temperature=1.0, vocab_size=model.vocab_size, chunk_tokens=1 + count // 5
        )[0]

    expected = slope(plain)
    ways: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {"chunks": (in_chunks, 1e-4, 1e-3)}
    if installed("liger", model):
        ways["liger"] = (lambda leaf: _liger(leaf, model, targets), 1e-4, 1e-3)
    if installed(FUSED, model):  # it rounds states to bfloat16, and adds up their gradients in it
        ways[FUSED] = (lambda leaf: _fused(leaf, model, targets), 0.03, 0.1)
    for name, (way, most, most_apart) in ways.items():
        found = slope(way)
        yield Check(f"{name}: log-probabilities, largest difference", _most(found[0], expected[0]), most)
        yield Check(f"{name}: gradient, relative", apart(found[1], expected[1]), most_apart)


def _fused(leaf: Tensor, model: LoadedModel, targets: Tensor) -> Tensor:
    output: Any = model.module.get_output_embeddings()
    return fused_logprobs(leaf, output.weight, targets, temperature=1.0, vocab_size=model.vocab_size)


def _liger(leaf: Tensor, model: LoadedModel, targets: Tensor) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    output: Any = model.module.get_output_embeddings()
    found = liger_fused_linear_cross_entropy(leaf, output.weight, targets, reduction="none")
    return -(found[0] if isinstance(found, tuple) else found)


def attentions(model: LoadedModel, batch: Batch, parts: Any, expected: Tensor) -> Iterator[Check]:
    """Every attention that is installed; FlashAttention computes in bfloat16 only."""
    mine = model.module.config._attn_implementation
    for name in ("eager", "sdpa", *(("flash_attention_2",) if installed("flash_attention_2", model) else ())):
        flash = name.startswith("flash")
        other = converted(model, torch.bfloat16) if flash else model
        other.module.set_attn_implementation(name)
        found, _ = read(other, batch, parts)
        limit = 0.03 if flash else 1e-4
        yield Check(f"attention {name}: log-probabilities, mean difference", _mean(found, expected), limit)
    model.module.set_attn_implementation(mine)


def sampler_agrees(
    model: LoadedModel, batch: Batch, sizes: Sizes, name: str, limit: float
) -> Iterator[Check]:
    """The sampler's log-probabilities of its own answers against the trainer's of the same tokens."""
    groups = sampled(model, draws_of(batch), sizes.samples, min(sizes.answer, 128))
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    ids = torch.cat([torch.as_tensor(rollout.token_ids) for rollout in rollouts]).long()
    lengths = torch.tensor([rollout.length for rollout in rollouts])
    logprobs = torch.cat([torch.as_tensor(rollout.logprobs) for rollout in rollouts]).float()
    again = batch_of(batch.prompts_P, ids, lengths, logprobs)
    again = again.with_columns(advantages_T=torch.ones(len(ids), dtype=torch.float64))
    found, _ = read(model, again, rows_of(again, sizes))
    yield Check(
        f"{name}: sampler and trainer, mean difference", _mean(again.rollout_logprobs_T, found), limit
    )


def trainers_agree(model: LoadedModel, half: LoadedModel, batch: Batch, sizes: Sizes) -> Iterator[Check]:
    """A whole update in bfloat16 against one in float32. Leaves both models updated.

    The batch's old log-probabilities are the float32 model's, so that its ratios are 1.
    """
    reports = []
    for one in (model, half):
        config = TrainerConfig(tokens_per_micro_batch=sizes.micro_batch)
        trainer = LocalTrainer(one, temperature=1.0, config=config)
        reports.append(asyncio.run(trainer.update(batch, POLICY)))
    plain, rounded = (report.grad_norm or 0.0 for report in reports)
    yield Check("bfloat16 trainer: gradient norm, relative", abs(rounded / plain - 1), 0.1)
    yield Check("bfloat16 trainer: loss, difference", abs(reports[1].loss - reports[0].loss), 0.01)
